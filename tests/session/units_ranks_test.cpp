// SPDX-License-Identifier: Apache-2.0
// Declared units whose state several sessions share, each a rank with data of its own.
#include <array>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "tests/session/session_fixture.h"

namespace strata::test {
namespace {

constexpr int64_t kSizes[] = {150016, 4099};
constexpr int kOfModel = 2;

using Planes = std::map<std::pair<int, int>, std::vector<float>>;  // by plane and unit

class UnitRanks : public SessionTest {
 protected:
  // `more`: members of the options' JSON object.
  Session open(int ranks, const std::string& more = "") {
    const std::string options =
        "{\"recipe\": \"fp32\", \"threads\": 1, \"ranks\": " + std::to_string(ranks) + more + "}";
    return Session::open_units(
        {{"first", {{"a", {2, kSizes[0] / 2}}}}, {"second", {{"b", {kSizes[1]}}}}}, options,
        sinks());
  }

  // One thread for each rank, with a session that has joined the others.
  void run(int ranks, const std::string& more, const std::function<void(int, Session&)>& body) {
    const RankPlace place = {.directory = directory_ + "/meet" + std::to_string(++meetings_)};
    run_at(
        ranks, more, [&](int) { return place; }, body);
  }
  void run_at(int ranks, const std::string& more, const std::function<RankPlace(int)>& place_of,
              const std::function<void(int, Session&)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          Session session = open(ranks, more);
          RankPlace place = place_of(rank);
          place.rank = rank;
          session.join(place);
          body(rank, session);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::string on_drives() {
    return ", \"host_memory\": " + std::to_string(9 << 19) + ", \"nvme\": [\"" + directory_ +
           "/nvme\"]";
  }

  static void fill(int unit, int, int64_t first, std::span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(static_cast<float>(first + static_cast<int64_t>(i) + 1000 * unit));
    }
  }
  // A gradient of one of `shares` equal parts of a sample, all of which add up to the same.
  static void pass(Session& session, double share) {
    for (int unit = 0; unit < kOfModel; ++unit) {
      session.acquire(unit, UnitPass::kForward);
      session.release();
    }
    for (int unit = kOfModel; unit-- > 0;) {
      const UnitUse use = session.acquire(unit, UnitPass::kBackward);
      const auto* weights = static_cast<const float*>(use.weights);
      for (int64_t i = 0; i < kSizes[unit]; ++i) {
        use.gradient[i] = static_cast<float>(share) * (weights[i] + 0.25f);
      }
      session.release();
    }
  }
  static StepResult step(Session& session, double share) {
    session.begin();
    pass(session, share);
    return session.end({.lr = 0.01, .clip = 1.0});
  }
  static Planes read(Session& session) {
    Planes planes;
    for (const StatePlane plane :
         {StatePlane::kWeights, StatePlane::kExpAvg, StatePlane::kExpAvgSq}) {
      session.read(plane, [&](int unit, int tensor, int64_t first, std::span<const float> values) {
        EXPECT_EQ(tensor, 0);
        auto& whole = planes[{static_cast<int>(plane), unit}];
        whole.resize(static_cast<size_t>(kSizes[unit]), NAN);
        std::ranges::copy(values, whole.begin() + first);
      });
    }
    return planes;
  }
  Planes state_of_one() {
    Session session = open(1);
    session.load(fill);
    for (int i = 0; i < 3; ++i) step(session, 1.0);
    return read(session);
  }

  int meetings_ = 0;
};

// Shares of one half and one quarter are exact, so sums over ranks have the bits of one rank.
TEST_F(UnitRanks, HaveTheStateOfOneRank) {
  const Planes one = state_of_one();
  for (const int ranks : {2, 4}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::string& place : {std::string(), on_drives()}) {
        const std::string more = ", \"zero_stage\": " + std::to_string(stage) + place;
        run(ranks, more, [&](int rank, Session& session) {
          session.load(fill);
          for (int i = 0; i < 3; ++i) EXPECT_TRUE(step(session, 1.0 / ranks).applied);
          EXPECT_EQ(read(session), one) << "rank " << rank << more;
        });
      }
    }
  }
}

TEST_F(UnitRanks, CopiesOfShardsHaveTheStateOfOneRank) {
  const Planes one = state_of_one();
  run(4, ", \"shard_ranks\": 2", [&](int rank, Session& session) {
    session.load(fill);
    for (int i = 0; i < 3; ++i) step(session, 0.25);
    EXPECT_EQ(read(session), one) << rank;
  });
}

