// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/launched_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "bindings/cli/job_secret.h"
#include "bindings/cli/temporary_directory.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/plural.h"
#include "engine/comm/message_auth.h"

namespace strata::cli {
namespace {

// When launching processes have met, in which their ranks do.
constexpr int64_t kRanksMeetS = 60;

std::string own_host() {
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Where the ranks of one machine meet. Rank 0 makes it, and removes it when all are there; this
// process removes it where rank 0 did not.
class MeetingDirectory {
 public:
  MeetingDirectory() = default;
  ~MeetingDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  MeetingDirectory(const MeetingDirectory&) = delete;
  MeetingDirectory& operator=(const MeetingDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  const std::string path_ = temporary_base() + "/strata-job-" + comm::random_text().substr(0, 16);
};

MachineNeeds needs_of(const config::Options& launch, const config::Options& train) {
  const bool shards_follow = train.is_given("mesh") && !keeps_shards(train);
  return {.nodes = launch.nodes,
          .ranks = launch.ranks,
          .accumulate = train.accumulate,
          .same_data_ranks = train.tensor_ranks * train.pipeline_ranks * train.context_ranks,
          .context_ranks = train.context_ranks,
          .shard_ranks = shards_follow ? 0 : train.shard_ranks,
          .min_ranks = launch.min_ranks};
}

// Fewer machines must be possible where --min-ranks asks for them.
void require_use(const MachineNeeds& needs) {
  if (needs.nodes == 1 || needs.min_ranks == 0 ||
      needs.min_ranks > (needs.nodes - 1) * needs.ranks) {
    return;
  }
  if (machines_to_start(needs.nodes - 1, needs).nodes > 0) return;
  const auto refuse = [&](const std::string& groups) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--min-ranks {}: fewer than {} machines with {} each cannot form "
                            "groups of {}",
                            needs.min_ranks, needs.nodes, counted(needs.ranks, "rank"), groups));
  };
  if (needs.ranks % needs.same_data_ranks != 0) {
    refuse(
        fmt::format("{} for --tensor-ranks, --context-ranks and --pipeline-ranks (leave "
                    "--min-ranks out)",
                    needs.same_data_ranks));
  }
  MachineNeeds one_copy = needs;
  one_copy.shard_ranks = 0;
  if (machines_to_start(needs.nodes - 1, one_copy).nodes > 0) {
    refuse(
        fmt::format("{} that share a copy of the state (lower --shard-ranks or shard of --mesh, "
                    "or leave --min-ranks out)",
                    counted(needs.shard_ranks, "rank")));
  }
  throw Error(
      ErrorCode::kUsage,
      fmt::format("--min-ranks {}: the {} micro-batches of a step cannot be shared out equally "
                  "among fewer than {} machines (raise --accumulate, or leave --min-ranks out)",
                  needs.min_ranks,
                  needs.nodes * needs.ranks / needs.same_data_ranks * needs.accumulate,
                  needs.nodes));
}

// Of all reports the one that says most: a rank that failed by itself, and first what is final.
std::optional<size_t> failed_first(const MachineReports& reports) {
  std::optional<size_t> found;
  for (size_t node = 0; node < reports.size(); ++node) {
    const auto& report = reports[node];
    if (!report || report->end.code == 0) continue;
    const bool is_own = report->end.rank >= 0;
    const bool says_more =
        !found || (is_own && (is_final(report->end) || reports[*found]->end.rank < 0));
    if (says_more) found = node;
  }
  return found;
}

std::vector<size_t> absent_of(const MachineReports& reports) {
  std::vector<size_t> absent;
  for (size_t node = 0; node < reports.size(); ++node) {
    if (!reports[node]) absent.push_back(node);
  }
  return absent;
}

}  // namespace

LaunchedRun::LaunchedRun(const config::Options& launch, std::vector<std::string> command,
                         const config::Options& train, bool ends_with_input)
    : launch_(launch),
      needs_(needs_of(launch, train)),
      meets_(launch.nodes > 1 && launch.max_restarts > 0),
      ends_with_input_(ends_with_input),
      launcher_(ends_with_input ? STDIN_FILENO : -1),
      run_(std::move(command), train),
      rule_(launch.max_restarts) {
  require_use(needs_);
}

int LaunchedRun::run() {
  MachineReport own = {.host = own_host()};
  for (;;) {
    const MachineAnswer answer = next_start(own);
    if (!answer.line.empty()) log(LogLevel::kWarning, answer.line);
    if (!answer.starts) return own.end.code != 0 ? own.end.code : kPeerIsGone;
    own.end = start(answer);
    requests_seen_ = launcher_.requests();
    own.is_asked_to_stop = requests_seen_ > 0;
    if (own.end.code == 0) return code_of_end();
  }
}

// Ranks end with 0 when they were stopped, too. By a file of hosts, a machine that is asked alone
// has lost its connection.
int LaunchedRun::code_of_end() const {
  if (!ends_with_input_ || requests_seen_ > 0 || run_.is_complete()) return 0;
  log(LogLevel::kWarning,
      "launch: another machine lost its connection, and so the run was stopped (resume it)");
  return kPeerIsGone;
}

