// SPDX-License-Identifier: Apache-2.0
// A group over values in a device's memory does what the group itself does with the same values in
// host memory, with equal bits, for values and buffers of any size.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <random>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/comm/group_local.h"
#include "engine/exec/bounced_group.h"
#include "engine/exec/direct_group.h"
#include "engine/plan/op.h"
#include "kernels/emulated/device_emulated.h"
#include "tests/support/seeds.h"

namespace strata::exec {
namespace {

constexpr int kFloats = 600;  // of a rank's device memory

using Values = std::vector<float>;

Values random_values(std::mt19937& random) {
  std::uniform_real_distribution<float> draw(-2.0f, 2.0f);
  Values values(kFloats);
  for (float& value : values) value = draw(random);
  return values;
}

// What exchanges: the group itself, or a group over it for values of a device.
enum class Way { kItself, kBounced, kDirect };

// How ranks exchange, through a buffer of so many bytes. `near`: ranks of a machine; 0: all.
struct Setting {
  Way way = Way::kItself;
  size_t buffer_bytes = 0;
  int near = 0;
};

// A rank whose values are on an emulated device.
class DeviceRank {
 public:
  DeviceRank(comm::Group& group, const Setting& setting)
      : device_(kernels::make_emulated_device(kernels::ref_backend(), {})),
        memory_(device_->allocate(kFloats * 4 + kBuffer)),
        copies_(device_->make_queue("copies", 1)),
        host_(setting.way == Way::kBounced ? setting.buffer_bytes : 0) {
    const std::function<void()> keep_waiting = [this] { ++waits_; };
    std::span<std::byte> buffer = host_;
    if (setting.way == Way::kBounced) {
      group_ = std::make_unique<BouncedGroup>(group, *device_, "comm", keep_waiting);
    } else {
      const int near = setting.near == 0 ? group.size() : setting.near;
      DirectGroup::Options options = {.name = "comm", .near = near, .keep_waiting = keep_waiting};
      for (int r = 0; r < group.size(); ++r) {
        options.is_near.push_back(r / near == group.rank() / near);
      }
      group_ = std::make_unique<DirectGroup>(group, *device_, options);
      buffer = {memory_->data() + kFloats * 4, setting.buffer_bytes};
    }
    ranges_ = {{memory_->data(), kFloats * 4, true}, {buffer.data(), std::ssize(buffer), true}};
    group_->open({.name = "exchange", .ranges = ranges_, .buffer = buffer});
  }

  DeviceGroup& group() { return *group_; }
  float* data() { return reinterpret_cast<float*>(memory_->data()); }

  // From the host, or to it.
  void move(float* to, const float* from) {
    const kernels::MemoryRange both[] = {{to, kFloats * 4, true}, {from, kFloats * 4, true}};
    copies_->begin("copy", both);
    copies_->copy(to, from, kFloats * 4);
    const int64_t ticket = copies_->end();
    while (copies_->completed() < ticket) copies_->sleep(ticket, 0.1);
  }