TEST_F(UnitRanks, GoOnFromCheckpointsOfOtherNumbersOfRanks) {
  const Planes one = state_of_one();
  const std::string saves = directory_ + "/checkpoints";
  std::vector<std::string> paths(3);
  run(3, on_drives(), [&](int rank, Session& session) {
    session.load(fill);
    step(session, 1.0 / 3);
    paths[static_cast<size_t>(rank)] = session.save(saves);
  });
  EXPECT_NE(paths[0], "");
  EXPECT_EQ(paths[0], paths[1]);
  EXPECT_EQ(paths[0], paths[2]);
  run(2, "", [&](int, Session& session) {
    session.load(paths[0]);
    for (int i = 0; i < 2; ++i) step(session, 0.5);
    const Planes planes = read(session);
    for (const auto& [which, values] : one) {
      const std::vector<float>& found = planes.at(which);
      for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(found[i], values[i], 1e-6);
    }
  });
}

// One names a directory that is no checkpoint's: nothing has changed on either.
TEST_F(UnitRanks, ADirectoryThatOneRefusesIsRefusedByAll) {
  fs::create_directories(directory_ + "/run/checkpoints");
  std::ofstream(directory_ + "/run/run.json") << "{}";
  run(2, "", [&](int rank, Session& session) {
    session.load(fill);
    step(session, 0.5);
    const std::string right = directory_ + "/checkpoints";
    std::string text;
    EXPECT_EQ(
        code_of([&] { session.save(rank == 1 ? directory_ + "/run/checkpoints" : right); }, &text),
        ErrorCode::kConfig);
    EXPECT_NE(text.find(rank == 1 ? "run" : "rank 1 cannot"), text.npos) << text;
    EXPECT_NE(session.save(right), "");
  });
}

TEST_F(UnitRanks, ACheckpointThatCannotBeBegunChangesNothing) {
  std::ofstream(directory_ + "/file") << "no directory";
  run(2, "", [&](int rank, Session& session) {
    session.load(fill);
    step(session, 0.5);
    const ErrorCode code = code_of([&] { session.save(directory_ + "/file/below"); });
    EXPECT_EQ(code == ErrorCode::kPeer, rank == 1);
    EXPECT_NE(session.save(directory_ + "/checkpoints"), "");
    EXPECT_TRUE(step(session, 0.5).applied);
  });
}

TEST_F(UnitRanks, AStepThatOneDiscardsIsDiscardedByAll) {
  run(2, "", [&](int rank, Session& session) {
    session.load(fill);
    const Planes before = read(session);
    session.begin();
    if (rank == 0) {
      session.acquire(0, UnitPass::kForward);
      session.discard();
    } else {
      pass(session, 0.5);
      const StepResult result = session.end({.lr = 0.01});
      EXPECT_FALSE(result.applied);
      EXPECT_EQ(result.step, 0);
    }
    EXPECT_EQ(read(session), before);
    EXPECT_TRUE(step(session, 0.5).applied);
    EXPECT_EQ(session.statistics().updates, 1);
  });
}

TEST_F(UnitRanks, ANumberThatIsNotFiniteOnOneKeepsAllFromUpdating) {
  run(2, "", [&](int rank, Session& session) {
    session.load(fill);
    EXPECT_FALSE(step(session, rank == 0 ? 0.5 : INFINITY).applied);
    EXPECT_TRUE(step(session, 0.5).applied);
  });
}

TEST_F(UnitRanks, SettingsThatDifferAreAnErrorOnAll) {
  run(2, "", [&](int rank, Session& session) {
    session.load(fill);
    session.begin();
    pass(session, 0.5);
    std::string text;
    EXPECT_EQ(code_of([&] { session.end({.lr = 0.01 * (1 + rank)}); }, &text), ErrorCode::kPeer);
    EXPECT_NE(text.find("rank 1 ends it with other settings than rank 0"), text.npos) << text;
    EXPECT_EQ(code_of([&] { session.begin(); }), ErrorCode::kUsage);
  });
}