RanksEnd LaunchedRun::start(const MachineAnswer& answer) {
  const int64_t ranks = answer.nodes * launch_.ranks;
  const StartedRank first = {.rank = static_cast<int>(answer.node * launch_.ranks),
                             .ranks = static_cast<int>(ranks),
                             .ranks_on_node = static_cast<int>(launch_.ranks)};
  std::optional<MeetingDirectory> meeting;
  LaunchedJob job = {.rendezvous = launch_.rendezvous,
                     .secret_file = launch_.secret_file,
                     .interface = launch_.interface,
                     .deadline_s = launch_.rendezvous_deadline};
  if (meets_) job.deadline_s = std::min(job.deadline_s, kRanksMeetS);
  if (launch_.nodes == 1) job = {.meeting = meeting.emplace().path()};
  was_started_ = true;
  return launcher_.run(run_.arguments({.ranks = ranks,
                                       .accumulate = answer.accumulate,
                                       .resumes = answer.resumes,
                                       .changes_ranks = answer.changes_ranks}),
                       job, first);
}

MachineAnswer LaunchedRun::next_start(const MachineReport& own) {
  if (!meets_) return answer_alone(own);
  const MeetingOfLaunchers meeting = {
      .rendezvous = launch_.rendezvous,
      .secret =
          launch_.secret_file.empty() ? secret_of_environment() : read_secret(launch_.secret_file),
      .nodes = launch_.nodes,
      .deadline_s = static_cast<double>(launch_.rendezvous_deadline),
      .requests = [this] { return launcher_.requests() - requests_seen_; }};
  if (launch_.node_rank > 0) return attend_meeting(meeting, launch_.node_rank, own);
  return lead_meeting(meeting, own,
                      [this](const MachineReports& reports) { return answer_all(reports); });
}

// Without other launching processes that decide: one machine, or each by itself without restarts.
MachineAnswer LaunchedRun::answer_alone(const MachineReport& own) {
  const int64_t node = launch_.nodes > 1 ? launch_.node_rank : 0;
  if (!was_started_) return {.starts = true, .node = node, .nodes = launch_.nodes};
  if (own.is_asked_to_stop || launch_.max_restarts == 0) {
    return {.line = own.end.signal != 0 ? "launch: " + own.end.text() : ""};
  }
  return next({.end = own.end, .host = own.host, .step = run_.step()}, {.nodes = 1});
}

MachineAnswer LaunchedRun::next(const StartFailure& failure, const MachineCount& count) {
  const int64_t ranks = count.nodes * launch_.ranks;
  const RestartAnswer answer = rule_.answer(failure, ranks);
  const bool changes = std::ranges::any_of(ranks_had_, [&](int64_t had) { return had != ranks; });
  if (answer.again) ranks_had_.insert(ranks);
  return {.starts = answer.again,
          .line = answer.line,
          .nodes = count.nodes,
          .accumulate = count.accumulate,
          .resumes = run_.has_directory(),
          .changes_ranks = changes};
}

MachineAnswer LaunchedRun::decide(const MachineReports& reports, MachineCount count) {
  const std::vector<size_t> absent = absent_of(reports);
  const std::optional<size_t> failed = failed_first(reports);
  const int64_t present = launch_.nodes - static_cast<int64_t>(absent.size());
  const int64_t ranks = count.nodes * launch_.ranks;
  const std::string who = absent.empty()
                              ? ""
                              : fmt::format("{} {} did not come within {} s",
                                            plural(static_cast<int64_t>(absent.size()), "machine"),
                                            fmt::join(absent, ", "), launch_.rendezvous_deadline);
  const bool is_over = std::ranges::any_of(
      reports, [](const auto& report) { return report && report->is_asked_to_stop; });
  if (is_over) return {.line = "launch: a machine was asked to end, and so the run ends"};
  if (count.nodes == 0 && (!failed || !is_final(reports[*failed]->end))) {
    return {.line = fmt::format("launch: {}, and {} alone cannot go on (lower --min-ranks, or "
                                "start that machine and resume the run)",
                                who, counted(present * launch_.ranks, "rank"))};
  }
  if (!was_started_) {
    ranks_had_.insert(ranks);
    MachineAnswer first = {.starts = true, .nodes = count.nodes, .accumulate = count.accumulate};
    if (!who.empty()) {
      first.line = fmt::format("launch: {}; the run has {}", who, counted(ranks, "rank"));
    }
    return first;
  }
  StartFailure failure = {.step = run_.step(), .text = who};
  if (failed) {
    failure.end = reports[*failed]->end;
    failure.host = reports[*failed]->host;
    if (failure.end.rank >= 0) failure.text.clear();
  }
  return next(failure, count);
}

// The decision, with the place of each machine in the start.
std::vector<MachineAnswer> LaunchedRun::answer_all(const MachineReports& reports) {
  const auto present =
      std::ranges::count_if(reports, [](const auto& one) { return one.has_value(); });
  MachineCount count = machines_to_start(present, needs_);
  if (count.nodes == launch_.nodes && ranks_had_.size() <= 1) count.accumulate = 0;
  const MachineAnswer all = decide(reports, count);
  std::vector<MachineAnswer> answers(reports.size(), all);
  int64_t place = 0;
  for (size_t node = 0; node < reports.size(); ++node) {
    if (!reports[node]) continue;
    answers[node].node = place++;
    if (!all.starts || answers[node].node < count.nodes) continue;
    answers[node].starts = false;
    answers[node].line = fmt::format(
        "launch: this machine is left out, because {} share the samples of a step and "
        "one more machine's do not (it may be started again for the next restart)",
        counted(count.nodes * launch_.ranks, "rank"));
  }
  return answers;
}

}  // namespace strata::cli