 private:
  static constexpr int64_t kBuffer = 1 << 20;

  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<kernels::DeviceMemory> memory_;
  std::unique_ptr<kernels::Queue> copies_;
  std::vector<std::byte> host_;
  std::vector<kernels::MemoryRange> ranges_;
  std::atomic<int> waits_ = 0;
  std::unique_ptr<DeviceGroup> group_;
};

// An exchange among ranks whose values begin at `data`.
using Exchange = std::function<void(comm::Group&, float* data)>;

// What each rank has after it.
using World = std::vector<Values>;

World after(const World& before, const Exchange& exchange, const Setting& setting) {
  World values = before;
  const auto groups =
      comm::make_local_groups(static_cast<int>(before.size()), {.near = setting.near});
  std::vector<std::jthread> threads;
  for (size_t r = 0; r < before.size(); ++r) {
    threads.emplace_back([&, r] {
      if (setting.way == Way::kItself) return exchange(*groups[r], values[r].data());
      DeviceRank rank(*groups[r], setting);
      rank.move(rank.data(), values[r].data());
      exchange(rank.group(), rank.data());
      rank.move(values[r].data(), rank.data());
    });
  }
  threads.clear();
  return values;
}

// Parts of a value for each rank, one value behind the other, as far as there is room.
std::vector<comm::ReduceRange> drawn_ranges(float* data, int ranks, uint32_t seed, int* end,
                                            Payload payload = Payload::kF32) {
  std::mt19937 random(seed);
  std::vector<comm::ReduceRange> ranges;
  int first = static_cast<int>(random() % 3);
  while (std::ssize(ranges) < 4) {
    const auto part =
        static_cast<int>(round_up(1 + static_cast<int>(random() % 60), block_of(payload)));
    if (first + ranks * part > kFloats / 2) break;
    ranges.push_back({data + first, part, nullptr});
    first += ranks * part + static_cast<int>(random() % 2);
  }
  *end = first;
  return ranges;
}

Exchange gather(uint32_t seed) {
  return [seed](comm::Group& group, float* data) {
    int end = 0;
    std::vector<comm::GatherRange> ranges;
    for (const comm::ReduceRange& range : drawn_ranges(data, group.size(), seed, &end)) {
      ranges.push_back({range.whole, range.part_numel * 4});
    }
    group.gather_chunks(ranges);
  };
}

// Sums go to their place among the parts, or behind all of them.
Exchange reduce(uint32_t seed, Payload payload, bool in_place) {
  return [=](comm::Group& group, float* data) {
    int end = 0;
    std::vector<comm::ReduceRange> ranges = drawn_ranges(data, group.size(), seed, &end, payload);
    float* out = data + end;
    for (comm::ReduceRange& range : ranges) {
      range.out = in_place ? range.whole + group.rank() * range.part_numel : out;
      out += range.part_numel;
    }
    group.reduce_chunks(ranges, payload);
  };
}

Exchange swap(uint32_t seed) {
  return [=](comm::Group& group, float* data) {
    const int64_t part = seed % (kFloats / 2 / static_cast<unsigned>(group.size()));
    group.all_to_all({data, data + kFloats / 2, part * 4});
  };
}

Exchange sum(uint32_t seed, Payload payload) {
  return [=](comm::Group& group, float* data) {
    const int first = static_cast<int>(seed % 7), count = 1 + static_cast<int>(seed % 500);
    group.all_reduce_sum(data + first, count, payload);
  };
}

// From each rank to the next, and the first receives first.
Exchange message(uint32_t seed) {
  return [=](comm::Group& group, float* data) {
    const int64_t bytes = 1 + seed % 1100;
    const int next = (group.rank() + 1) % group.size();
    const int last = (group.rank() + group.size() - 1) % group.size();
    const comm::Message out = {data, bytes, next, 7}, in = {data + kFloats / 2, bytes, last, 7};
    if (group.rank() > 0) group.send(out);
    group.recv(in);
    if (group.rank() == 0) group.send(out);
  };
}

class DeviceGroups : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, DeviceGroups, testing::Values(Way::kBounced, Way::kDirect),
                         [](const auto& way) {
                           return way.param == Way::kBounced ? "Bounced" : "Direct";
                         });

// The parts of others after a reduction with a narrow payload, and of sums in place, are nobody's.
TEST_P(DeviceGroups, HaveTheBitsOfTheirGroup) {
  std::mt19937 random(20261127);
  for (uint64_t i = 0; i < test::seeds(40); ++i) {
    const int ranks = 2 + static_cast<int>(i % 5);
    World before(static_cast<size_t>(ranks));
    for (Values& values : before) values = random_values(random);
    const auto seed = static_cast<uint32_t>(random());
    Setting device = {.way = GetParam()};
    device.buffer_bytes =
        static_cast<size_t>(plan::kLeastBounceBytes) * before.size() + 256 * (random() % 8);
    if (random() % 2 == 0) device.near = ranks % 2 == 0 ? 2 : 1;
    SCOPED_TRACE(testing::Message() << ranks << " ranks, seed " << seed << ", "
                                    << device.buffer_bytes << ", near " << device.near);
    const auto expect_equal = [&](const Exchange& exchange) {
      EXPECT_EQ(after(before, exchange, device), after(before, exchange, {.near = device.near}));
    };
    expect_equal(gather(seed));
    expect_equal(reduce(seed, Payload::kF32, false));
    expect_equal(reduce(seed, Payload::kF32, true));
    expect_equal(sum(seed, Payload::kF32));
    expect_equal(sum(seed, Payload::kBF16));
    expect_equal(swap(seed));
    expect_equal(message(seed));
  }
}

// More than the device adds at once.
TEST_P(DeviceGroups, OfManyRanksAddInOrder) {
  std::mt19937 random(3);
  World before(11);
  for (Values& values : before) values = random_values(random);
  for (const Payload payload : {Payload::kF32, Payload::kBF16}) {
    const Exchange one = sum(17, payload);
    EXPECT_EQ(after(before, one, {.way = GetParam(), .buffer_bytes = 11 * 512}),
              after(before, one, {}))
        << name_of(payload);
  }
}

TEST_P(DeviceGroups, SumNarrowPayloadsAsTheirGroupDoes) {
  std::mt19937 random(5);
  World before(4);
  for (Values& values : before) values = random_values(random);
  const auto sums = [&](Payload payload, const Setting& setting) {
    World out(4);
    const World values = after(before, reduce(11, payload, false), setting);
    int end = 0;
    Values any(kFloats);
    (void)drawn_ranges(any.data(), 4, 11, &end, payload);
    for (size_t r = 0; r < 4; ++r) out[r].assign(values[r].begin() + end, values[r].end());
    return out;
  };
  for (const Payload payload : {Payload::kBF16, Payload::kMxInt8}) {
    if (GetParam() == Way::kDirect && payload == Payload::kMxInt8) continue;  // the host's alone
    for (const int near : {0, 2, 1}) {
      // A part is cut where a block ends.
      const Setting device = {.way = GetParam(), .buffer_bytes = 4 * 320, .near = near};
      EXPECT_EQ(sums(payload, device), sums(payload, {.near = near})) << name_of(payload);
      const auto whole = [payload](comm::Group& group, float* data) {
        group.all_reduce_sum(data + 3, 9 * 32, payload);
      };
      EXPECT_EQ(after(before, whole, device), after(before, whole, {.near = near}))
          << name_of(payload);
    }
  }
}

TEST_P(DeviceGroups, CountWhatTheirGroupCounts) {
  const Exchange all[] = {gather(4), reduce(4, Payload::kBF16, false), sum(9, Payload::kF32),
                          swap(40), message(9)};
  for (const int near : {0, 2, 1}) {
    for (const Exchange& exchange : all) {
      std::vector<SentBytes> sent[2];
      for (const bool device : {false, true}) {
        const auto groups = comm::make_local_groups(4, {.near = near});
        std::vector<SentBytes>& counted = sent[device ? 1 : 0];
        counted.resize(4);
        std::vector<std::jthread> threads;
        for (size_t r = 0; r < 4; ++r) {
          threads.emplace_back([&, r] {
            Values values(kFloats);
            std::optional<DeviceRank> rank;
            if (device) rank.emplace(*groups[r], Setting{GetParam(), 4 * 512, near});
            const SentBytes before = groups[r]->sent();
            exchange(device ? rank->group() : *groups[r], device ? rank->data() : values.data());
            counted[r] = groups[r]->sent() - before;
            if (device) counted[r] += rank->group().sent();
          });
        }
        threads.clear();
      }
      EXPECT_EQ(sent[0], sent[1]) << "near " << near << ", exchange " << &exchange - all;
    }
  }
}

// A rank that never comes to an exchange, and one whose device fails.
TEST(DirectGroup, EndsWhenAnotherRankAborts) {
  const auto groups = comm::make_local_groups(2);
  std::string text;
  {
    const std::jthread other([&] {
      DeviceRank rank(*groups[1], {Way::kDirect, 1024});
      rank.group().abort("it is tired");
    });
    DeviceRank rank(*groups[0], {Way::kDirect, 1024});
    try {
      rank.group().gather(rank.data(), 32);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPeer);
      text = error.what();
    }
  }
  EXPECT_NE(text.find("rank 1 stopped: it is tired"), std::string::npos) << text;
}

