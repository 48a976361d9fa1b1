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

// What the launching process says of this one.
struct LaunchedRank {
  train::MeetingPlace place;
  int launcher = 0;
};

std::optional<LaunchedRank> launched_rank() {
  const char* meeting = std::getenv(kMeeting);
  if (meeting == nullptr) return std::nullopt;
  const auto rank = number_of(kRank), ranks = number_of(kRanks), launcher = number_of(kLauncher);
  if (!rank || !ranks || !launcher) return std::nullopt;
  return LaunchedRank{{meeting, *rank, *ranks}, *launcher};
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
  const std::optional<LaunchedRank> launched = launched_rank();
  return launched && launched->launcher == getppid() && launched->place.rank > 0;
}

std::unique_ptr<train::Job> job_of_environment(const config::Options& options) {
  const std::optional<LaunchedRank> launched = launched_rank();
  if (!launched) return nullptr;
  const train::MeetingPlace& place = launched->place;
  if (options.ranks != place.ranks || place.rank >= place.ranks) {
    throw Error(ErrorCode::kConfig,
                fmt::format("ranks: {}: rank {} of a job of {} was started (give --ranks to strata "
                            "launch alone)",
                            options.ranks, place.rank, place.ranks));
  }
  end_with(launched->launcher);
  return std::make_unique<train::Job>(place);
}

}  // namespace strata::cli
