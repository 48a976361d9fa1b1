// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/job_environment.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>

#include "bindings/cli/job_secret.h"
#include "bindings/cli/temporary_directory.h"
#include "engine/base/error.h"
#include "engine/base/shell_word.h"
#include "engine/comm/tcp_socket.h"

extern char** environ;

namespace strata::cli {
namespace {

constexpr const char* kMeeting = "STRATA_MEETING";
constexpr const char* kRendezvous = "STRATA_RENDEZVOUS";
constexpr const char* kSecretFile = "STRATA_SECRET_FILE";
constexpr const char* kSecret = "STRATA_SECRET";
constexpr const char* kInterface = "STRATA_INTERFACE";
constexpr const char* kDeadline = "STRATA_RENDEZVOUS_DEADLINE";

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// A rank whose launcher is gone would run on unseen.
void end_with(int launcher) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() == launcher) return;
  throw Error(ErrorCode::kPeer, "launch: the process that started this rank is gone");
}

// When a process started, in the kernel's ticks: with its number it names the process for all time.
std::string start_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  constexpr int kFields = 20;  // from the end of the name to the start
  size_t at = text.rfind(')');
  for (int i = 0; i < kFields && at != std::string::npos; ++i) at = text.find(' ', at + 1);
  return at == std::string::npos ? "" : text.substr(at + 1, text.find(' ', at + 1) - at - 1);
}

// The directory where ranks of one machine meet that nothing but their environment tells of each
// other: that of this user and job. Without a name for the job, it is that of the process that
// started them.
std::string meeting_of(const StartedRank& place) {
  std::string job = place.job;
  if (job.empty()) job = fmt::format("{}-{}", getppid(), start_of(getppid()));
  std::ranges::replace_if(
      job, [](unsigned char byte) { return std::isalnum(byte) == 0 && byte != '-'; }, '_');
  std::string starter = place.starter;
  std::erase(starter, ' ');
  return fmt::format("{}/strata-{}-{}-{}", temporary_base(), geteuid(), starter, job);
}

// NCCL, where the run uses it, listens on interfaces of its own choice unless its variable names
// one. A user's own choice stays.
void bind_nccl(const std::string& interface) {
  const std::string name = comm::interface_of(interface);
  if (!name.empty()) setenv("NCCL_SOCKET_IFNAME", ("=" + name).c_str(), 0);
}

double deadline_of_environment(double otherwise_s) {
  const std::string text = variable(kDeadline);
  if (text.empty()) return otherwise_s;
  int seconds = 0;
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, seconds);
  if (error == std::errc() && last == end && seconds > 0) return seconds;
  throw Error(ErrorCode::kConfig,
              fmt::format("environment: {}: {}: is not a number of seconds (300 is the default)",
                          kDeadline, text));
}

// MPI finds the ranks that it started itself, and no others.
void require_mpi_starter(const config::Options& options,
                         const std::optional<StartedRank>& started) {
  if (options.collectives != config::Collectives::kMpi || options.ranks == 1) return;
  if (started && started->launcher == 0) return;
  throw Error(ErrorCode::kConfig,
              fmt::format("collectives: mpi: {} (start them with mpirun -n {} strata "
                          "train --collectives mpi, or use --collectives tcp)",
                          started ? "strata launch started these ranks, and MPI does not know them"
                                  : "these ranks are threads, which exchange without it",
                          options.ranks));
}

}  // namespace

std::optional<StartedRank> rank_of_environment() {
  return started_rank([](const char* name) { return std::getenv(name); }, getppid());
}

