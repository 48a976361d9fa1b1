// SPDX-License-Identifier: Apache-2.0
// Stores that share one state, as threads: over TCP and over a transport that the caller lends.
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "tests/c/c_fixture.h"

namespace strata::test {
namespace {

// A caller's network: queues between threads.
class Wire {
 public:
  explicit Wire(int rank) : rank_(rank) {}
  strata_transport calls() {
    auto calls = sized<strata_transport>();
    calls.context = this;
    calls.send = [](void* self, int32_t channel, int32_t peer, const void* data, int64_t bytes,
                    void** transfer) {
      return static_cast<Wire*>(self)->send(channel, peer, static_cast<const char*>(data), bytes,
                                            transfer);
    };
    calls.receive = [](void* self, int32_t channel, int32_t peer, void* data, int64_t bytes,
                       void** transfer) {
      return static_cast<Wire*>(self)->receive(channel, peer, data, bytes, transfer);
    };
    calls.wait = [](void* self, void* transfer, double seconds) {
      return static_cast<Wire*>(self)->wait(*static_cast<Open*>(transfer), seconds);
    };
    calls.interrupt = [](void*, void* transfer) {
      const std::lock_guard lock(shared_.mu);
      static_cast<Open*>(transfer)->stop = true;
      shared_.changed.notify_all();
    };
    calls.end = [](void* self, void* transfer) {
      delete static_cast<Open*>(transfer);
      --static_cast<Wire*>(self)->open_;
    };
    return calls;
  }
  int open() const { return open_; }
  int begun() const { return begun_; }
  void break_after(int transfers) { left_ = transfers; }
  static void clear() { shared_.queues.clear(); }

 private:
  struct Open {
    std::array<int, 3> way;  // channel, from, to
    void* into;              // null for what is sent
    bool stop = false;
  };
  struct Shared {
    std::mutex mu;
    std::condition_variable changed;
    std::map<std::array<int, 3>, std::deque<std::string>> queues;
  };

  int begin(Open* open, void** transfer) {
    *transfer = open;
    ++open_;
    ++begun_;
    return 0;
  }
  int send(int channel, int peer, const char* data, int64_t bytes, void** transfer) {
    if (--left_ < 0) return 5;
    const std::array<int, 3> way = {channel, rank_, peer};
    const std::lock_guard lock(shared_.mu);
    shared_.queues[way].emplace_back(data, static_cast<size_t>(bytes));
    shared_.changed.notify_all();
    return begin(new Open{way, nullptr}, transfer);
  }
  int receive(int channel, int peer, void* data, int64_t, void** transfer) {
    return begin(new Open{{channel, peer, rank_}, data}, transfer);
  }
  int wait(Open& open, double seconds) {
    if (open.into == nullptr) return STRATA_TRANSFER_DONE;
    std::unique_lock lock(shared_.mu);
    auto& queue = shared_.queues[open.way];
    const auto came = [&] { return open.stop || !queue.empty(); };
    if (!shared_.changed.wait_for(lock, std::chrono::duration<double>(seconds), came)) return 7;
    if (queue.empty()) return STRATA_TRANSFER_INTERRUPTED;
    std::memcpy(open.into, queue.front().data(), queue.front().size());
    queue.pop_front();
    return STRATA_TRANSFER_DONE;
  }

  static inline Shared shared_;
  const int rank_;
  std::atomic<int> open_ = 0, begun_ = 0, left_ = 1 << 30;
};

class CRanks : public CApi {
 protected:
  static constexpr int kRanks = 2;

