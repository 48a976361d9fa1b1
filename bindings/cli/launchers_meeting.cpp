// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/launchers_meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "bindings/cli/job_restarts.h"
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/comm/job_server.h"
#include "engine/comm/job_store.h"
#include "engine/comm/tcp_socket.h"
#include "engine/config/json.h"

namespace strata::cli {
namespace {

using config::Json;

constexpr double kLookS = 1;  // how long a wait lasts until signals are looked at
// In which machines come to hear that the job ends. Their ranks may first wait for others for a
// minute.
constexpr double kEndIsHeardS = 75;
constexpr double kNoLimitS = 1e9;
constexpr auto kRetry = std::chrono::milliseconds(50);

std::string report_key(int64_t node) {
  return fmt::format("report/{}", node);
}
std::string answer_key(int64_t node) {
  return fmt::format("answer/{}", node);
}

// The ranks' own port is free for rank 0 while launching processes still talk.
std::string address_of_launchers(const std::string& rendezvous) {
  const comm::Endpoint ranks = comm::parse_endpoint(rendezvous);
  int port = 0;
  std::from_chars(ranks.port.data(), ranks.port.data() + ranks.port.size(), port);
  const bool bracketed = ranks.host.find(':') != std::string::npos;
  return bracketed ? fmt::format("[{}]:{}", ranks.host, port + 1)
                   : fmt::format("{}:{}", ranks.host, port + 1);
}

Json json_of(const MachineReport& report) {
  Json json = Json::object();
  json.set("code", int64_t{report.end.code});
  json.set("rank", int64_t{report.end.rank});
  json.set("signal", int64_t{report.end.signal});
  json.set("is_stuck", report.end.is_stuck);
  json.set("host", report.host);
  json.set("is_asked_to_stop", report.is_asked_to_stop);
  return json;
}

Json json_of(const MachineAnswer& answer) {
  Json json = Json::object();
  json.set("starts", answer.starts);
  json.set("line", answer.line);
  json.set("node", answer.node);
  json.set("nodes", answer.nodes);
  json.set("accumulate", answer.accumulate);
  json.set("resumes", answer.resumes);
  json.set("changes_ranks", answer.changes_ranks);
  return json;
}

// The members of a message; another build may have written it.
class Members {
 public:
  explicit Members(const std::string& text) : json_(Json::parse(text, "meeting of machines")) {}

  int64_t number(const char* name) const { return value(name, member(name).int64()); }
  bool flag(const char* name) const { return value(name, member(name).boolean()); }
  std::string text(const char* name) const {
    const Json& json = member(name);
    return value(name, json.is_string() ? std::optional(json.string()) : std::nullopt);
  }

 private:
  const Json& member(const char* name) const {
    const Json* found = json_.is_object() ? json_.find(name) : nullptr;
    if (found == nullptr) refuse(name);
    return *found;
  }
  template <typename T>
  static T value(const char* name, const std::optional<T>& found) {
    if (!found) refuse(name);
    return *found;
  }
  [[noreturn]] static void refuse(const char* name) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("launch: another machine says no {} (start the same build everywhere)", name));
  }

  const Json json_;
};

MachineReport parse_report(const std::string& text) {
  const Members all(text);
  return {.end = {.code = static_cast<int>(all.number("code")),
                  .rank = static_cast<int>(all.number("rank")),
                  .signal = static_cast<int>(all.number("signal")),
                  .is_stuck = all.flag("is_stuck")},
          .host = all.text("host"),
          .is_asked_to_stop = all.flag("is_asked_to_stop")};
}

MachineAnswer parse_answer(const std::string& text) {
  const Members all(text);
  return {.starts = all.flag("starts"),
          .line = all.text("line"),
          .node = all.number("node"),
          .nodes = all.number("nodes"),
          .accumulate = all.number("accumulate"),
          .resumes = all.flag("resumes"),
          .changes_ranks = all.flag("changes_ranks")};
}

int requests(const MeetingOfLaunchers& meeting) {
  return meeting.requests ? meeting.requests() : 0;
}

