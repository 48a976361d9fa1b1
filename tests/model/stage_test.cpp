// SPDX-License-Identifier: Apache-2.0
// Stages of a pipeline: what each rank has of a model, and how even it is.
#include "engine/model/stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/model/architecture.h"

namespace strata::model {
namespace {

constexpr BatchShape kShape = {1, 64};

ModelSpec make_spec(int64_t layers, int64_t vocabulary, bool tied) {
  Architecture a;
  a.model_type = "llama";
  a.hidden = 128;
  a.layers = layers;
  a.heads = 8;
  a.kv_heads = 2;
  a.head_size = 16;
  a.feed_forward = 256;
  a.vocabulary = vocabulary;
  a.max_position = 512;
  a.tied = tied;
  return build_spec(a);
}

std::vector<ModelSpec> stages_of(const ModelSpec& whole, int ranks, int laps) {
  const Division division =
      divide(whole, route_of(whole, ranks, laps), kShape, Recipe::kFp32, {.threads = 2});
  std::vector<ModelSpec> stages;
  for (int rank = 0; rank < ranks; ++rank) {
    stages.push_back(stage_slice(whole, rank, division));
  }
  return stages;
}

int blocks_of(const ModelSpec& spec) {
  std::set<int> layers;
  for (const Segment& segment : spec.segments) layers.insert(segment.layer);
  layers.erase(-1);
  return static_cast<int>(layers.size());
}

TEST(Stage, RanksHaveEachSegmentOnceAndKnowItsNumber) {
  for (const bool tied : {false, true}) {
    for (const int laps : {1, 2, 3}) {
      const ModelSpec whole = make_spec(11, 300, tied);
      std::vector<int> times(whole.segments.size(), 0);
      for (const ModelSpec& stage : stages_of(whole, 3, laps)) {
        for (size_t s = 0; s < stage.segments.size(); ++s) {
          if (!is_computed(stage.segments[s].kind)) continue;
          const int number = stage.stage.whole_segment(static_cast<int>(s));
          ++times[static_cast<size_t>(number)];
          EXPECT_EQ(stage.segments[s].name, whole.segments[static_cast<size_t>(number)].name);
        }
      }
      EXPECT_EQ(std::ranges::count(times, 1), std::ssize(times)) << tied << " " << laps;
    }
  }
}

TEST(Stage, ATiedHeadIsWithItsEmbedding) {
  const std::vector<ModelSpec> stages = stages_of(make_spec(6, 300, true), 3, 2);
  const ModelSpec& last = stages.back();
  EXPECT_EQ(last.segments.front().kind, SegmentKind::kEmbedding);
  EXPECT_EQ(last.segments.back().kind, SegmentKind::kHead);
  EXPECT_EQ(last.segments.back().shares, 0);
  EXPECT_EQ(units_text(stages[0]), "b0 and b3");
  EXPECT_EQ(units_text(last), "embed and b2 and b5 to head");
}

// The head has about as many operations as 11 blocks.
TEST(Stage, ARankWithALargeHeadHasFewerBlocks) {
  const ModelSpec whole = make_spec(24, 16000, false);
  for (const int laps : {1, 2, 3}) {
    const std::vector<ModelSpec> stages = stages_of(whole, 3, laps);
    EXPECT_LE(blocks_of(stages.back()), laps + 1) << laps;
    EXPECT_LE(std::abs(blocks_of(stages[0]) - blocks_of(stages[1])), 1) << laps;
  }
}

}  // namespace
}  // namespace strata::model