  std::string shared_options() const {
    return options(on_drive() + ", \"ranks\": " + std::to_string(kRanks));
  }
  void on_threads(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }
  strata_ranks place_of(int rank) const {
    auto ranks = sized<strata_ranks>();
    ranks.rank = rank;
    return ranks;
  }
  // A store that has met the others and loaded its part.
  strata_store* joined(const strata_ranks& ranks) const {
    strata_store* store = open(shared_options());
    EXPECT_EQ(strata_store_join(store, &ranks), STRATA_OK) << text();
    load(store);
    return store;
  }
  strata_store* joined_over(Wire& wire, int rank) const {
    const strata_transport calls = wire.calls();
    strata_ranks ranks = place_of(rank);
    ranks.transport = &calls;
    return joined(ranks);
  }
  // The state of one store after two steps with the whole gradient.
  static std::vector<std::vector<float>> state_of_one() {
    strata_store* store = loaded(options());
    for (int i = 0; i < 2; ++i) step(store);
    const auto all = state(store);
    EXPECT_EQ(strata_store_close(store), STRATA_OK);
    return all;
  }

  std::string meeting_ = directory_ + "/meet";
};

TEST_F(CRanks, ShareTheStateOfOneStore) {
  const auto one = state_of_one();
  on_threads([&](int rank) {
    strata_ranks ranks = place_of(rank);
    ranks.directory = meeting_.c_str();
    strata_store* store = joined(ranks);
    for (int i = 0; i < 2; ++i) step(store, 0.01, 0.5f);  // each has half of the gradient
    EXPECT_EQ(state(store), one) << rank;
    EXPECT_EQ(strata_store_close(store), STRATA_OK);
  });
}

TEST_F(CRanks, ExchangeByATransportThatIsLent) {
  Wire::clear();
  const auto one = state_of_one();
  on_threads([&](int rank) {
    Wire wire(rank);
    strata_store* store = joined_over(wire, rank);
    for (int i = 0; i < 2; ++i) step(store, 0.01, 0.5f);
    EXPECT_EQ(state(store), one) << rank;
    EXPECT_EQ(strata_store_close(store), STRATA_OK);
    EXPECT_GT(wire.begun(), 100);
    EXPECT_EQ(wire.open(), 0);
  });
}

// The rank whose transport fails says so, and the other's wait is interrupted.
TEST_F(CRanks, ATransportThatFailsEndsAllRanks) {
  Wire::clear();
  on_threads([&](int rank) {
    Wire wire(rank);
    strata_store* store = joined_over(wire, rank);
    if (rank == 1) wire.break_after(3);
    auto view = sized<strata_view>();
    strata_status status = strata_store_begin(store);
    for (int unit = 0; status == STRATA_OK && unit < kUnits; ++unit) {
      status = strata_store_acquire(store, unit, STRATA_FORWARD, &view);
      if (status == STRATA_OK) status = strata_store_release(store);
    }
    EXPECT_EQ(status, STRATA_ERROR_PEER);
    EXPECT_NE(text().find("the transport that was given returned 5"), std::string::npos) << text();
    EXPECT_EQ(strata_store_close(store), STRATA_OK);
    EXPECT_EQ(wire.open(), 0);
  });
}

TEST_F(CRanks, MistakesAreNamed) {
  const auto refused = [&](const strata_ranks* ranks, const std::string& words,
                           const std::string& more = ", \"ranks\": 2") {
    strata_store* store = open(options(more));
    const strata_status status = strata_store_join(store, ranks);
    EXPECT_TRUE(status == STRATA_ERROR_USAGE || status == STRATA_ERROR_CONFIG) << status;
    EXPECT_NE(text().find(words), std::string::npos) << text();
    auto load = sized<strata_load>();
    load.fill = fill;
    if (!more.empty()) {
      EXPECT_EQ(strata_store_load(store, &load), STRATA_ERROR_USAGE);
    }
    EXPECT_EQ(strata_store_close(store), STRATA_OK);
  };
  refused(nullptr, "ranks");
  auto ranks = sized<strata_ranks>();
  refused(&ranks, "no place to meet");
  refused(&ranks, "the option ranks is 1", "");
  auto calls = sized<strata_transport>();
  ranks.transport = &calls;
  refused(&ranks, "transport.send");
  ranks.transport = nullptr;
  ranks.address = "127.0.0.1:1";
  ranks.secret = "short";
  refused(&ranks, "secret");
}

}  // namespace
}  // namespace strata::test