[[noreturn]] void throw_interrupted() {
  throw Error(ErrorCode::kInterrupted, "launch: a signal asked to end");
}

// The value of a key, if it is there within `wait_s`.
std::optional<std::string> look(comm::JobStore& store, const std::string& key, double wait_s) {
  try {
    return store.get(key, wait_s);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDeadline) throw;
  }
  return std::nullopt;
}

comm::JobStoreOptions store_options(const MeetingOfLaunchers& meeting, int64_t node,
                                    const std::string& address) {
  return {.address = address,
          .secret = meeting.secret,
          .rank = static_cast<int>(node),
          .size = static_cast<int>(meeting.nodes),
          .connect_s = kLookS};
}

bool ends_job(const MachineReport& report) {
  return report.is_asked_to_stop || is_final(report.end);
}

// Reads the reports of the others that are here now. Returns whether all are.
bool read_reports(comm::JobStore& store, double wait_s, MachineReports& reports) {
  bool all = true;
  for (size_t node = 1; node < reports.size(); ++node) {
    const auto text = look(store, report_key(static_cast<int64_t>(node)), wait_s);
    reports[node] = text ? std::optional(parse_report(*text)) : std::nullopt;
    all = all && text;
  }
  return all;
}

// Of the machines that are here at the end of the wait; one that goes takes its report with it.
MachineReports reports_of(comm::JobStore& store, const MeetingOfLaunchers& meeting,
                          const MachineReport& own, double until_s) {
  constexpr double kGlanceS = 0.02, kMomentS = 0.1;  // in the latter a busy server answers
  MachineReports reports(static_cast<size_t>(meeting.nodes));
  reports[0] = own;
  bool is_told = false;
  // Of a process that has just been killed, the end is noticed a moment later.
  const auto all_stay = [&] {
    if (!read_reports(store, kGlanceS, reports)) return false;
    std::this_thread::sleep_for(kRetry);
    return read_reports(store, kGlanceS, reports);
  };
  while (!all_stay()) {
    const int asked = requests(meeting);
    const bool ends = asked > 0 || std::ranges::any_of(reports, [](const auto& report) {
                        return report && ends_job(*report);
                      });
    if (ends) until_s = std::min(until_s, now_s() + kEndIsHeardS);
    const bool was_asked = asked > 0 || own.is_asked_to_stop;
    if (was_asked && own.end.code != 0 && !std::exchange(is_told, true)) {
      log(LogLevel::kWarning,
          fmt::format("launch: the run ends, and this process waits for up to {} s until the other "
                      "machines have heard of it (press Ctrl-C again to end at once)",
                      kEndIsHeardS));
    }
    const bool again = asked > 1 || (asked > 0 && own.is_asked_to_stop);
    if (again || (asked > 0 && own.end.code == 0)) until_s = 0;
    if (now_s() >= until_s) {
      read_reports(store, kMomentS, reports);
      break;
    }
    std::this_thread::sleep_for(kRetry);
  }
  reports[0]->is_asked_to_stop |= requests(meeting) > 0;
  return reports;
}

MachineAnswer lead_once(const MeetingOfLaunchers& meeting, const MachineReport& own,
                        const MeetingDecision& decide, double until_s) {
  const comm::JobServer server({.address = address_of_launchers(meeting.rendezvous),
                                .secret = meeting.secret,
                                .size = static_cast<int>(meeting.nodes),
                                .ranks_return = true});
  comm::JobStore store(store_options(meeting, 0, server.address()));
  const MachineReports reports = reports_of(store, meeting, own, until_s);
  const std::vector<MachineAnswer> answers = decide(reports);
  STRATA_CHECK(answers.size() == reports.size());
  for (size_t node = 1; node < answers.size(); ++node) {
    // One that comes now has no place in this start.
    if (answers[node].starts && !reports[node]) continue;
    store.set(answer_key(static_cast<int64_t>(node)), json_of(answers[node]).dump());
  }
  if (reports[0]->is_asked_to_stop && !own.is_asked_to_stop) throw_interrupted();
  return answers[0];
}

}  // namespace

