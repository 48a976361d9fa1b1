// SPDX-License-Identifier: Apache-2.0
// What two slices of a model have in common, by comparison with where each of their elements lies
// in the whole parameter.
#include "engine/model/slice_overlap.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "engine/model/tensor_slice.h"
#include "tests/support/seeds.h"
#include "tests/support/small_run.h"

namespace strata::model {
namespace {

using Elements = std::vector<std::pair<int64_t, int64_t>>;  // here, there

Elements common_by_search(const Parameter& here, int64_t first, int64_t count,
                          const Parameter& there) {
  std::map<int64_t, int64_t> by_place;
  for (int64_t e = 0; e < there.numel; ++e) by_place[whole_index(there, e)] = e;
  Elements found;
  for (int64_t e = first; e < first + count; ++e) {
    const auto at = by_place.find(whole_index(here, e));
    if (at != by_place.end()) found.emplace_back(e, at->second);
  }
  return found;
}

Elements common(const Parameter& here, int64_t first, int64_t count, const Parameter& there) {
  Elements found;
  for_each_overlap(here, first, count, there, [&](const SliceOverlap& both) {
    EXPECT_GT(both.count, 0);
    for (int64_t i = 0; i < both.count; ++i) {
      found.emplace_back(both.here + i, both.there + i);
    }
  });
  return found;
}

TEST(SliceOverlap, IsWhatLiesAtTheSamePlace) {
  int found = 0;
  for (uint64_t seed = 1; seed <= test::seeds(6); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(900 + seed);
    const ModelSpec whole = build_spec(test::sliceable_architecture(draw, 4));
    const auto draw_slice = [&] {
      const int ranks = 1 << draw.between(0, 2);
      return tensor_slice(whole, {static_cast<int>(draw.between(0, ranks - 1)), ranks});
    };
    const ModelSpec here = draw_slice(), there = draw_slice();
    for (size_t s = 0; s < whole.segments.size(); ++s) {
      for (const Parameter& ours : here.segments[s].parameters) {
        for (const Parameter& theirs : there.segments[s].parameters) {
          if (theirs.name != ours.name) continue;
          SCOPED_TRACE(ours.name);
          const int64_t first = draw.between(0, ours.numel - 1);
          const int64_t count = draw.between(0, ours.numel - first);
          const Elements all = common(ours, 0, ours.numel, theirs);
          EXPECT_EQ(all, common_by_search(ours, 0, ours.numel, theirs));
          EXPECT_EQ(common(ours, first, count, theirs),
                    common_by_search(ours, first, count, theirs));
          found += all.empty() ? 0 : 1;
        }
      }
    }
  }
  EXPECT_GT(found, 0);
}

// Rows that are whole in both slices are no more visits than one.
TEST(SliceOverlap, OfWholeRowsIsOneRun) {
  test::Draw draw(1);
  const ModelSpec whole = build_spec(test::sliceable_architecture(draw, 4));
  const ModelSpec half = tensor_slice(whole, {1, 2});
  for (size_t s = 0; s < whole.segments.size(); ++s) {
    for (const Parameter& ours : whole.segments[s].parameters) {
      for (const Parameter& theirs : half.segments[s].parameters) {
        if (theirs.name != ours.name || !has_whole_rows(theirs)) continue;
        int visits = 0;
        for_each_overlap(ours, 0, ours.numel, theirs, [&](const SliceOverlap&) { ++visits; });
        EXPECT_EQ(visits, 1) << ours.name;
      }
    }
  }
}

}  // namespace
}  // namespace strata::model
