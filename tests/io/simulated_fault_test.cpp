// SPDX-License-Identifier: Apache-2.0
// No fault of a drive yields silent wrong bytes. A small workload runs on a simulated drive with
// every kind of fault at every I/O index, and with random mixtures: each transfer ends with the
// right bytes or with a typed error that names file and offset, within the deadline.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "aligned_buffer.h"
#include "engine/base/rng.h"
#include "io/channel.h"
#include "tests/support/seeds.h"

namespace strata::io {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kExtent = 5 * kPage;  // two requests and a partial one
constexpr uint64_t kSpacing = 8 * kPage;
constexpr size_t kTransfers = 6;
constexpr double kDeadlineS = 2;
// Right or failed, a request is back so soon after it was started. The 18 of a pass go in five
// rounds of four: the next start before the errors of the last are looked at.
constexpr double kRequestLimitS = kDeadlineS + 0.5;
constexpr double kPassLimitS = 5 * kRequestLimitS;
constexpr std::array kKinds = {FaultKind::kEio,         FaultKind::kEnospc,  FaultKind::kShort,
                               FaultKind::kZero,        FaultKind::kEagain,  FaultKind::kEintr,
                               FaultKind::kTorn,        FaultKind::kFlipped, FaultKind::kStale,
                               FaultKind::kMisdirected, FaultKind::kHang};

bool is_silent(FaultKind kind) {
  return kind == FaultKind::kTorn || kind == FaultKind::kFlipped || kind == FaultKind::kStale ||
         kind == FaultKind::kMisdirected;
}

struct Result {
  int right = 0;
  int wrong_silently = 0;
  int write_errors = 0;
  int read_errors = 0;
  int untyped = 0;  // errors that do not name file and offset
  bool in_time = true;
  double slowest_s = 0;  // request
  uint64_t injected = 0;
  uint64_t ios = 0;
};

// Memory of the workload, made once: 10^4 runs share it.
struct Memory {
  std::vector<AlignedBuffer> written;
  std::vector<AlignedBuffer> read;
  Memory() {
    for (size_t i = 0; i < 2 * kTransfers; ++i) written.emplace_back(kExtent, 100 + i);
    for (size_t i = 0; i < kTransfers; ++i) read.emplace_back(kExtent);
  }
};

void check_error(const Transfer& transfer, Result& result) {
  const std::string text = transfer.error->what();
  const ErrorCode code = transfer.error->code();
  const bool typed =
      code == ErrorCode::kIo || code == ErrorCode::kCorrupt || code == ErrorCode::kDeadline;
  const bool named = text.find("scratch file in /dev/shm/") != std::string::npos &&
                     text.find(" at offset ") != std::string::npos &&
                     text.find('(') != std::string::npos;
  if (!typed || !named) ++result.untyped;
}

// Generation 0 is written without faults; then generation 1 is written over it and read back with
// them.
Result run(const test::TemporaryDirectory& a, const test::TemporaryDirectory& b,
           const Memory& memory, SimulatedOptions simulated) {
  Result result;
  Volume volume({.directories = {a.path(), b.path()},
                 .bytes = kTransfers * kSpacing,
                 .stripe_bytes = kSpacing,
                 .block_bytes = kPage,
                 .allow_memory_filesystem = true});
  const auto pass = [&](Channel& channel, Direction direction, uint64_t generation) {
    std::array<Transfer, kTransfers> transfers;
    for (size_t i = 0; i < kTransfers; ++i) {
      const AlignedBuffer& buffer = direction == Direction::kRead
                                        ? memory.read[i]
                                        : memory.written[generation * kTransfers + i];
      transfers[i] = transfer_of(direction, i * kSpacing, buffer, generation * 100 + i);
      channel.submit(&transfers[i]);
    }
    result.in_time = drain(channel, kPassLimitS) && result.in_time;
    for (size_t i = 0; i < kTransfers; ++i) {
      if (transfers[i].error != nullptr) {
        check_error(transfers[i], result);
        ++(direction == Direction::kRead ? result.read_errors : result.write_errors);
      } else if (direction == Direction::kRead) {
        const bool same = memory.read[i] == memory.written[kTransfers + i];
        ++(same ? result.right : result.wrong_silently);
      }
    }
  };
  // What an earlier run read is right here too: a read that leaves the memory alone must not pass.
  for (const AlignedBuffer& buffer : memory.read) std::memset(buffer.data(), 0x77, buffer.bytes());
  ChannelOptions options = {.backend = Backend::kSimulated,
                            .depth = 4,
                            .request_bytes = 2 * kPage,
                            .max_transfers = kTransfers,
                            .deadline_s = kDeadlineS};
  {
    Channel clean(volume, options);
    pass(clean, Direction::kWrite, 0);
  }
  simulated.injected = &result.injected;
  options.simulated = simulated;
  Channel channel(volume, options);
  pass(channel, Direction::kWrite, 1);
  pass(channel, Direction::kRead, 1);
  result.ios = channel.stats().requests;
  result.slowest_s =
      std::max(channel.stats().read_latency.max_s(), channel.stats().write_latency.max_s());
  return result;
}

class SimulatedFaults : public testing::Test {
 protected:
  const test::TemporaryDirectory a_{"/dev/shm"};
  const test::TemporaryDirectory b_{"/dev/shm"};
  const Memory memory_;
};

constexpr int kIos = 36;  // 6 transfers of 3 requests, written and read
constexpr int kWriteIos = 18;

TEST_F(SimulatedFaults, WithoutFaultsAllIsRight) {
  const Result result = run(a_, b_, memory_, {});
  EXPECT_EQ(result.right, static_cast<int>(kTransfers));
  EXPECT_EQ(result.ios, static_cast<uint64_t>(kIos));
}

// One fault of each kind at each index: what recovers does, what cannot is an error, and a fault
// harms the transfers that it hit and those on a file that failed a write, no other.
TEST_F(SimulatedFaults, EveryKindOnceAtEveryIndex) {
  for (const FaultKind kind : kKinds) {
    for (uint64_t index = 0; index < kIos; ++index) {
      SCOPED_TRACE(std::string(name_of(kind)) + " at I/O " + std::to_string(index));
      const Result result = run(a_, b_, memory_, {.seed = index, .faults = {{kind, index}}});
      ASSERT_EQ(result.injected, 1u);
      ASSERT_EQ(result.wrong_silently, 0);
      ASSERT_EQ(result.untyped, 0);
      ASSERT_TRUE(result.in_time);
      ASSERT_LE(result.slowest_s, kRequestLimitS);
      const bool write = index < kWriteIos;
      const bool loud_failure =
          kind == FaultKind::kEio || kind == FaultKind::kEnospc || kind == FaultKind::kHang;
      if (write && loud_failure) {
        EXPECT_GE(result.write_errors, 1);
        EXPECT_EQ(result.read_errors, 3);  // the poisoned file's extents
      } else if (write && is_silent(kind)) {
        EXPECT_EQ(result.write_errors, 0);
        EXPECT_GE(result.read_errors, 1);
        EXPECT_LE(result.read_errors, 2);  // misdirected: the place it hit and the place it missed
      } else if (!write && (kind == FaultKind::kEnospc || kind == FaultKind::kHang)) {
        EXPECT_EQ(result.read_errors, 1);
      } else {
        EXPECT_EQ(result.read_errors + result.write_errors, 0);  // a second try healed it
      }
      EXPECT_EQ(result.right + result.read_errors, static_cast<int>(kTransfers));
    }
  }
}

// The same kinds from an index on for ever: a drive that is broken, not a slip.
TEST_F(SimulatedFaults, EveryKindForEverFromEveryIndex) {
  for (const FaultKind kind : kKinds) {
    for (uint64_t index = 0; index < kIos; ++index) {
      SCOPED_TRACE(std::string(name_of(kind)) + " from I/O " + std::to_string(index));
      const Result result =
          run(a_, b_, memory_, {.seed = index, .faults = {{kind, index, uint64_t{1} << 40}}});
      ASSERT_EQ(result.wrong_silently, 0);
      ASSERT_EQ(result.untyped, 0);
      ASSERT_TRUE(result.in_time);
      ASSERT_LE(result.slowest_s, kRequestLimitS);
      EXPECT_EQ(result.right + result.read_errors, static_cast<int>(kTransfers));
      if (kind == FaultKind::kShort) {
        continue;  // halves that fall below a sector stop moving: an error, or right bytes
      }
      EXPECT_GE(result.read_errors, 1);
    }
  }
}

TEST_F(SimulatedFaults, ManyInMixturesNeverPassSilently) {
  uint64_t injected = 0;
  uint64_t seed = 1;
  int right = 0;
  for (; injected < strata::test::seeds(20000); ++seed) {
    const Philox random(seed);
    SimulatedOptions simulated;
    simulated.seed = seed;
    const uint64_t faults = 1 + random.u64(0) % 24;
    for (uint64_t i = 0; i < faults; ++i) {
      const auto draw = random.at(1 + i);
      simulated.faults.push_back({kKinds[draw[0] % kKinds.size()], draw[1] % 64, 1 + draw[2] % 3});
    }
    const Result result = run(a_, b_, memory_, simulated);
    ASSERT_EQ(result.wrong_silently, 0) << "seed " << seed;
    ASSERT_EQ(result.untyped, 0) << "seed " << seed;
    ASSERT_TRUE(result.in_time) << "seed " << seed;
    ASSERT_LE(result.slowest_s, kRequestLimitS) << "seed " << seed;
    ASSERT_EQ(result.right + result.read_errors, static_cast<int>(kTransfers)) << "seed " << seed;
    injected += result.injected;
    right += result.right;
  }
  EXPECT_GT(right, 0);
  RecordProperty("injected", std::to_string(injected));
  std::printf("%llu faults in %llu runs, 0 silent\n", static_cast<unsigned long long>(injected),
              static_cast<unsigned long long>(seed - 1));
}

}  // namespace
}  // namespace strata::io
