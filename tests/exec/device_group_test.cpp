// SPDX-License-Identifier: Apache-2.0
// A group over values in a device's memory does what the group itself does with the same values in
// host memory, with equal bits, for values and bounce buffers of any size.
#include "engine/exec/bounced_group.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/comm/group_local.h"
#include "engine/plan/op.h"
#include "kernels/emulated/device_emulated.h"

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

// A rank whose values are on an emulated device.
class DeviceRank {
 public:
  DeviceRank(comm::Group& group, size_t buffer_bytes)
      : device_(kernels::make_emulated_device(kernels::ref_backend(), {})),
        memory_(device_->allocate(kFloats * 4)),
        copies_(device_->make_queue("copies", 1)),
        buffer_(buffer_bytes),
        ranges_(
            {{memory_->data(), kFloats * 4, true}, {buffer_.data(), std::ssize(buffer_), true}}),
        group_(group, *device_, "comm", [this] { ++waits_; }) {
    group_.open({.name = "exchange", .ranges = ranges_, .buffer = buffer_});
  }

  BouncedGroup& group() { return group_; }
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
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<kernels::DeviceMemory> memory_;
  std::unique_ptr<kernels::Queue> copies_;
  std::vector<std::byte> buffer_;
  std::vector<kernels::MemoryRange> ranges_;
  int waits_ = 0;
  BouncedGroup group_;
};

// An exchange among ranks whose values begin at `data`.
using Exchange = std::function<void(comm::Group&, float* data)>;

// What each rank has after it.
using World = std::vector<Values>;

World after(const World& before, const Exchange& exchange, size_t buffer_bytes) {
  World values = before;
  const auto groups = comm::make_local_groups(static_cast<int>(before.size()));
  std::vector<std::jthread> threads;
  for (size_t r = 0; r < before.size(); ++r) {
    threads.emplace_back([&, r] {
      if (buffer_bytes == 0) return exchange(*groups[r], values[r].data());
      DeviceRank rank(*groups[r], buffer_bytes);
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

// The parts of others after a reduction with a narrow payload, and of sums in place, are nobody's.
TEST(BouncedGroup, HasTheBitsOfItsGroup) {
  std::mt19937 random(20261127);
  for (int i = 0; i < 60; ++i) {
    const int ranks = 2 + i % 3;
    World before(static_cast<size_t>(ranks));
    for (Values& values : before) values = random_values(random);
    const auto seed = static_cast<uint32_t>(random());
    const size_t buffer =
        static_cast<size_t>(plan::kLeastBounceBytes) * static_cast<size_t>(ranks) +
        256 * (random() % 8);
    SCOPED_TRACE(testing::Message() << ranks << " ranks, seed " << seed << ", " << buffer);
    const auto expect_equal = [&](const Exchange& exchange) {
      EXPECT_EQ(after(before, exchange, buffer), after(before, exchange, 0));
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

TEST(BouncedGroup, SumsNarrowPayloadsAsItsGroupDoes) {
  std::mt19937 random(5);
  World before(3);
  for (Values& values : before) values = random_values(random);
  const auto sums = [&](Payload payload, size_t buffer_bytes) {
    World out(3);
    const World values = after(before, reduce(11, payload, false), buffer_bytes);
    int end = 0;
    Values any(kFloats);
    (void)drawn_ranges(any.data(), 3, 11, &end, payload);
    for (size_t r = 0; r < 3; ++r) out[r].assign(values[r].begin() + end, values[r].end());
    return out;
  };
  for (const Payload payload : {Payload::kBF16, Payload::kMxInt8}) {
    // A part is cut where a block ends.
    EXPECT_EQ(sums(payload, 3 * 320), sums(payload, 0)) << name_of(payload);
    const auto whole = [payload](comm::Group& group, float* data) {
      group.all_reduce_sum(data + 3, 9 * 32, payload);
    };
    EXPECT_EQ(after(before, whole, 3 * 320), after(before, whole, 0)) << name_of(payload);
  }
}

TEST(BouncedGroup, StaysInTheMemoryOfItsOp) {
  const auto groups = comm::make_local_groups(1);
  DeviceRank rank(*groups[0], 256);
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
