// SPDX-License-Identifier: Apache-2.0
// Collectives of a world of one, of ranks as threads, and of ranks that exchange: where bytes go,
// that sums have the same bits in every call pattern, and how calls end when a rank aborts, is
// late, or makes another call.
#include "engine/comm/group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/comm/group_self.h"
#include "engine/comm/ordered_sum.h"
#include "tests/comm/group_ranks.h"

namespace strata::comm {
namespace {

// A value that depends on rank, call and element, with exponents that make fp32 sums depend on
// order.
float sample(int rank, uint64_t call, int64_t i) {
  const uint64_t bits =
      Philox(17).u64(static_cast<uint64_t>(i), call * 64 + static_cast<uint64_t>(rank));
  const int exponent = static_cast<int>(bits % 24) - 40;
  return std::ldexp(static_cast<float>(static_cast<int32_t>(bits >> 32)), exponent);
}

std::vector<float> contribution(int rank, uint64_t call, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = sample(rank, call, i);
  return values;
}

// One addition after the other, of what is sent; with several machines of `near` ranks, of sums.
std::vector<float> sum_in_rank_order(int size, int near, uint64_t call, int64_t count,
                                     Payload payload = Payload::kF32) {
  const auto add = [](std::vector<float>& sum, const std::vector<float>& more) {
    std::ranges::transform(sum, more, sum.begin(), std::plus<>());
  };
  std::vector<float> sum;
  for (int machine = 0; machine < size; machine += near) {
    std::vector<float> own;
    for (int r = machine; r < machine + near; ++r) {
      std::vector<float> sent = contribution(r, call, count);
      round_to(payload, sent.data(), count);
      r == machine ? own.swap(sent) : add(own, sent);
    }
    if (near < size) round_to(payload, own.data(), count);
    machine == 0 ? sum.swap(own) : add(sum, own);
  }
  return sum;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

TEST_P(GroupOf, GatherFillsTheOtherRanksParts) {
  run_ranks(3, [](Group& group) {
    std::vector<int32_t> whole(6, -1);
    whole[static_cast<size_t>(2 * group.rank())] = 10 * group.rank();
    whole[static_cast<size_t>(2 * group.rank() + 1)] = 10 * group.rank() + 1;
    group.gather(whole.data(), 8);
    EXPECT_EQ(whole, (std::vector<int32_t>{0, 1, 10, 11, 20, 21}));
  });
}

TEST_P(GroupOf, GatherOfChunksKeepsEachChunksPartsInRankOrder) {
  run_ranks(2, [](Group& group) {
    std::vector<int32_t> whole(6, -1);  // a chunk of 2 + 2 elements, then one of 1 + 1
    const auto r = static_cast<size_t>(group.rank());
    whole[2 * r] = whole[2 * r + 1] = group.rank() + 1;
    whole[4 + r] = group.rank() + 7;
    const GatherRange ranges[] = {{whole.data(), 8}, {whole.data() + 4, 4}};
    group.gather_chunks(ranges);
    EXPECT_EQ(whole, (std::vector<int32_t>{1, 1, 2, 2, 7, 8}));
  });
}

TEST_P(GroupOf, SumsFollowRankOrderAndNotValue) {
  // (2^24 + 1) + 1 is 2^24 in fp32, while (1 + 1) + 2^24 is 2^24 + 2.
  run_ranks(3, [](Group& group) {
    std::vector<float> whole(3, group.rank() == 0 ? 0x1p24f : 1.0f);
    group.reduce({whole.data(), 1, whole.data() + group.rank()});
    EXPECT_EQ(whole[static_cast<size_t>(group.rank())], 0x1p24f);

    std::vector<float> other(3, group.rank() == 2 ? 0x1p24f : 1.0f);
    group.reduce({other.data(), 1, other.data() + group.rank()});
    EXPECT_EQ(other[static_cast<size_t>(group.rank())], 0x1p24f + 2);
  });
}

TEST_P(GroupOf, ReduceTouchesTheOwnPartAlone) {
  run_ranks(2, [](Group& group) {
    std::vector<float> whole = {1, 2, 3, 4};
    group.reduce({whole.data(), 2, whole.data() + 2 * group.rank()});
    EXPECT_EQ(whole, group.rank() == 0 ? (std::vector<float>{2, 4, 3, 4})
                                       : (std::vector<float>{1, 2, 6, 8}));
  });
}

TEST_P(GroupOf, EveryCallPatternGivesTheBitsOfTheOrderedSum) {
  for (int size = 1; size <= 5; ++size) {
    run_ranks(size, [size](Group& group) {
      for (uint64_t call = 0; call < 12; ++call) {
        const int64_t part = static_cast<int64_t>(Philox(3).u64(call, 1) % 5000);
        const int64_t count = part * size;
        const std::vector<float> expected =
            sum_in_rank_order(size, near_of(GetParam(), size), call, count);
        const int64_t first = group.rank() * part;

        std::vector<float> reduced = contribution(group.rank(), call, count);
        group.reduce({reduced.data(), part, reduced.data() + first});
        group.gather(reduced.data(), part * 4);
        EXPECT_TRUE(same_bits(reduced, expected)) << "size " << size << " call " << call;

        std::vector<float> apart = contribution(group.rank(), call, count);
        std::vector<float> own(static_cast<size_t>(part));
        group.reduce({apart.data(), part, own.data()});
        EXPECT_TRUE(
            same_bits(own, std::span(expected).subspan(static_cast<size_t>(first), own.size())));
        EXPECT_TRUE(same_bits(apart, contribution(group.rank(), call, count)));

        std::vector<float> all = contribution(group.rank(), call, count);
        group.all_reduce_sum(all.data(), count);
        EXPECT_TRUE(same_bits(all, expected)) << "size " << size << " call " << call;
      }
    });
  }
}

TEST_P(GroupOf, RoundedSumsHaveTheSameBitsInEveryCallPattern) {
  for (const Payload payload : {Payload::kBF16, Payload::kMxInt8}) {
    for (int size = 2; size <= 5; ++size) {
      run_ranks(size, [=](Group& group) {
        for (uint64_t call = 0; call < 12; ++call) {
          const auto part = static_cast<int64_t>(Philox(3).u64(call, 1) % 160) * 32;
          const int64_t count = part * size;
          const std::vector<float> expected =
              sum_in_rank_order(size, near_of(GetParam(), size), call, count, payload);
          std::vector<float> whole = contribution(group.rank(), call, count);
          std::vector<float> own(static_cast<size_t>(part));
          group.reduce_chunks(std::array{ReduceRange{whole.data(), part, own.data()}}, payload);
          EXPECT_TRUE(same_bits(own, std::span(expected).subspan(
                                         static_cast<size_t>(group.rank() * part), own.size())));
          std::vector<float> all = contribution(group.rank(), call, count);
          group.all_reduce_sum(all.data(), count, payload);
          EXPECT_TRUE(same_bits(all, expected)) << name_of(payload) << ", " << size << " ranks";
        }
      });
    }
  }
}

TEST_P(GroupOf, SumsOfSizesThatRanksDoNotDivide) {
  run_ranks(4, [](Group& group) {
    for (const int64_t count : {1, 2, 3, 5, 4097, 1'100'003}) {
      std::vector<float> all = contribution(group.rank(), 9, count);
      group.all_reduce_sum(all.data(), count);
      EXPECT_TRUE(same_bits(all, sum_in_rank_order(4, near_of(GetParam(), 4), 9, count))) << count;
      all = contribution(group.rank(), 9, count);
      group.all_reduce_sum(all.data(), count, Payload::kBF16);
      EXPECT_TRUE(
          same_bits(all, sum_in_rank_order(4, near_of(GetParam(), 4), 9, count, Payload::kBF16)))
          << count;
    }
    float odd[] = {std::nanf(""), -HUGE_VALF, 0x1.01p0f};
    group.all_reduce_sum(odd, 3, Payload::kBF16);
    EXPECT_TRUE(std::isnan(odd[0]) && odd[1] == -HUGE_VALF && odd[2] == 4.0f);
    double norms[] = {1.0 + group.rank(), 0x1p60};
    group.all_reduce_sum(norms, 2);
    EXPECT_EQ(norms[0], 10.0);
    EXPECT_EQ(norms[1], 0x1p62);
  });
}

TEST_P(GroupOf, BroadcastAllToAllAndMessages) {
  run_ranks(3, [](Group& group) {
    const int r = group.rank();
    int64_t word = r + 100;
    group.broadcast(&word, sizeof word, 2);
    EXPECT_EQ(word, 102);

    const std::vector<int32_t> send = {10 * r, 10 * r + 1, 10 * r + 2};
    std::vector<int32_t> receive(3);
    group.all_to_all({send.data(), receive.data(), 4});
    EXPECT_EQ(receive, (std::vector<int32_t>{r, 10 + r, 20 + r}));

    int32_t token = r == 0 ? 5 : -1;  // once around the ring, one added at each hop
    if (r > 0) group.recv({&token, 4, r - 1, 7});
    if (r > 0) token += 1;
    group.send({&token, 4, (r + 1) % 3, 7});
    if (r == 0) group.recv({&token, 4, 2, 7});
    EXPECT_EQ(token, r == 0 ? 7 : 5 + r);
  });
}

TEST_P(GroupOf, RandomCallsUnderLoad) {
  constexpr int kSize = 4;
  run_ranks(kSize, [](Group& group) {
    const Philox random(99);
    for (uint64_t call = 0; call < 400; ++call) {
      const auto draw = random.at(call);
      const int64_t part = draw[1] % 600;
      std::vector<float> whole = contribution(group.rank(), call, part * kSize);
      switch (draw[0] % 4) {
        case 0:
          group.all_reduce_sum(whole.data(), part * kSize);
          ASSERT_TRUE(same_bits(
              whole, sum_in_rank_order(kSize, near_of(GetParam(), kSize), call, part * kSize)))
              << call;
          break;
        case 1:
          group.gather(whole.data(), part * 4);
          for (int64_t i = 0; i < part * kSize; ++i) {
            ASSERT_EQ(whole[static_cast<size_t>(i)], sample(static_cast<int>(i / part), call, i))
                << call;
          }
          break;
        case 2:
          group.broadcast(whole.data(), part * 4, static_cast<int>(draw[2] % kSize));
          ASSERT_TRUE(same_bits(std::span(whole).first(static_cast<size_t>(part)),
                                contribution(static_cast<int>(draw[2] % kSize), call, part)));
          break;
        default:
          group.barrier();
      }
    }
  });
}

TEST_P(GroupOf, BarrierHoldsUntilTheLastRankComes) {
  test::SharedCount came;
  run_ranks(4, [&](Group& group) {
    for (int round = 1; round <= 50; ++round) {
      came.add();
      group.barrier();
      EXPECT_GE(came.value(), 4 * round);
    }
  });
}

TEST_P(GroupOf, AbortWakesAllAndNamesTheRank) {
  const auto errors = run_ranks(3, {}, [](Group& group) {
    if (group.rank() == 1) {
      group.abort("spill: /scratch/0: no space left");
      return;
    }
    std::vector<float> whole(3);
    group.all_reduce_sum(whole.data(), 3);
  });
  // A rank may hear of it before its call.
  for (const std::string& error : {errors[0], errors[2]}) {
    EXPECT_TRUE(error.starts_with("peer: ")) << error;
    EXPECT_TRUE(error.ends_with(": rank 1 stopped: spill: /scratch/0: no space left")) << error;
  }
  EXPECT_EQ(errors[1], "");
}

TEST_P(GroupOf, AbortWakesASenderAndAReceiver) {
  const auto errors = run_ranks(3, {}, [](Group& group) {
    std::vector<char> words(64 << 20);  // a send of fewer may end before its receiver comes
    if (group.rank() == 0) group.send({words.data(), 64 << 20, 2, 0});
    if (group.rank() == 1) group.recv({words.data(), 64 << 20, 2, 0});
    if (group.rank() == 2) group.abort("interrupted");
  });
  EXPECT_TRUE(errors[0].ends_with(": rank 2 stopped: interrupted")) << errors[0];
  EXPECT_TRUE(errors[1].ends_with(": rank 2 stopped: interrupted")) << errors[1];
}

TEST(GroupLocal, AfterAnAbortEveryLaterCallThrows) {
  const auto groups = make_local_groups(2);
  groups[0]->abort("first");
  groups[1]->abort("second");
  for (int i = 0; i < 2; ++i) {
    try {
      groups[1]->barrier();
      FAIL() << "a call after an abort returned";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPeer);
      EXPECT_STREQ(error.what(), "barrier: rank 0 stopped: first");
    }
  }
}

TEST_P(GroupOf, AbortsAtAnyMomentLeaveNobodyWaitingAndNoBufferInUse) {
  for (int round = 0; round < 60; ++round) {
    std::atomic<int> calls{0};
    const auto errors = run_ranks(3, {}, [&](Group& group) {
      std::jthread
          aborter;  // of a rank that fails elsewhere while the others are in any phase of a call
      if (group.rank() == round % 3) {
        aborter = std::jthread([&] {
          while (calls.load() < round) std::this_thread::yield();
          group.abort("enough");
        });
      }
      for (;;) {
        // Freed by the unwinding of an abort: a rank that still read it would be seen by a
        // sanitizer.
        std::vector<float> whole = contribution(group.rank(), 1, 3000);
        group.all_reduce_sum(whole.data(), 3000);
        calls.fetch_add(1);
        group.gather(whole.data(), 4000);
        calls.fetch_add(1);
      }
    });
    for (const std::string& error : errors)
      EXPECT_NE(error.find("stopped: enough"), error.npos) << error;
  }
}

TEST_P(GroupOf, DeadlineNamesWhoIsMissing) {
  test::SharedCount gave_up;
  const auto errors = run_ranks(4, {.deadline_s = 0.2}, [&](Group& group) {
    if (group.rank() == 1 || group.rank() == 3) {
      while (gave_up.value() < 2) std::this_thread::yield();
      // What the others had sent may still complete one, before the end of the job is known here.
      while (true) group.barrier();
    }
    try {
      group.barrier();
    } catch (const Error&) {
      gave_up.add();
      throw;
    }
  });
  const bool first = errors[0].starts_with("deadline:");
  EXPECT_TRUE(first || errors[2].starts_with("deadline:")) << errors[0] << "\n" << errors[2];
  EXPECT_NE(errors[first ? 0 : 2].find("barrier: rank 1, 3: did not come within 0.2 s"),
            std::string::npos)
      << errors[first ? 0 : 2];
  EXPECT_TRUE(errors[1].starts_with("peer: barrier: rank ")) << errors[1];
}

TEST_P(GroupOf, DeadlineOfAMessageNamesThePeer) {
  const auto errors = run_ranks(2, {.deadline_s = 0.02}, [](Group& group) {
    int32_t word = 0;
    if (group.rank() == 0) group.recv({&word, 4, 1, 0});
  });
  EXPECT_TRUE(errors[0].starts_with("deadline: recv: rank 1: did not come")) << errors[0];
}

TEST_P(GroupOf, DifferentCallsAreRefusedOnAllRanks) {
  const auto names = run_ranks(2, {}, [](Group& group) {
    std::vector<float> whole(4);
    if (group.rank() == 0) group.gather(whole.data(), 8);
    if (group.rank() == 1) group.barrier();
  });
  EXPECT_NE(names[0].find("rank 1: called barrier of size 0 where rank 0 called gather of size 8"),
            std::string::npos)
      << names[0];
  EXPECT_EQ(names[0], names[1]);

  const auto sizes = run_ranks(2, {}, [](Group& group) {
    std::vector<float> whole(4);
    group.all_reduce_sum(whole.data(), 3 + group.rank());
  });
  EXPECT_NE(sizes[1].find("size 4"), std::string::npos) << sizes[1];

  const auto tags = run_ranks(2, {}, [](Group& group) {
    int32_t word = 0;
    if (group.rank() == 0) group.send({&word, 4, 1, 3});
    if (group.rank() == 1) group.recv({&word, 4, 0, 4});
  });
  EXPECT_TRUE(tags[1].starts_with("peer: recv: rank 0: sent 4 B with tag 3")) << tags[1];
}

// Values alone: what calls say of themselves is not among them.
TEST_P(GroupOf, CountsWhatItSends) {
  run_ranks(3, [](Group& group) {
    int64_t due = 0;
    const auto expect = [&](const char* call, int64_t more) {
      due += more;
      EXPECT_EQ(group.sent().all(), due) << call << ", rank " << group.rank();
    };
    std::vector<float> values(40), out(40);
    group.barrier();
    expect("barrier", 0);
    group.gather(values.data(), 8);
    expect("gather", 2 * 8);
    const ReduceRange range = {values.data(), 5, out.data()};
    group.reduce(range);
    expect("reduce", 2 * 5 * 4);
    group.reduce_chunks({&range, 1}, Payload::kBF16);
    expect("reduce of bf16", 2 * 5 * 2);
    const int64_t own = group.rank() < 2 ? 3 : 1;  // of seven
    group.all_reduce_sum(values.data(), 7);
    expect("sum", (7 - own) * 4 + 2 * own * 4);
    group.all_reduce_sum(values.data(), 7, Payload::kBF16);
    expect("sum of bf16", (7 - own) * 2 + 2 * own * 4);
    std::vector<float> blocks(4 * 32);
    const int64_t own_blocks = group.rank() < 2 ? 2 : 0;  // of four
    group.all_reduce_sum(blocks.data(), 4 * 32, Payload::kMxInt8);
    expect("sum of int8", (4 - own_blocks) * 33 + 2 * own_blocks * 32 * 4);
    group.broadcast(values.data(), 12, 1);
    expect("broadcast", group.rank() == 1 ? 2 * 12 : 0);
    group.all_to_all({values.data(), out.data(), 4});
    expect("all to all", 2 * 4);
    if (group.rank() == 0) group.send({values.data(), 20, 2, 1});
    if (group.rank() == 2) group.recv({values.data(), 20, 0, 1});
    expect("message", group.rank() == 0 ? 20 : 0);
  });
}

std::string name_of(const testing::TestParamInfo<Backend>& given) {
  return std::array{"local", "tcp", "memory", "mixed", "mpi"}.at(static_cast<size_t>(given.param));
}

INSTANTIATE_TEST_SUITE_P(Backends, GroupOf,
                         testing::Values(Backend::kLocal, Backend::kTcp, Backend::kMemory,
                                         Backend::kMixed),
                         name_of);
// Where mpirun has started this process: GroupMpi.PassesTheTestsOfAllGroups.
INSTANTIATE_TEST_SUITE_P(UnderMpirun, GroupOf,
                         testing::ValuesIn(test::MpiWorld::is_here() ? std::vector{Backend::kMpi}
                                                                     : std::vector<Backend>()),
                         name_of);

TEST(GroupSelf, OneRankKeepsItsValues) {
  const auto group = make_self_group();
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->size(), 1);
  std::vector<float> whole = {1.5f, -2.0f};
  std::vector<float> out(2);
  group->reduce({whole.data(), 2, out.data()});
  EXPECT_EQ(out, whole);
  group->all_reduce_sum(whole.data(), 2);
  group->gather(whole.data(), 8);
  group->broadcast(whole.data(), 8, 0);
  group->barrier();
  std::vector<float> received(2);
  group->all_to_all({whole.data(), received.data(), 8});
  EXPECT_EQ(received, (std::vector<float>{1.5f, -2.0f}));
}

}  // namespace
}  // namespace strata::comm