TEST_F(UnitRanks, ARankThatFailsEndsTheOthersWithItsReason) {
  run(2, "", [&](int rank, Session& session) {
    const auto failing = [&](int unit, int tensor, int64_t first, std::span<float> values) {
      if (rank == 1 && unit == 1) throw Error(ErrorCode::kIo, "no weights today");
      fill(unit, tensor, first, values);
    };
    std::string text;
    const ErrorCode code = code_of(
        [&] {
          session.load(failing);
          step(session, 0.5);
        },
        &text);
    EXPECT_EQ(code, rank == 1 ? ErrorCode::kIo : ErrorCode::kPeer) << text;
    EXPECT_NE(text.find("no weights today"), text.npos) << text;
    EXPECT_EQ(code_of([&] { session.load(fill); }, &text), ErrorCode::kUsage) << text;
    session.close();
    session.join({.rank = rank, .directory = directory_ + "/again"});
    session.load(fill);
    EXPECT_TRUE(step(session, 0.5).applied);
  });
}

// Nothing has changed then, and all can go on.
TEST_F(UnitRanks, CallsThatDifferAreRefusedOnAll) {
  run(2, "", [&](int rank, Session& session) {
    session.load(fill);
    std::string text;
    const ErrorCode code = code_of(
        [&] {
          if (rank == 0) {
            read(session);
          } else {
            session.begin();
          }
        },
        &text);
    EXPECT_EQ(code, ErrorCode::kUsage);
    EXPECT_NE(text.find(rank == 0 ? "read: rank 1 calls begin" : "begin: rank 0 calls read"),
              text.npos)
        << text;
    EXPECT_TRUE(step(session, 0.5).applied);
  });
}

// The other may still begin, or compute.
TEST_F(UnitRanks, ARankThatClosesWithinAStepEndsTheOthers) {
  run(2, "", [&](int rank, Session& session) {
    session.load(fill);
    if (rank == 0) {
      session.begin();
      return session.close();
    }
    std::string text;
    EXPECT_EQ(code_of([&] { step(session, 0.5); }, &text), ErrorCode::kPeer);
    EXPECT_NE(text.find("unloaded within a step"), text.npos) << text;
    EXPECT_EQ(code_of([&] { session.join({.rank = 5, .directory = "x"}); }, &text),
              ErrorCode::kUsage);
    EXPECT_NE(text.find("rank 5 of 2"), text.npos) << text;
  });
}

TEST_F(UnitRanks, ARankThatLoadsWithinAStepEndsTheOthers) {
  run(2, "", [&](int rank, Session& session) {
    session.load(fill);
    if (rank == 0) session.begin();
    const auto go_on = [&] {
      rank == 0 ? session.load(fill) : static_cast<void>(step(session, 1));
    };
    std::string text;
    EXPECT_EQ(code_of(go_on, &text), ErrorCode::kPeer);
    EXPECT_NE(text.find("unloaded within a step"), text.npos) << text;
  });
}

TEST_F(UnitRanks, OtherUnitsOnOneRankAreRefused) {
  const RankPlace place = {.directory = directory_ + "/meet"};
  std::thread other([&] {
    Session session = Session::open_units({{"first", {{"a", {64}}}}},
                                          "{\"recipe\": \"fp32\", \"ranks\": 2}", sinks());
    RankPlace own = place;
    own.rank = 1;
    session.join(own);
    std::string text;
    EXPECT_EQ(code_of([&] { session.load(fill); }, &text), ErrorCode::kConfig);
    EXPECT_NE(text.find("its plan exchanges other data"), text.npos) << text;
  });
  Session session = open(2);
  session.join(place);
  std::string text;
  EXPECT_EQ(code_of([&] { session.load(fill); }, &text), ErrorCode::kPeer);
  EXPECT_NE(text.find("its plan exchanges other data"), text.npos) << text;
  other.join();
}

TEST_F(UnitRanks, PlacesThatCannotBeAreRefused) {
  const auto refused = [&](int ranks, const RankPlace& place, const std::string& words) {
    Session session = open(ranks);
    std::string text;
    EXPECT_EQ(code_of([&] { session.join(place); }, &text), ErrorCode::kUsage);
    EXPECT_NE(text.find(words), text.npos) << text;
  };
  refused(1, {.directory = "x"}, "the option ranks is 1");
  refused(2, {.rank = 2, .directory = "x"}, "rank 2 of 2");
  refused(4, {.ranks_on_node = 3, .directory = "x"}, "do not divide 4");
  refused(2, {}, "no place to meet");
  refused(2, {.address = "127.0.0.1:1"}, "no place to meet");
  Session session = open(2);
  std::string text;
  EXPECT_EQ(code_of([&] { session.load(fill); }, &text), ErrorCode::kUsage);
  EXPECT_NE(text.find("start with join"), text.npos) << text;
  EXPECT_EQ(code_of([&] { session.join({.directory = directory_ + "/nobody", .connect_s = 0.2}); }),
            ErrorCode::kDeadline);
}

