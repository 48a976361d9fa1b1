// SPDX-License-Identifier: Apache-2.0
// Groups by MPI: they pass the tests of all groups under mpirun, may have some of the ranks, cut
// what MPI cannot send as one, and end when a rank is killed. The tests of GroupMpi run the suites
// that begin with UnderMpirun, as ranks.
#include "engine/comm/group_mpi.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <numeric>

#include "tests/comm/mpi_world.h"

namespace strata::comm {
namespace {

// MPI ends in all ranks when their tests are over, unless one of them is gone.
class EndOfMpi : public testing::Environment {
 public:
  static inline bool is_due = true;
  void TearDown() override {
    if (test::MpiWorld::is_here() && is_due) test::MpiWorld::get().finish();
  }
};
[[maybe_unused]] const auto* const end_of_mpi = testing::AddGlobalTestEnvironment(new EndOfMpi);

class GroupMpi : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = test::why_no_mpi();
    if (!why.empty()) GTEST_SKIP() << why;
  }
  const test::TemporaryDirectory directory_;
};

TEST_F(GroupMpi, PassesTheTestsOfAllGroups) {
  EXPECT_EQ(test::run_by_mpirun(5, "UnderMpirun/*", directory_.path()), "");
}

TEST_F(GroupMpi, HasSomeOfTheRanksAndMessagesOfAnySize) {
  for (const int count : {2, 3, 4}) {
    const test::TemporaryDirectory shared;
    EXPECT_EQ(test::run_by_mpirun(count, "UnderMpirunAlone/*", shared.path()), "");
  }
}

// mpirun would end the others itself.
TEST_F(GroupMpi, AProcessThatIsKilledEndsTheOthers) {
  const double begin_s = now_s();
  const std::string said =
      test::run_by_mpirun(3, "UnderMpirunKilled/*", directory_.path(), "--enable-recovery");
  EXPECT_LT(now_s() - begin_s, 20) << said;
  // Who ends first is gone for the other, which may see that before it sees the killed one.
  std::string ends;
  for (const char* rank : {"/end0", "/end2"}) {
    ASSERT_TRUE(std::filesystem::exists(directory_.path() + rank)) << said;
    const std::string end = test::read_text(directory_.path() + rank);
    EXPECT_NE(end.find(" is gone (did its process end?)"), std::string::npos) << end;
    ends += end;
  }
  EXPECT_NE(ends.find("rank 1 is gone"), std::string::npos) << ends;
}

TEST_F(GroupMpi, ExportsItsEntryAlone) {
  const std::string names = directory_.path() + "/names";
  const std::string command = "nm -D --defined-only " + test::kPlugins + "/" + kMpiPlugin.file +
                              " | awk '{ print $3 }' > " + names;
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(test::read_text(names), std::string(kMpiPlugin.entry) + "\n");
}

TEST(MpiPlugin, ThatIsMissingIsNamed) {
  const test::TemporaryDirectory empty;
  const JobServer server({.secret = kJobSecret, .size = 1});
  JobStore store(options_of(server, 0, 1));
  EXPECT_FAILURE(kConfig, "collectives: mpi: libstrata_mpi.so is not in " + empty.path(),
                 start_mpi(store, empty.path()));
}

// Values of suites that only processes of mpirun have.
std::vector<int> only_under_mpirun() {
  return test::MpiWorld::is_here() ? std::vector{0} : std::vector<int>();
}

class RankOfMpi : public testing::TestWithParam<int> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RankOfMpi);
INSTANTIATE_TEST_SUITE_P(UnderMpirunAlone, RankOfMpi, testing::ValuesIn(only_under_mpirun()));

TEST_P(RankOfMpi, GroupsOfSomeRanksWorkBesideEachOther) {
  test::MpiWorld& world = test::MpiWorld::get();
  const int size = world.mpi().size();
  world.run_job(size, [&](test::MpiWorld::Member& member) -> std::string {
    JobStore& store = member.store;
    std::vector<std::unique_ptr<Group>>& groups = member.groups;
    std::vector<int> ranks;  // every second one, the last first
    for (int r = size - 1; r >= 0; --r) {
      if (r % 2 == store.rank() % 2) ranks.push_back(r);
    }
    Group& all = *groups.emplace_back(make_mpi_group(store, world.mpi(), {}));
    Group& half = *groups.emplace_back(make_mpi_group(
        store, world.mpi(), {.name = store.rank() % 2 == 0 ? "even" : "odd", .ranks = ranks}));
    // Both at once, as the comm lane and the trainer do.
    double sum = store.rank();
    std::jthread other([&] {
      for (int i = 0; i < 50; ++i) all.barrier();
      all.all_reduce_sum(&sum, 1);
    });
    for (int i = 0; i < 50; ++i) {
      std::vector<int> whole(ranks.size(), -1);
      whole[static_cast<size_t>(half.rank())] = store.rank();
      half.gather(whole.data(), sizeof(int));
      EXPECT_EQ(whole, ranks);
    }
    other.join();
    EXPECT_EQ(sum, size * (size - 1) / 2);
    all.barrier();
    return "";
  });
}

TEST_P(RankOfMpi, WhatMpiCannotSendAsOneIsCut) {
  test::MpiWorld& world = test::MpiWorld::get();
  if (world.rank() >= 2) return;
  const auto link = world.mpi().link(
      {.ranks = {0, 1}, .own = world.rank(), .number = 7000, .message_bytes_max = 1000});
  for (const int bytes : {1, 999, 1000, 1001, 70'001}) {
    std::vector<char> sent(static_cast<size_t>(bytes)), received(sent);
    std::iota(sent.begin(), sent.end(), static_cast<char>(bytes));
    const auto in = link->receive(1 - world.rank(), received.data(), bytes);
    const auto out = link->send(1 - world.rank(), sent.data(), bytes);
    EXPECT_TRUE(out->wait(std::chrono::seconds(20)));
    EXPECT_TRUE(in->wait(std::chrono::seconds(20)));
    EXPECT_EQ(received, sent);
  }
}

TEST_P(RankOfMpi, StartsMpiOnce) {
  (void)test::MpiWorld::get();
  std::string why;
  EXPECT_FAILURE(kConfig, "collectives: mpi: another part of this process has started MPI",
                 load_mpi_plugin(test::kPlugins, why)->start());
}

class KilledRankOfMpi : public RankOfMpi {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(KilledRankOfMpi);
INSTANTIATE_TEST_SUITE_P(UnderMpirunKilled, KilledRankOfMpi,
                         testing::ValuesIn(only_under_mpirun()));

TEST_P(KilledRankOfMpi, OthersSayWhichRankItWas) {
  test::MpiWorld& world = test::MpiWorld::get();
  EndOfMpi::is_due = false;
  world.run_job(3, [&](test::MpiWorld::Member& member) -> std::string {
    try {
      const auto group = make_mpi_group(member.store, world.mpi(), {.group = {.deadline_s = 60}});
      std::vector<float> whole(300'000);
      for (int call = 0; true; ++call) {
        if (call == 20 && world.rank() == 1) ::kill(::getpid(), SIGKILL);
        group->all_reduce_sum(whole.data(), 300'000);
      }
    } catch (const Error& error) {
      world.tell("end" + std::to_string(world.rank()), error.what());
    }
    ::_exit(0);  // as the program does, without the end of MPI
  });
}

}  // namespace
}  // namespace strata::comm
