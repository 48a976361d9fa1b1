// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/job_environment.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "engine/base/error.h"

extern char** environ;

namespace strata::cli {
namespace {

constexpr const char* kRank = "STRATA_RANK";
constexpr const char* kRanks = "STRATA_RANKS";
constexpr const char* kMeeting = "STRATA_MEETING";
constexpr const char* kLauncher = "STRATA_LAUNCHER";

std::optional<int> number_of(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* end = text + std::string_view(text).size();
  const auto [last, error] = std::from_chars(text, end, value);
  if (error == std::errc() && last == end && value >= 0) return value;
  throw Error(ErrorCode::kConfig, fmt::format("environment: {}: {}: is not a number (unset it, or "
                                              "start ranks with strata launch)",
                                              name, text));
}

// A rank whose launcher is gone would run on unseen.
void end_with(int launcher) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() == launcher) return;
  throw Error(ErrorCode::kPeer, "launch: the process that started this rank is gone");
}

}  // namespace

std::vector<std::string> environment_of(const train::MeetingPlace& place) {
  std::vector<std::string> all = {
      fmt::format("{}={}", kRank, place.rank), fmt::format("{}={}", kRanks, place.ranks),
      fmt::format("{}={}", kMeeting, place.directory), fmt::format("{}={}", kLauncher, getpid())};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view name =
        std::string_view(*variable).substr(0, std::string_view(*variable).find('='));
    const bool is_ours = name == kRank || name == kRanks || name == kMeeting || name == kLauncher;
    if (!is_ours) all.emplace_back(*variable);
  }
  return all;
}

bool is_following_rank() {
  const char* launcher = std::getenv(kLauncher);
  const bool launched = launcher != nullptr && number_of(kLauncher) == getppid();
  return launched && number_of(kRank).value_or(0) > 0;
}

std::unique_ptr<train::Job> job_of_environment(const config::Options& options) {
  const char* meeting = std::getenv(kMeeting);
  if (meeting == nullptr) return nullptr;
  const auto rank = number_of(kRank), ranks = number_of(kRanks), launcher = number_of(kLauncher);
  if (!rank || !ranks || !launcher) return nullptr;
  if (options.ranks != *ranks || *rank >= *ranks) {
    throw Error(ErrorCode::kConfig,
                fmt::format("ranks: {}: rank {} of a job of {} was started (give --ranks to strata "
                            "launch alone)",
                            options.ranks, *rank, *ranks));
  }
  end_with(*launcher);
  return std::make_unique<train::Job>(
      train::MeetingPlace{.directory = meeting, .rank = *rank, .ranks = *ranks});
}

}  // namespace strata::cli
