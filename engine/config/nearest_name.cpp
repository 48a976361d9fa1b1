// SPDX-License-Identifier: Apache-2.0
#include "engine/config/nearest_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace strata::config {
namespace {

constexpr size_t kLongestName = 64;  // the search is quadratic, and no name of ours is longer

// Optimal string alignment: insert, delete, replace, swap neighbours. Both are at most
// kLongestName.
size_t edit_distance(std::string_view a, std::string_view b) {
  constexpr size_t kRow = kLongestName + 1;
  std::array<std::array<size_t, kRow>, 3> rows;  // of i - 2, i - 1 and i, taken in turn
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::array<size_t, kRow>& now = rows[i % 3];
    const std::array<size_t, kRow>& before = rows[(i + 2) % 3];
    const std::array<size_t, kRow>& two_before = rows[(i + 1) % 3];
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = before[j - 1] + (a[i - 1] != b[j - 1]);
      now[j] = std::min({before[j] + 1, now[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], two_before[j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

// The only name that begins with this one; empty when there is none or several, or it is short.
std::string_view only_completion(std::string_view name, std::span<const std::string_view> names) {
  constexpr size_t kShortest = 3;
  std::string_view only;
  for (const std::string_view candidate : names) {
    if (name.size() < kShortest || !candidate.starts_with(name)) continue;
    if (!only.empty()) return {};
    only = candidate;
  }
  return only;
}

}  // namespace

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names) {
  if (name.size() > kLongestName) return {};
  std::string_view nearest;
  size_t least = std::max<size_t>(1, (name.size() + 1) / 3) + 1;
  for (const std::string_view candidate : names) {
    const size_t longer = std::max(name.size(), candidate.size());
    const size_t shorter = std::min(name.size(), candidate.size());
    if (longer > kLongestName || longer - shorter >= least) continue;  // cannot be nearer
    const size_t distance = edit_distance(name, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  const std::string_view completion = least > 1 ? only_completion(name, names) : "";
  return completion.empty() ? nearest : completion;
}

std::string did_you_mean(std::string_view nearest, std::string_view otherwise) {
  if (!nearest.empty()) return fmt::format(" (did you mean {}?)", nearest);
  return otherwise.empty() ? "" : fmt::format(" ({})", otherwise);
}

}  // namespace strata::config
