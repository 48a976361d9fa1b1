// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/network_probe.h"

#include <algorithm>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/comm/gather_each.h"

namespace strata::comm {
namespace {

constexpr int64_t kFirstBytes = int64_t{256} << 10;  // that all ranks gather
constexpr int64_t kMostBytes = int64_t{32} << 20;
constexpr double kLongS = 0.2;  // of one gather; what a network lets pass at first is little of it
constexpr int kRounds = 5;
constexpr int kShortRounds = 25;

// The longest time of a rank in one gather.
double gather_s(Group& group, std::vector<char>& all) {
  group.barrier();
  const double begin_s = now_s();
  group.gather(all.data(), std::ssize(all) / group.size());
  return std::ranges::max(gather_each(group, now_s() - begin_s));
}

// The shortest, because other programs only add to it.
double least_gather_s(Group& group, std::vector<char>& all, int rounds) {
  double least_s = gather_s(group, all);
  for (int round = 1; round < rounds; ++round) least_s = std::min(least_s, gather_s(group, all));
  return least_s;
}

}  // namespace

// Gathers grow until one takes long enough. All ranks see the same times, so all grow together.
NetworkFigures measure_network(Group& group, int ranks_on_node) {
  const int64_t ranks = group.size();
  STRATA_CHECK(ranks > ranks_on_node && ranks % ranks_on_node == 0);
  std::vector<char> all(static_cast<size_t>(ranks));
  const double latency_s = least_gather_s(group, all, kShortRounds);
  int64_t part = std::max<int64_t>(1, kFirstBytes / ranks);
  all.resize(static_cast<size_t>(part * ranks));
  gather_s(group, all);  // connections are slow at first
  double longest_s = gather_s(group, all);
  while (longest_s < kLongS && 2 * part * ranks <= kMostBytes) {
    part *= 2;
    all.resize(static_cast<size_t>(part * ranks));
    longest_s = gather_s(group, all);
  }
  // Where a network is so fast that a gather is mostly latency, half of it counts as moving.
  const double whole_s = least_gather_s(group, all, kRounds);
  const double moving_s = std::max(whole_s - latency_s, whole_s / 2);
  // A machine sends its ranks' parts to each other machine once.
  const auto sent = static_cast<double>(ranks_on_node * part * (ranks / ranks_on_node - 1));
  return {sent / moving_s, latency_s};
}

}  // namespace strata::comm
