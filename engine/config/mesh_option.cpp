// SPDX-License-Identifier: Apache-2.0
#include "engine/config/mesh_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "engine/config/nearest_name.h"

namespace strata::config {
namespace {

constexpr std::array<std::string_view, 5> kAxes = {"shard", "replicate", "tensor", "pipeline",
                                                   "context"};
constexpr int64_t kRanksMax = 1 << 20;

struct Axes {
  std::array<int64_t, kAxes.size()> ranks = {};  // 0: not named

  int64_t of(std::string_view name) const { return std::max<int64_t>(1, named(name)); }
  int64_t named(std::string_view name) const {
    return ranks[static_cast<size_t>(std::ranges::find(kAxes, name) - kAxes.begin())];
  }
  int64_t product() const {
    int64_t all = 1;
    for (const int64_t each : ranks)
      all = std::min(kRanksMax + 1, all * std::max<int64_t>(1, each));
    return all;
  }
};

// Reads "tensor=2" into `axes`; returns what is wrong.
std::string add_axis(const std::string& item, Axes& axes) {
  const size_t equals = std::min(item.find('='), item.size());
  const std::string name = item.substr(0, equals);
  const auto axis = std::ranges::find(kAxes, name);
  if (axis == kAxes.end()) {
    return fmt::format(
        "{} is no axis{}", name,
        did_you_mean(nearest_name(name, kAxes),
                     fmt::format("give auto, or AXIS=N of {}", fmt::join(kAxes, ", "))));
  }
  const std::string number = item.substr(std::min(item.size(), equals + 1));
  int64_t ranks = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), ranks);
  const bool is_number = error == std::errc() && end == number.data() + number.size();
  if (!is_number || ranks < 1 || ranks > kRanksMax) {
    return fmt::format("{} is not a number of ranks (give {}=N with N from 1)", item, name);
  }
  int64_t& kept = axes.ranks[static_cast<size_t>(axis - kAxes.begin())];
  if (kept > 0) return fmt::format("{} is given twice (keep one)", name);
  kept = ranks;
  return "";
}

// Fills the ranks of the axes up to --ranks, and returns what is wrong.
std::string fit_ranks(const Options& options, Axes& axes) {
  if (axes.product() > kRanksMax) return "it has too many ranks (lower one of its numbers)";
  if (!options.is_given("ranks") || axes.product() == options.ranks) return "";
  if (axes.named("shard") == 0 && options.ranks % axes.product() == 0) {
    axes.ranks[0] = options.ranks / axes.product();
    return "";
  }
  return fmt::format("it has {} ranks, and --ranks is {} ({})", axes.product(), options.ranks,
                     axes.named("shard") > 0 ? "leave out shard, or give ranks that fit"
                                             : "give ranks that divide --ranks");
}

}  // namespace

void apply_mesh(Options& options, std::vector<std::string>& problems) {
  if (options.mesh.empty() || options.mesh == std::vector<std::string>{"auto"}) return;
  Axes axes;
  std::string wrong;
  for (const std::string& item : options.mesh) {
    if (wrong.empty()) wrong = add_axis(item, axes);
  }
  options.names_shards = axes.named("shard") > 0;
  if (wrong.empty()) wrong = fit_ranks(options, axes);
  const std::vector<std::string> given = std::exchange(options.mesh, {});
  if (!wrong.empty()) {
    problems.push_back(fmt::format("--mesh {}: {}", fmt::join(given, ","), wrong));
    return;
  }
  options.ranks = axes.product();
  options.tensor_ranks = axes.of("tensor");
  options.pipeline_ranks = axes.of("pipeline");
  options.context_ranks = axes.of("context");
  options.shard_ranks = axes.of("shard") * options.context_ranks;  // which share the state too
}

std::string mesh_text(const Options& options) {
  const std::pair<std::string_view, int64_t> axes[] = {
      {"shard", options.shards() / options.context_ranks},
      {"replicate", options.copies()},
      {"tensor", options.tensor_ranks},
      {"pipeline", options.pipeline_ranks},
      {"context", options.context_ranks}};
  std::string text;
  for (const auto& [name, ranks] : axes) {
    if (ranks > 1) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, ranks);
  }
  return text.empty() ? "shard=1" : text;
}

}  // namespace strata::config