// Two ranks, of which the second comes to an exchange but sends nothing; how the first one ends.
std::string end_of_waiting(const std::function<void()>& keep_waiting, double deadline_s) {
  const auto groups = comm::make_local_groups(2);
  std::atomic<bool> over = false;
  const std::jthread other([&] {
    const auto device = kernels::make_emulated_device(kernels::ref_backend(), {});
    kernels::PeersId id;
    groups[1]->broadcast(&id, sizeof(id), 0);
    const auto peers = device->join({.id = id, .rank = 1, .size = 2});
    const comm::GatherRange range = {nullptr, 512};
    comm::CallHeader header = comm::header_of("gather", {&range, 1});
    header.root = 2048;
    groups[1]->meet(header);
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  const auto device = kernels::make_emulated_device(kernels::ref_backend(), {});
  const auto memory = device->allocate(4096);
  std::string text = "nothing";
  try {
    DirectGroup group(*groups[0], *device,
                      {.name = "comm",
                       .near = 2,
                       .is_near = {1, 1},
                       .keep_waiting = keep_waiting,
                       .deadline_s = deadline_s});
    const kernels::MemoryRange ranges[] = {{memory->data(), 4096, true}};
    group.open({.name = "gather b0", .ranges = ranges, .buffer = {memory->data() + 2048, 2048}});
    group.gather(memory->data(), 512);
  } catch (const std::exception& error) {
    text = error.what();
  }
  over = true;
  return text;
}

TEST(DirectGroup, EndsWhenItNoLongerWaits) {
  std::atomic<int> waits = 0;
  const auto enough = [&] {
    if (++waits > 2) throw std::runtime_error("enough");
  };
  EXPECT_EQ(end_of_waiting(enough, 600), "enough");
}

TEST(DirectGroup, EndsWhenAnExchangeTakesTooLong) {
  const std::string text = end_of_waiting([] {}, 0.3);
  EXPECT_NE(text.find("gather b0: devices: those of comm have not exchanged within 0.3 s"),
            std::string::npos)
      << text;
}

// Neither waits for what the other does not send.
TEST(DirectGroup, EndsWhereRanksCallDifferently) {
  const auto groups = comm::make_local_groups(2);
  std::string texts[2];
  {
    std::vector<std::jthread> threads;
    for (size_t r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        DeviceRank rank(*groups[r], {Way::kDirect, 1024});
        try {
          if (r == 0) rank.group().gather(rank.data(), 32);
          if (r == 1) rank.group().reduce({rank.data(), 8, rank.data() + 8});
        } catch (const Error& error) {
          texts[r] = error.what();
        }
      });
    }
  }
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("called reduce fp32 of size"), std::string::npos) << text;
  }
}

TEST(BouncedGroup, StaysInTheMemoryOfItsOp) {
  const auto groups = comm::make_local_groups(1);
  DeviceRank rank(*groups[0], {Way::kBounced, 256});
  std::vector<std::byte> buffer(256);
  const kernels::MemoryRange ranges[] = {{rank.data(), 32, true}, {buffer.data(), 256, true}};
  rank.group().open({.name = "gather", .ranges = ranges, .buffer = buffer});
  rank.group().gather(rank.data(), 32);
  try {
    rank.group().gather(rank.data(), 36);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    EXPECT_NE(std::string(error.what()).find("gather"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace strata::exec