// A network of queues between threads: what a framework lends.
class Network {
 public:
  void push(std::array<int, 3> way, std::vector<char> bytes) {
    const std::lock_guard lock(mu_);
    queues_[way].push_back(std::move(bytes));
    changed_.notify_all();
  }
  bool pop(std::array<int, 3> way, void* to, std::chrono::milliseconds limit,
           const std::atomic<bool>& stop) {
    std::unique_lock lock(mu_);
    auto& queue = queues_[way];
    if (!changed_.wait_for(lock, limit, [&] { return stop || !queue.empty(); })) {
      throw std::runtime_error("nothing came");
    }
    if (queue.empty()) return false;
    std::memcpy(to, queue.front().data(), queue.front().size());
    queue.pop_front();
    return true;
  }
  void wake() {
    const std::lock_guard lock(mu_);
    changed_.notify_all();
  }
  std::atomic<int> transfers = 0;

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::map<std::array<int, 3>, std::deque<std::vector<char>>> queues_;  // channel, from, to
};

class Wire : public comm::Transport {
 public:
  Wire(Network& network, int channel, int rank, const std::vector<int>& ranks)
      : network_(network), channel_(channel), rank_(rank), ranks_(ranks) {}
  std::unique_ptr<Transfer> send(int peer, const void* data, int64_t bytes) override {
    const auto* from = static_cast<const char*>(data);
    ++network_.transfers;
    network_.push({channel_, rank_, ranks_[static_cast<size_t>(peer)]}, {from, from + bytes});
    return std::make_unique<Moving>(network_, std::array<int, 3>{}, nullptr);
  }
  std::unique_ptr<Transfer> receive(int peer, void* data, int64_t) override {
    return std::make_unique<Moving>(
        network_, std::array<int, 3>{channel_, ranks_[static_cast<size_t>(peer)], rank_}, data);
  }
  void close() override {}

 private:
  class Moving : public Transfer {
   public:
    Moving(Network& network, std::array<int, 3> way, void* to)
        : network_(network), way_(way), to_(to) {}
    bool wait(std::chrono::milliseconds limit) override {
      return to_ == nullptr || network_.pop(way_, to_, limit, stop_);
    }
    void interrupt() override {
      stop_ = true;
      network_.wake();
    }

   private:
    Network& network_;
    const std::array<int, 3> way_;
    void* const to_;
    std::atomic<bool> stop_ = false;
  };
  Network& network_;
  const int channel_, rank_;
  const std::vector<int> ranks_;
};

TEST_F(UnitRanks, MeetAndExchangeByANetworkThatIsLent) {
  const Planes one = state_of_one();
  Network network;
  const auto place_of = [&](int rank) {
    return RankPlace{.lend = [&network, rank](int channel, const std::vector<int>& ranks) {
      return std::make_unique<Wire>(network, channel, rank, ranks);
    }};
  };
  run_at(4, ", \"shard_ranks\": 2", place_of, [&](int, Session& session) {
    session.load(fill);
    for (int i = 0; i < 3; ++i) step(session, 0.25);
    EXPECT_EQ(read(session), one);
  });
  EXPECT_GT(network.transfers, 100);
}

TEST_F(UnitRanks, ANetworkThatBringsSomethingElseIsRefused) {
  Network network;
  const auto lend = [&](int rank) {
    return [&network, rank](int channel, const std::vector<int>& ranks) {
      return std::make_unique<Wire>(network, channel, rank, ranks);
    };
  };
  network.push({0, 0, 1}, std::vector<char>(512, 'x'));
  Session session = open(2);
  std::string text;
  EXPECT_EQ(code_of([&] { session.join({.rank = 1, .lend = lend(1)}); }, &text), ErrorCode::kPeer);
  EXPECT_NE(text.find("is not its address"), text.npos) << text;
  EXPECT_EQ(code_of([&] { session.join({.rank = 1, .lend = lend(1), .connect_s = 0.1}); }, &text),
            ErrorCode::kDeadline);
  EXPECT_NE(text.find("nothing came"), text.npos) << text;
}

}  // namespace
}  // namespace strata::test
