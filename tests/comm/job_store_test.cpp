// SPDX-License-Identifier: Apache-2.0
// The store of a job over real sockets: its keys, how ranks come and leave, and how a job stops.
#include "engine/comm/job_store.h"

#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "engine/comm/job_server.h"
#include "tests/comm/job_support.h"
#include "tests/comm/rank_process.h"

namespace strata::comm {
namespace {

TEST(JobStore, KeysAreSetReadCountedAndErased) {
  const JobServer server({.secret = kJobSecret, .size = 2});
  JobStore first(options_of(server, 0, 2));
  JobStore second(options_of(server, 1, 2));
  first.set("a/1", std::string("\0\xff", 2));
  first.set("a/2", "");
  EXPECT_EQ(second.get("a/1", 10), std::string("\0\xff", 2));
  EXPECT_EQ(second.get("a/2", 10), "");
  second.set("a/1", "again");
  EXPECT_EQ(first.get("a/1", 10), "again");

  EXPECT_EQ(first.add("count", 2), 2);
  EXPECT_EQ(second.add("count", -5), -3);
  EXPECT_EQ(first.add("a/1", 1), 1);  // counts are not values
  EXPECT_EQ(first.get("a/1", 10), "again");

  second.erase("a/1");
  EXPECT_EQ(first.get("a/2", 10), "");
  EXPECT_EQ(first.add("a/1", 1), 1);
  EXPECT_FAILURE(kDeadline, "get: a/1: not set within 0.02 s (", first.get("a/1", 0.02));
}

TEST(JobStore, ItsOwnAddressIsTheOneThatReachesTheServer) {
  const JobServer server({.secret = kJobSecret});
  EXPECT_EQ(JobStore(options_of(server, 0, 1)).own_host(), "127.0.0.1");
  EXPECT_EQ(host_of("lo"), "127.0.0.1");
  EXPECT_EQ(host_of("10.0.0.9"), "10.0.0.9");
  EXPECT_EQ(interface_of("127.0.0.1"), "lo");
  EXPECT_EQ(interface_of("lo"), "lo");
  EXPECT_EQ(interface_of("192.0.2.1"), "");
}

TEST(JobStore, GetWaitsForTheKey) {
  const JobServer server({.secret = kJobSecret, .size = 2});
  JobStore first(options_of(server, 0, 2));
  JobStore second(options_of(server, 1, 2));
  std::vector<std::jthread> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&] { EXPECT_EQ(first.get("late", 30), "here"); });
  }
  // A get that ends at its deadline leaves nothing behind that a later answer would meet.
  EXPECT_FAILURE(kDeadline, "get: late", second.get("late", 0.05));
  second.set("late", "here");
  readers.clear();
  EXPECT_EQ(second.get("late", 30), "here");
}

TEST(JobStore, TheDeadlineOfGetNamesTheOwnerOfTheKeyAndItsState) {
  const JobServer server({.secret = kJobSecret, .size = 3});
  JobStore first(options_of(server, 0, 3));
  JobStore here(options_of(server, 1, 3));
  EXPECT_FAILURE(kDeadline, "rank 2 sets it, and it has not connected", first.get("k", 0.02, 2));
  EXPECT_FAILURE(kDeadline, "rank 1 sets it, and it is connected", first.get("k", 0.02, 1));
  { const JobStore short_lived(options_of(server, 2, 3)); }
  EXPECT_FAILURE(kDeadline, "rank 2 sets it, and it has left the job", first.get("k", 0.02, 2));
}

TEST(JobStore, TooLargeIsRefusedAndTheStoreGoesOn) {
  const JobServer server({.secret = kJobSecret});
  JobStore store(options_of(server, 0, 1));
  EXPECT_FAILURE(kDoesNotFit, "a key of 257 B", store.set(std::string(257, 'k'), ""));
  EXPECT_FAILURE(kDoesNotFit, "set: k: a key of 1 B with a value of 2 MiB",
                 store.set("k", std::string(2 * kValueBytesMax, 'v')));
  int kept = 0;
  const Failure full = failure_of([&] {
    for (; kept < 100; ++kept) {
      store.set("k" + std::to_string(kept), std::string(kValueBytesMax, 'v'));
    }
  });
  EXPECT_EQ(full.code, ErrorCode::kDoesNotFit);
  EXPECT_TRUE(full.says("set: k63: the store of the job is full: 64 MiB in 63 keys")) << full.text;
  store.set("k0", std::string(kValueBytesMax, 'w'));  // takes the place of the value before
  EXPECT_FAILURE(kDoesNotFit, "is full", store.set("k63", std::string(kValueBytesMax, 'v')));
  store.erase("k1");
  store.set("k63", std::string(kValueBytesMax, 'v'));
  EXPECT_EQ(store.get("k63", 10).size(), kValueBytesMax);
}

