// SPDX-License-Identifier: Apache-2.0
// The meeting of launching processes, all of them threads of this one: machines that go and come
// again, a late one, a refusal, and a signal to machine 0.
#include "bindings/cli/launchers_meeting.h"

#include <atomic>
#include <future>
#include <optional>

#include "bindings/cli/job_restarts.h"
#include "engine/base/clock.h"
#include "tests/cli/launched_nodes.h"
#include "tests/comm/job_support.h"

namespace strata::cli::test {
namespace {

using comm::BareRank;
using comm::Failure;
using comm::failure_of;

class LaunchersMeeting : public testing::Test {
 protected:
  MeetingOfLaunchers meeting(int64_t nodes, double deadline_s = 60) const {
    return {.rendezvous = rendezvous_,
            .secret = comm::kJobSecret,
            .nodes = nodes,
            .deadline_s = deadline_s};
  }
  std::future<MachineAnswer> lead(const MeetingOfLaunchers& meeting, MeetingDecision decide) {
    return std::async(std::launch::async, [=] { return lead_meeting(meeting, {}, decide); });
  }
  std::future<MachineAnswer> attend(const MeetingOfLaunchers& meeting, int64_t node,
                                    const char* host = "") {
    return std::async(std::launch::async,
                      [=] { return attend_meeting(meeting, node, {.host = host}); });
  }
  // All that are there take part.
  static std::vector<MachineAnswer> start_all(const MachineReports& reports) {
    std::vector<MachineAnswer> answers(reports.size(), {.starts = true});
    for (size_t node = 0; node < reports.size(); ++node) {
      answers[node].line = reports[node] ? reports[node]->host : "absent";
    }
    return answers;
  }
  // A launching process that is there and does not run.
  BareRank stopped(int node, int nodes) const {
    const int port = std::stoi(rendezvous_.substr(rendezvous_.find(':') + 1)) + 1;
    const std::string address = "127.0.0.1:" + std::to_string(port);
    const double until_s = now_s() + 30;
    while (failure_of([&] { comm::stranger_at(address); }).code == ErrorCode::kPeer) {
      if (now_s() > until_s) throw Error(ErrorCode::kDeadline, "nobody leads");
    }
    BareRank rank(address, node, nodes);
    const std::string report =
        R"({"code": 0, "rank": -1, "signal": 0, "is_stuck": false, "host": "stopped", )"
        R"("is_asked_to_stop": false})";
    rank.link.channel.send({.kind = comm::JobMessage::Kind::kSet,
                            .key = "report/" + std::to_string(node),
                            .value = report});
    rank.hear();
    return rank;
  }
  const std::string rendezvous_ = free_address();
};

TEST_F(LaunchersMeeting, AMachineThatIsInterruptedTakesPartWhenItComesAgain) {
  auto first = lead(meeting(4), start_all);
  auto second = attend(meeting(4), 2, "two");
  MeetingOfLaunchers ends = meeting(4);
  ends.requests = [looks = 0]() mutable {
    return looks++ > 0 ? 1 : 0;
  };  // when it waits for the answer
  EXPECT_FAILURE(kInterrupted, "a signal asked to end", attend_meeting(ends, 1, {}));
  auto again = attend(meeting(4), 1, "again");
  EXPECT_EQ(attend_meeting(meeting(4), 3, {.host = "three"}).line, "three");
  EXPECT_EQ(again.get().line, "again");
  EXPECT_EQ(second.get().line, "two");
  EXPECT_TRUE(first.get().starts);
}

TEST_F(LaunchersMeeting, AMachineThatIsKilledSendsNobodyAway) {
  std::optional<BareRank> stops;
  auto first = lead(meeting(4), [&](const MachineReports& reports) {
    stops.reset();  // so that nobody waits for it
    return start_all(reports);
  });
  auto second = attend(meeting(4), 2, "two");
  stops.emplace(stopped(3, 4));
  { const BareRank killed = stopped(1, 4); }
  EXPECT_EQ(attend_meeting(meeting(4), 1, {.host = "again"}).line, "again");
  EXPECT_EQ(second.get().line, "two");
  EXPECT_TRUE(first.get().starts);
}

TEST_F(LaunchersMeeting, AMachineThatGoesBeforeTheDecisionIsAbsent) {
  auto first = lead(meeting(3, 2), [&](const MachineReports& reports) {
    EXPECT_FALSE(reports[1].has_value());
    return start_all(reports);
  });
  { const BareRank killed = stopped(1, 3); }
  EXPECT_TRUE(first.get().starts);
}

TEST_F(LaunchersMeeting, AMachineThatComesAfterTheDecisionGetsNoPlace) {
  std::promise<void> decided;
  auto first = lead(meeting(3, 3), [&](const MachineReports& reports) {
    decided.set_value();
    return start_all(reports);
  });
  std::optional<BareRank> stops(stopped(1, 3));  // machine 0 waits for it
  decided.get_future().wait();
  EXPECT_FAILURE(kDeadline, "within 1 s", attend_meeting(meeting(3, 0.5), 2, {}));
  stops.reset();
  EXPECT_TRUE(first.get().starts);
}

TEST_F(LaunchersMeeting, OnlyAMachineThatNeverRanIsSentAway) {
  const int port = std::stoi(rendezvous_.substr(rendezvous_.find(':') + 1)) + 1;
  std::optional<comm::JobServer> foreign(std::in_place,
                                         comm::JobServerOptions{
                                             .address = "127.0.0.1:" + std::to_string(port),
                                             .secret = "another, just as long",
                                         });
  EXPECT_FAILURE(kConfig, "the server has another one", attend_meeting(meeting(2), 1, {}));
  auto second = std::async(std::launch::async, [&] {
    return attend_meeting(meeting(2), 1, {.end = {.code = 4}, .host = "ran"});
  });
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  foreign.reset();
  EXPECT_TRUE(lead_meeting(meeting(2), {}, start_all).starts);
  EXPECT_EQ(second.get().line, "ran");
}

TEST_F(LaunchersMeeting, ASignalToMachine0IsTheAnswerToTheOthers) {
  std::atomic<bool> waits = false;
  MeetingOfLaunchers leading = meeting(3), attending = meeting(3);
  leading.requests = [&] { return waits ? 1 : 0; };
  attending.requests = [&, looks = 0]() mutable {
    if (looks++ > 0) waits = true;
    return 0;
  };
  auto first = lead(leading, [](const MachineReports& reports) {
    const bool is_over = reports[0]->is_asked_to_stop;
    return std::vector<MachineAnswer>(3, {.starts = !is_over, .line = is_over ? "over" : ""});
  });
  const MachineAnswer answer = attend_meeting(attending, 1, {});
  EXPECT_FALSE(answer.starts);
  EXPECT_EQ(answer.line, "over");
  EXPECT_FAILURE(kInterrupted, "a signal asked to end", first.get());
}

// Ranks of others may take a while to end, and their launching processes come then.
TEST_F(LaunchersMeeting, AfterARunASignalToMachine0WaitsForTheOthersUntilTheNext) {
  std::atomic<int> asked = 1;
  MeetingOfLaunchers leading = meeting(3);
  leading.requests = [&] { return asked.load(); };
  auto first = std::async(std::launch::async, [&] {
    return lead_meeting(leading, {.end = {.code = 4}}, [](const MachineReports& reports) {
      EXPECT_TRUE(reports[0]->is_asked_to_stop);
      EXPECT_TRUE(reports[1].has_value());
      return std::vector<MachineAnswer>(3, {.line = "over"});
    });
  });
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout);
  auto second = attend(meeting(3), 1);
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout);
  asked = 2;
  EXPECT_EQ(second.get().line, "over");
  EXPECT_FAILURE(kInterrupted, "a signal asked to end", first.get());
}

// It was asked to end, and machine 0 may be gone; a further signal ends it at once.
TEST_F(LaunchersMeeting, AMachineThatWasAskedToEndCanBeAskedAgain) {
  MeetingOfLaunchers alone = meeting(2);
  alone.requests = [looks = 0]() mutable { return looks++ > 2 ? 1 : 0; };
  EXPECT_FAILURE(kInterrupted, "a signal asked to end",
                 attend_meeting(alone, 1, {.end = {.code = 4}, .is_asked_to_stop = true}));
  const MeetingOfLaunchers brief = meeting(2, 0.5);
  EXPECT_FALSE(attend_meeting(brief, 1, {.end = {.code = 4}, .is_asked_to_stop = true}).starts);
}

}  // namespace
}  // namespace strata::cli::test