MachineAnswer lead_meeting(const MeetingOfLaunchers& meeting, const MachineReport& own,
                           const MeetingDecision& decide) {
  const double until_s = now_s() + meeting.deadline_s;
  std::optional<std::vector<MachineAnswer>> decided;
  const MeetingDecision once = [&](const MachineReports& reports) {
    if (!decided) decided = decide(reports);
    return *decided;
  };
  for (;;) {
    try {
      return lead_once(meeting, own, once, until_s);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeer && error.code() != ErrorCode::kDeadline) throw;
      if (decided) return decided->front();
      if (requests(meeting) > 0) throw_interrupted();
      if (now_s() >= until_s + meeting.deadline_s) throw;
    }
    std::this_thread::sleep_for(kRetry);
  }
}

MachineAnswer attend_meeting(const MeetingOfLaunchers& meeting, int64_t node,
                             const MachineReport& own) {
  const std::string address = address_of_launchers(meeting.rendezvous);
  // Machine 0 waits for the others before it answers.
  const double wait_s = std::min(2 * meeting.deadline_s, ends_job(own) ? kEndIsHeardS : kNoLimitS);
  const double until_s = now_s() + wait_s;
  // Then the secret and the numbers are right, and what is refused now may be taken later: machine
  // 0 may not know yet that this machine's connection is broken.
  bool was_admitted = own.end.code != 0;
  bool was_heard = false;
  std::optional<Error> refusal;
  while (now_s() < until_s) {
    if (requests(meeting) > 0) throw_interrupted();
    std::optional<std::string> answer;
    try {
      comm::JobStore store(store_options(meeting, node, address));
      was_admitted = true;
      store.set(report_key(node), json_of(own).dump());
      was_heard = true;
      refusal.reset();
      while (!answer && now_s() < until_s && requests(meeting) == 0) {
        answer = look(store, answer_key(node), std::min(until_s - now_s(), kLookS));
      }
    } catch (const Error& error) {
      const bool is_refusal = error.code() == ErrorCode::kConfig;
      const bool may_pass =
          error.code() == ErrorCode::kPeer || error.code() == ErrorCode::kDeadline;
      if (!may_pass && !(is_refusal && was_admitted)) throw;
      refusal = is_refusal ? std::optional(error) : std::nullopt;
    }
    if (answer) return parse_answer(*answer);
    std::this_thread::sleep_for(kRetry);
  }
  if (ends_job(own)) return {};
  if (refusal) throw Error(*refusal);
  if (was_heard) {
    throw Error(ErrorCode::kDeadline,
                fmt::format("launch: machine 0 listened at {} and gave no answer within {} s: it "
                            "started without this machine, or ended (start this one again for the "
                            "next restart)",
                            address, wait_s));
  }
  throw Error(ErrorCode::kDeadline,
              fmt::format("launch: machine 0 did not listen at {} within {} s (is strata launch "
                          "running there, and with --max-restarts?)",
                          address, wait_s));
}

MachineCount machines_to_start(int64_t present, const MachineNeeds& needs) {
  const int64_t micro_batches =
      needs.nodes * needs.ranks / needs.same_data_ranks * needs.accumulate;
  const int64_t least = needs.min_ranks > 0 ? needs.min_ranks : needs.nodes * needs.ranks;
  for (int64_t nodes = present; nodes > 0 && nodes * needs.ranks >= least; --nodes) {
    const int64_t ranks = nodes * needs.ranks;
    const int64_t data_ranks = ranks / needs.same_data_ranks;
    const bool shares =
        ranks % needs.same_data_ranks == 0 &&
        (needs.shard_ranks == 0 || data_ranks * needs.context_ranks % needs.shard_ranks == 0);
    if (shares && micro_batches % data_ranks == 0) return {nodes, micro_batches / data_ranks};
  }
  return {};
}

}  // namespace strata::cli