TEST(JobStore, SixtyFourRanksAtOnce) {
  constexpr int kSize = 64;
  const JobServer server({.secret = kJobSecret, .size = kSize});
  std::vector<std::jthread> ranks;
  std::atomic<int> done{0};
  for (int r = 0; r < kSize; ++r) {
    ranks.emplace_back([&, r] {
      JobStore store(options_of(server, r, kSize));
      store.set("rank/" + std::to_string(r), std::to_string(r));
      for (int other = 0; other < kSize; ++other) {
        EXPECT_EQ(store.get("rank/" + std::to_string(other), 60, other), std::to_string(other));
      }
      if (store.add("ready", 1) == kSize) store.set("all", "ready");
      EXPECT_EQ(store.get("all", 60), "ready");
      done.fetch_add(1);
    });
  }
  ranks.clear();
  EXPECT_EQ(done.load(), kSize);
}

void expect_works_at(const char* address) {
  const JobServer server({.address = address, .secret = kJobSecret});
  JobStore store(options_of(server, 0, 1));
  store.set("k", "v");
  EXPECT_EQ(store.get("k", 10), "v") << server.address();
}

TEST(JobStore, WorksOverIPv6) {
  expect_works_at("[::1]:0");
  const JobServer server({.address = "[::1]:0", .secret = kJobSecret});
  EXPECT_TRUE(server.address().starts_with("[::1]:")) << server.address();
}

TEST(JobStore, WorksByName) {
  addrinfo* found = nullptr;
  if (getaddrinfo("localhost", nullptr, nullptr, &found) != 0) {
    GTEST_SKIP() << "this system has no address for localhost (add it to /etc/hosts)";
  }
  freeaddrinfo(found);
  expect_works_at("localhost:0");
}

TEST(JobStore, AddressesThatCannotBeUsedAreRefused) {
  for (const char* address :
       {"", "localhost", "::1:29500", "localhost:70000", "localhost:", ":1"}) {
    EXPECT_FAILURE(kConfig, "it is not HOST:PORT",
                   JobServer({.address = address, .secret = kJobSecret}));
  }
  EXPECT_FAILURE(kConfig, "cannot listen: 192.0.2.1:0",
                 JobServer({.address = "192.0.2.1:0", .secret = kJobSecret}));
  const JobServer server({.secret = kJobSecret});
  EXPECT_FAILURE(kConfig, "cannot listen",
                 JobServer({.address = server.address(), .secret = kJobSecret}));
}

TEST(JobStore, NoServerIsADeadline) {
  std::string address;
  {
    const JobServer server({.secret = kJobSecret});
    address = server.address();
  }
  EXPECT_FAILURE(kDeadline, "no connection within 0.1 s: cannot connect: 127.0.0.1:",
                 JobStore({.address = address, .secret = kJobSecret, .connect_s = 0.1}));
  // One that listens and says nothing.
  const Socket silent = listen_at({"127.0.0.1", "0"});
  EXPECT_FAILURE(kDeadline, "it accepts the connection and does not answer",
                 JobStore({.address = address_of(silent), .secret = kJobSecret, .connect_s = 0.1}));
}

TEST(JobStore, ARankWaitsForItsServer) {
  std::string address;
  {
    const JobServer server({.secret = kJobSecret});
    address = server.address();
  }
  std::unique_ptr<JobServer> server;
  const std::jthread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    server =
        std::make_unique<JobServer>(JobServerOptions{.address = address, .secret = kJobSecret});
  });
  JobStore store({.address = address, .secret = kJobSecret, .connect_s = 30});
  EXPECT_EQ(store.add("n", 1), 1);
}

TEST(JobStore, AServerThatIsGoneStopsTheJob) {
  auto server =
      std::make_unique<JobServer>(JobServerOptions{.secret = kJobSecret, .size = 2, .linger_s = 0});
  JobStore store(options_of(*server, 1, 2));
  const std::jthread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    server.reset();
  });
  EXPECT_FAILURE(kPeer, "get: rank 0 is gone (did its process end?)", store.get("never", 20));
  EXPECT_FAILURE(kPeer, "rank 0 is gone", store.add("n", 1));
  EXPECT_FALSE(store.stop("too late"));
}

