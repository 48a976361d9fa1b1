// SPDX-License-Identifier: Apache-2.0
#include "engine/shard/layout.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace strata::shard {
namespace {

constexpr int64_t kGranule = 4096;    // elements; keeps every plane of a part on whole pages
constexpr int64_t kBoundary = 32768;  // elements; keeps chunk boundaries on checksum blocks
constexpr int64_t kSmallPart = int64_t{1} << 20;
constexpr int64_t kLargePart = int64_t{4} << 20;
constexpr int64_t kLargeSegment = int64_t{256} << 20;

// Parameter groups of [begin, end) of a segment. Padding belongs to the parameter before it.
std::vector<GroupRun> runs_of(const model::Segment& segment, int64_t begin, int64_t end,
                              bool frozen) {
  std::vector<GroupRun> runs;
  for (const model::Parameter& parameter : segment.parameters) {
    if (parameter.frozen != frozen) continue;
    const int64_t first = std::max(parameter.offset, begin);
    if (first >= end || parameter.offset + parameter.numel <= begin) continue;
    if (!runs.empty() && runs.back().group == parameter.group) continue;
    const int64_t at = runs.empty() ? 0 : first - begin;
    runs.push_back({at, 0, parameter.group});
  }
  if (runs.empty()) runs.push_back({0, 0, 0});
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].count = (i + 1 < runs.size() ? runs[i + 1].first : end - begin) - runs[i].first;
  }
  return runs;
}

// Elements of a segment that are alike.
struct Stretch {
  int64_t begin = 0;
  int64_t numel = 0;
  bool frozen = false;
  bool whole = false;
};

// Cuts a stretch into chunks whose parts have 1 to 4 Mi elements, or into one smaller chunk.
void cut(const model::ModelSpec& spec, int segment, const Stretch& stretch, Layout& layout) {
  const auto& [begin, numel, frozen, whole] = stretch;
  if (numel == 0) return;
  STRATA_CHECK(numel % (kGranule * layout.shard_count) == 0);
  const int64_t part = share_of(numel, layout.shard_count);
  const int64_t target = numel >= kLargeSegment ? kLargePart / 2 : kSmallPart;
  const int64_t count = std::max<int64_t>(1, part / target);
  const int64_t piece =
      round_up(ceil_div(part, count), count > 1 ? kBoundary : kGranule) * layout.shard_count;
  for (int64_t at = 0; at < numel; at += piece) {
    Chunk chunk;
    chunk.segment = segment;
    chunk.offset = begin + at;
    chunk.numel = std::min(piece, numel - at);
    chunk.frozen = frozen;
    chunk.whole = whole;
    chunk.runs = runs_of(spec.segments[segment], chunk.offset, chunk.offset + chunk.numel, frozen);
    layout.chunks.push_back(std::move(chunk));
  }
}

}  // namespace

Layout make_layout(const model::ModelSpec& spec, int shard_count) {
  Layout layout;
  layout.shard_count = shard_count;
  for (size_t s = 0; s < spec.segments.size(); ++s) {
    const model::Segment& segment = spec.segments[s];
    layout.first_chunk.push_back(static_cast<int>(layout.chunks.size()));
    const int64_t sliced = segment.trainable_numel - segment.whole_numel;
    for (const Stretch& stretch :
         {Stretch{0, sliced, false, false}, Stretch{sliced, segment.whole_numel, false, true},
          Stretch{segment.trainable_numel, segment.frozen_numel, true, false}}) {
      cut(spec, static_cast<int>(s), stretch, layout);
    }
  }
  layout.first_chunk.push_back(static_cast<int>(layout.chunks.size()));
  return layout;
}

}  // namespace strata::shard