std::vector<std::string> environment_of(const LaunchedJob& job, const StartedRank& rank) {
  std::vector<std::pair<const char*, std::string>> ours = {
      {kLaunchedRank, std::to_string(rank.rank)},
      {kLaunchedRanks, std::to_string(rank.ranks)},
      {kLaunchedOnNode, std::to_string(rank.ranks_on_node)},
      {kLauncherProcess, std::to_string(getpid())},
      {kMeeting, job.meeting},
      {kRendezvous, job.rendezvous}};
  if (!job.interface.empty()) ours.emplace_back(kInterface, job.interface);
  if (job.deadline_s > 0) ours.emplace_back(kDeadline, std::to_string(job.deadline_s));
  if (!job.secret_file.empty()) {
    ours.emplace_back(kSecretFile, job.secret_file);
    ours.emplace_back(kSecret, "");
  }
  std::vector<std::string> all;
  for (const auto& [name, value] : ours) {
    if (!value.empty()) all.push_back(fmt::format("{}={}", name, value));
  }
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view name =
        std::string_view(*each).substr(0, std::string_view(*each).find('='));
    const bool is_ours =
        std::ranges::any_of(ours, [&](const auto& own) { return name == own.first; });
    if (!is_ours) all.emplace_back(*each);
  }
  return all;
}

std::string secret_of_environment() {
  const std::string path = variable(kSecretFile);
  if (!path.empty()) return read_secret(path);
  const std::string secret = variable(kSecret);
  if (!secret.empty()) return secret;
  throw Error(
      ErrorCode::kConfig,
      fmt::format("--secret-file is missing: the ranks of several machines share a secret "
                  "(give strata launch --secret-file FILE, or set {}, with a file that only "
                  "you may read; make one with: (umask 077; openssl rand -hex 32 > FILE))",
                  kSecretFile));
}

std::string resuming_command(const config::Options& options) {
  const bool by_mpi = options.collectives == config::Collectives::kMpi;
  const std::string train = fmt::format("train --out {} --resume{}", shell_word(options.out),
                                        by_mpi ? " --collectives mpi" : "");
  const std::optional<StartedRank> started = rank_of_environment();
  if (!started) return "strata " + train;
  if (started->launcher == 0) {
    return fmt::format("strata {} (started by {} again)", train, started->starter);
  }
  if (started->nodes() == 1) {
    return fmt::format("strata launch --ranks {} -- {}", started->ranks, train);
  }
  if (!variable(kByHosts).empty()) {
    return fmt::format("strata launch --hosts FILE -- {} (FILE: that of this run)", train);
  }
  const std::string file = variable(kSecretFile);
  const std::string secret = file.empty() ? "" : " --secret-file " + shell_word(file);
  return fmt::format(
      "strata launch --nodes {} --node-rank K --rendezvous {}{} --ranks {} -- {} (K: 0 to {})",
      started->nodes(), variable(kRendezvous), secret, started->ranks_on_node, train,
      started->nodes() - 1);
}

std::unique_ptr<train::Job> job_of_environment(const config::Options& options) {
  const std::optional<StartedRank> started = rank_of_environment();
  require_mpi_starter(options, started);
  if (!started || started->nodes() == 1) bind_nccl("lo");
  if (!started) return nullptr;
  if (options.ranks != started->ranks) {
    throw Error(ErrorCode::kConfig,
                fmt::format("ranks: {}: {} started this process as one of {} (leave --ranks out)",
                            options.ranks, started->starter, started->ranks));
  }
  if (started->launcher > 0) end_with(started->launcher);
  train::MeetingPlace place = {
      .rank = started->rank, .ranks = started->ranks, .ranks_on_node = started->ranks_on_node};
  place.launcher = started->launcher;
  place.deadline_s = deadline_of_environment(place.deadline_s);
  place.collectives = options.collectives;
  place.plugin_path = options.plugin_path;
  place.directory = variable(kMeeting);
  if (started->launcher > 0 && !place.directory.empty()) {
    return std::make_unique<train::Job>(place);
  }
  place.directory.clear();
  place.address = variable(kRendezvous);
  if (place.address.empty() && started->nodes() == 1) {
    place.directory = meeting_of(*started);
    return std::make_unique<train::Job>(place);
  }
  if (place.address.empty()) place.address = started->address;
  if (place.address.empty()) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("ranks: {} started {} on {} machines, and where rank 0 listens is not "
                    "known (set {}=HOST:PORT, a port of the first machine, and {})",
                    started->starter, started->ranks, started->nodes(), kRendezvous, kSecretFile));
  }
  place.interface = variable(kInterface);
  if (!place.interface.empty()) bind_nccl(place.interface);
  place.secret = secret_of_environment();
  return std::make_unique<train::Job>(place);
}

}  // namespace strata::cli