TEST(JobStore, TheServerWaitsUntilItsRanksHaveLeft) {
  auto server = std::make_unique<JobServer>(JobServerOptions{.secret = kJobSecret, .linger_s = 60});
  auto store = std::make_unique<JobStore>(options_of(*server, 0, 1));
  const double begin_s = now_s();
  std::jthread end([&] { server.reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(store->add("n", 1), 1);
  store.reset();
  end.join();
  EXPECT_LT(now_s() - begin_s, 30);
}

TEST(JobStore, TheFirstReasonStaysAndEveryRankHearsIt) {
  constexpr int kSize = 8;
  const JobServer server({.secret = kJobSecret, .size = kSize + 1});
  std::vector<std::unique_ptr<JobStore>> stores;
  std::vector<std::unique_ptr<JobStore::OnStop>> waits;
  std::atomic<int> calls{0};
  for (int r = 0; r < kSize; ++r) {
    stores.push_back(std::make_unique<JobStore>(options_of(server, r, kSize + 1)));
    waits.push_back(std::make_unique<JobStore::OnStop>(
        *stores.back(), [&] { calls.fetch_add(1); }, JobStore::OnStop::Awaited{}));
  }
  std::vector<std::jthread> stoppers;
  for (int r = 0; r < kSize; ++r) {
    stoppers.emplace_back([&, r] { stores[static_cast<size_t>(r)]->stop("because"); });
  }
  stoppers.clear();
  EXPECT_EQ(calls.load(), kSize);
  const Failure first = failure_of([&] { stores[0]->throw_if_stopped("call"); });
  EXPECT_EQ(first.code, ErrorCode::kPeer);
  EXPECT_TRUE(first.text.starts_with("call: rank ") && first.says(" stopped: because"))
      << first.text;
  for (const auto& store : stores) {
    EXPECT_FAILURE(kPeer, first.text, store->throw_if_stopped("call"));
    EXPECT_FALSE(store->stop("another reason"));
  }
  JobStore late(options_of(server, kSize, kSize + 1));
  EXPECT_FAILURE(kPeer, first.text, late.throw_if_stopped_soon("call"));
  const JobStore::OnStop wait(late, [] { FAIL(); }, {});
  EXPECT_TRUE(wait.stopped_before());
}

TEST(JobStore, AWaitForARankThatHasLeftStopsTheJob) {
  for (const bool whole_job : {false, true}) {
    const JobServer server({.secret = kJobSecret, .size = 2});
    JobStore store(options_of(server, 0, 2));
    auto other = std::make_unique<JobStore>(options_of(server, 1, 2));
    std::atomic<int> calls{0};
    const JobStore::OnStop unrelated(store, [] {}, {.rank = 0, .group = "g"});
    const JobStore::OnStop wait(store, [&] { calls.fetch_add(1); }, {.rank = 1, .group = "g"});
    if (whole_job) other.reset();
    if (!whole_job) other->leave("g");
    EXPECT_FAILURE(kPeer, "rank 0 stopped: rank 1 is gone from group g, and rank 0 waits for it",
                   store.get("never", 20));
    EXPECT_EQ(calls.load(), 1);
  }
}

// A network between one rank and the server, which can be cut: both connections stay, and nothing
// passes.
class Network {
 public:
  explicit Network(const JobServer& server)
      : listener_(listen_at({"127.0.0.1", "0"})),
        to_server_(stranger_at(server)),
        thread_([this](const std::stop_token& end) { run(end); }) {}
  std::string address() const { return address_of(listener_); }
  void cut() { cut_ = true; }

 private:
  void run(const std::stop_token& end) {
    while (!wait_until_ready(listener_, false, 0.01)) {
      if (end.stop_requested()) return;
    }
    const Socket from_rank = accept_one(listener_);
    while (!end.stop_requested()) {
      pollfd events[] = {polled(from_rank.fd(), true, false), polled(to_server_.fd(), true, false)};
      if (cut_ || ::poll(events, 2, 10) < 1) continue;
      if (!pass(from_rank, to_server_) || !pass(to_server_, from_rank)) return;
    }
  }
  static bool pass(const Socket& from, const Socket& to) {
    char room[4096];
    const auto count = from.read_some(room);
    if (count) to.write_some({room, *count});
    return count != 0;
  }

  const Socket listener_;
  const Socket to_server_;
  std::atomic<bool> cut_{false};
  std::jthread thread_;
};

TEST(JobStore, ARankThatIsCutOffStopsTheJobAndHearsThatTheServerIsSilent) {
  const JobServer server({.secret = kJobSecret, .size = 2, .silence_s = 1, .linger_s = 0});
  JobStore store(options_of(server, 0, 2));
  Network network(server);
  JobStore remote({.address = network.address(), .secret = kJobSecret, .rank = 1, .size = 2});
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(store.add("n", 1) + remote.add("n", 1), 3);  // both were quiet and beat
  network.cut();
  EXPECT_FAILURE(kPeer, "get: rank 1 is silent for 1 s (is its process stopped, or its machine cut",
                 store.get("never", 20));
  EXPECT_FAILURE(kPeer, "get: rank 0 is silent for 1 s (", remote.get("never", 20));
}

// The test's process is rank 0; rank 1 is a process that gets a signal.
void check_signal_to_rank(int number, double silence_s, double within_s, const std::string& words) {
  const test::JobOfProcesses job(2, silence_s);
  const test::RankProcess rank([&] {
    const auto member = job.join(1);
    job.mark("here");
    std::this_thread::sleep_for(std::chrono::hours(1));
    return std::string();
  });
  const auto member = job.join(0);
  job.await("here");
  rank.signal(number);
  const double begin_s = now_s();
  EXPECT_FAILURE(kPeer, words, member.store->get("never", 40));
  EXPECT_LT(now_s() - begin_s, within_s);
}

TEST(JobStore, AProcessThatIsKilledStopsTheJobAtOnce) {
  check_signal_to_rank(SIGKILL, 25, 5, "rank 1 is gone (did its process end?)");
}

TEST(JobStore, AProcessThatIsStoppedStopsTheJobAfterItsSilence) {
  check_signal_to_rank(SIGSTOP, 1, 6,
                       "rank 1 is silent for 1 s (is its process stopped, or its machine");
}

}  // namespace
}  // namespace strata::comm
