// SPDX-License-Identifier: Apache-2.0
// What devices that send each other memory can fail with, over a fake NCCL: each is an Error{kPeer}
// that names the op, where there is one, and no rank waits for ever for another.
#include <atomic>
#include <chrono>

#include "tests/cuda/peers_rank.h"

namespace strata {
namespace {

using test::await;
using test::expect_all_well;
using test::kRoom;
using test::make_id;
using test::on_ranks;
using test::Rank;
using test::said_by;

TEST(CudaPeers, OfOneDeviceAreRefused) {
  test::FakeGpu::configure("devices=2");
  const kernels::PeersId id = make_id();
  const auto said = on_ranks(2, [&](int own) { Rank(own, 2, 1).join(id); });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(said[static_cast<size_t>(rank)],
              "cuda: NCCL: rank " + std::to_string(rank) +
                  " of 2 on device 1, joining: invalid usage: Duplicate GPU detected : rank 0 and "
                  "rank 1 both on CUDA device 1 (give each rank a GPU of its own, or give "
                  "--device-exchange host)");
  }
}

struct GaveUp {};

TEST(CudaPeers, WaitForARankUntilTheCallerGivesUp) {
  test::FakeGpu::configure("devices=2 absent@2");
  const kernels::PeersId id = make_id();
  std::atomic<int> gave_up = 0;
  expect_all_well(on_ranks(2, [&](int own) {
    Rank rank(own, 2, own);
    int asked = 0;
    try {
      rank.join(id, [&] { asked == 5 ? throw GaveUp() : ++asked; });
    } catch (const GaveUp&) {
      ++gave_up;
    }
    EXPECT_EQ(rank.peers, nullptr);
  }));
  EXPECT_EQ(gave_up.load(), 2);
  EXPECT_EQ(test::FakeGpu::calls("ncclCommAbort"), 2);
}

// Also in an exchange, which is not on the stream before both ranks are there. Then the group ends.
TEST(CudaPeers, AwaitTheFirstExchangeUntilTheCallerGivesUp) {
  test::FakeGpu::configure("devices=2");
  const kernels::PeersId id = make_id();
  std::atomic<bool> joined[2] = {};
  expect_all_well(on_ranks(2, [&](int own) {
    Rank rank(own, 2, own);
    rank.join(id, [&] {
      if (joined[own]) throw GaveUp();
    });
    joined[own] = true;
    if (own == 1) return;
    EXPECT_THROW((void)rank.pass_on(0, kRoom), GaveUp);
    EXPECT_THROW(rank.peers->check(), Error);
  }));
  EXPECT_EQ(test::FakeGpu::calls("ncclCommAbort"), 1);
}

// One rank's command never ends, and the other's waits for it.
TEST(CudaPeers, ThatAreAbortedEndTheirExchanges) {
  test::FakeGpu::configure("devices=2 stuck@1");
  const kernels::PeersId id = make_id();
  std::unique_ptr<Rank> ranks[2];
  expect_all_well(on_ranks(2, [&](int own) {
    ranks[own] = std::make_unique<Rank>(own, 2, own);
    ranks[own]->join(id);
    EXPECT_EQ(ranks[own]->pass_on(0, kRoom), 1);
  }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (const auto& rank : ranks) EXPECT_EQ(rank->queue->completed(), 0);
  for (const auto& rank : ranks) rank->peers->abort();
  for (const auto& rank : ranks) {
    await(*rank->queue, 1);
    rank->peers->abort();
    EXPECT_SAYS(said_by([&] { rank->peers->check(); }), "the group was aborted (see ");
    EXPECT_SAYS(said_by([&] { (void)rank->pass_on(0, kRoom); }),
                "cuda: hand over on comm: NCCL: rank ");
  }
  EXPECT_EQ(test::FakeGpu::calls("ncclCommAbort"), 2);
  EXPECT_EQ(test::FakeGpu::calls("ncclCommDestroy"), 0);
}

// The thread that exchanges waits for a rank that is late.
TEST(CudaPeers, ThatAreAbortedByAnotherThreadEndTheCall) {
  test::FakeGpu::configure("devices=2");
  const kernels::PeersId id = make_id();
  std::atomic<bool> waits = false;
  std::unique_ptr<Rank> ranks[2];
  expect_all_well(on_ranks(2, [&](int own) {
    ranks[own] = std::make_unique<Rank>(own, 2, own);
    ranks[own]->join(id, [&, own] { waits = waits || ranks[own]->peers != nullptr; });
  }));
  std::string said;
  std::jthread issuing([&] { said = said_by([&] { (void)ranks[0]->pass_on(0, kRoom); }); });
  while (!waits) std::this_thread::yield();
  ranks[0]->peers->abort();
  issuing.join();
  EXPECT_EQ(said,
            "cuda: hand over on comm: NCCL: rank 0 of 2 on device 0: the group was aborted (see "
            "the first error of its ranks)");
}

// Two ranks as an engine has them: where one fails, the others stop waiting and abort.
std::vector<std::string> session(const std::string& settings) {
  test::FakeGpu::configure("devices=2 " + settings);
  std::atomic<bool> failed = false;
  kernels::PeersId id = {};
  const std::string refused = said_by([&] { id = make_id(); });
  if (!refused.empty()) return {refused};
  return on_ranks(2, [&](int own) {
    Rank rank(own, 2, own);
    try {
      rank.join(id, [&] {
        if (failed) throw Error(ErrorCode::kPeer, "another rank failed");
      });
      const int64_t op = rank.pass_on(0, kRoom);
      while (rank.queue->completed() < op) {
        rank.queue->sleep(op, 1e-3);
        rank.peers->check();
        if (failed) rank.peers->abort();
      }
      rank.peers->check();
    } catch (...) {
      failed = true;
      throw;
    }
  });
}

int count_of(const std::vector<std::string>& said, const std::string& words) {
  return static_cast<int>(std::ranges::count_if(
      said, [&](const std::string& one) { return one.find(words) != one.npos; }));
}

TEST(CudaPeers, OfAGroupWhoseExchangeFailsLaterNameTheOp) {
  const std::vector<std::string> said = session("exchanging@1");
  EXPECT_EQ(count_of(said, "cuda: hand over on comm: NCCL: rank "), 1) << said[0] << said[1];
  EXPECT_EQ(count_of(said, "exchange: remote process exited or there was a network error"), 1);
  EXPECT_EQ(count_of(said, "(see whether another rank ended"), 1);
}

// The id, and of each rank: to join, to begin a group, to send, to receive, and to end the group.
TEST(CudaPeers, ReportAnyCallThatFails) {
  constexpr int kCalls = 1 + 2 * 5;
  for (int call = 1; call <= kCalls + 2; ++call) {
    SCOPED_TRACE("call " + std::to_string(call));
    const std::vector<std::string> said = session("nccl@" + std::to_string(call));
    if (call > kCalls) {
      expect_all_well(said);
      EXPECT_EQ(test::FakeGpu::calls("ncclCommDestroy"), 1) << "the other could not be finalized";
      continue;
    }
    EXPECT_GE(count_of(said, ": unhandled system error: the fault nccl in nccl"), 1);
    if (call > 3) {
      EXPECT_GE(count_of(said, "cuda: hand over on comm: NCCL: rank "), 1);
    }
  }
}

// What the first of two ranks says where it sends that.
std::string said_of_sending(void* data, int peer) {
  const kernels::PeersId id = make_id();
  std::string said;
  expect_all_well(on_ranks(2, [&](int own) {
    Rank rank(own, 2, own);
    rank.join(id);
    if (own == 1) return;
    said = said_by([&] { (void)rank.exchange({{data, kRoom, peer}}, {}); });
  }));
  return said;
}

TEST(CudaPeers, SendOnlyWhatIsTheirs) {
  test::FakeGpu::configure("devices=2");
  const Rank same(0, 1, 0), other(0, 1, 1);
  std::vector<std::byte> host(kRoom);
  for (void* data : {host.data(), other.at(0), same.at(Rank::kBytes - 1)}) {
    EXPECT_SAYS(said_of_sending(data, 1), "ncclSend : the buffer is not memory of device 0");
  }
  const std::string said = said_of_sending(same.at(0), 2);
  EXPECT_SAYS(said, "cuda: hand over on comm: NCCL: rank 0 of 2 on device 0, exchange: invalid ");
  EXPECT_SAYS(said, "invalid root 2");
}

TEST(CudaPeers, ThatDisagreeAboutBytesFailAfterwards) {
  test::FakeGpu::configure("devices=2");
  const kernels::PeersId id = make_id();
  const auto said = on_ranks(2, [&](int own) {
    Rank rank(own, 2, own);
    rank.join(id);
    if (own == 0) {
      await(*rank.queue, rank.exchange({{rank.at(0), 100, 1}}, {}));
    } else {
      await(*rank.queue, rank.exchange({}, {{rank.at(0), 200, 0}}));
      rank.peers->check();
    }
  });
  EXPECT_EQ(said[0], "");
  EXPECT_SAYS(said[1], "rank 0 sent 100 bytes, and rank 1 receives 200");
}

}  // namespace
}  // namespace strata
