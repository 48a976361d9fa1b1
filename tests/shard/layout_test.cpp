// SPDX-License-Identifier: Apache-2.0
// The chunk table: chunks follow each other without a gap, mix no frozen element with a trained
// one, give every rank whole pages of every plane, and know the group of each element.
#include "engine/shard/layout.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/base/units.h"
#include "tests/support/random_runs.h"
#include "tests/support/seeds.h"

namespace strata::shard {
namespace {

constexpr int64_t kMi = int64_t{1} << 20;

// Parameters in up to three groups, some of them frozen.
model::ModelSpec grouped_spec(test::Draw& draw, int shards) {
  model::ModelSpec spec = model::build_spec(test::random_architecture(draw));
  for (model::Segment& segment : spec.segments) {
    for (model::Parameter& parameter : segment.parameters) {
      parameter.frozen = draw.below(3) == 0;
      parameter.group = static_cast<int>(draw.below(3));
    }
  }
  model::assign_offsets(spec, shards);
  return spec;
}

TEST(Layout, ChunksCoverEachSegmentOnceInOrder) {
  for (uint64_t seed = 1; seed <= test::seeds(50); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(seed);
    const int shards = static_cast<int>(draw.between(1, 9));
    const model::ModelSpec spec = grouped_spec(draw, shards);
    const Layout layout = make_layout(spec, shards);
    ASSERT_EQ(layout.shard_count, shards);
    ASSERT_EQ(layout.first_chunk.size(), spec.segments.size() + 1);
    ASSERT_EQ(layout.first_chunk.front(), 0);
    ASSERT_EQ(layout.first_chunk.back(), static_cast<int>(layout.chunks.size()));
    for (size_t s = 0; s < spec.segments.size(); ++s) {
      int64_t end = 0;
      for (int c = layout.first_chunk[s]; c < layout.first_chunk[s + 1]; ++c) {
        const Chunk& chunk = layout.chunks[c];
        ASSERT_EQ(chunk.segment, static_cast<int>(s));
        ASSERT_EQ(chunk.offset, end);
        ASSERT_EQ(chunk.numel % (int64_t{4096} * shards), 0);
        ASSERT_GT(chunk.numel, 0);
        ASSERT_EQ(layout.part_numel(c) * shards, chunk.numel);
        end += chunk.numel;
        const bool is_trained = end <= spec.segments[s].trainable_numel;
        ASSERT_EQ(chunk.frozen, !is_trained);
        ASSERT_TRUE(is_trained || chunk.offset >= spec.segments[s].trainable_numel);
      }
      ASSERT_EQ(end, spec.segments[s].numel());
    }
  }
}

// The run of each element of a parameter has that parameter's group.
TEST(Layout, RunsHaveTheGroupOfEveryElement) {
  for (uint64_t seed = 1; seed <= test::seeds(20); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(100 + seed);
    const int shards = static_cast<int>(draw.between(1, 4));
    const model::ModelSpec spec = grouped_spec(draw, shards);
    const Layout layout = make_layout(spec, shards);
    std::vector<std::vector<int>> groups;  // by segment and element
    for (const model::Segment& segment : spec.segments) {
      groups.emplace_back(static_cast<size_t>(segment.numel()), -1);
    }
    for (const Chunk& chunk : layout.chunks) {
      int64_t next = 0;
      for (const GroupRun& run : chunk.runs) {
        ASSERT_EQ(run.first, next);
        ASSERT_GT(run.count, 0);
        for (int64_t i = 0; i < run.count; ++i) {
          groups[chunk.segment][static_cast<size_t>(chunk.offset + run.first + i)] = run.group;
        }
        next += run.count;
      }
      ASSERT_EQ(next, chunk.numel);
    }
    for (size_t s = 0; s < spec.segments.size(); ++s) {
      for (const model::Parameter& parameter : spec.segments[s].parameters) {
        for (int64_t i = 0; i < parameter.numel; ++i) {
          ASSERT_EQ(groups[s][static_cast<size_t>(parameter.offset + i)], parameter.group)
              << parameter.name << "[" << i << "]";
        }
      }
    }
  }
}

// As large models have them: parts of 1 to 4 Mi elements, cut where checksum blocks end.
TEST(Layout, LargeSegmentsAreCutIntoPartsOfSomeMegabytes) {
  model::Architecture at;
  at.model_type = "llama";
  at.hidden = 8192;
  at.heads = 64;
  at.kv_heads = 8;
  at.head_size = 128;
  at.feed_forward = 28672;
  at.vocabulary = 128256;
  at.max_position = 8192;
  at.layers = 2;
  for (const int shards : {1, 3, 8, 64}) {
    SCOPED_TRACE(std::to_string(shards) + " shards");
    model::ModelSpec spec = model::build_spec(at);
    model::assign_offsets(spec, shards);
    const Layout layout = make_layout(spec, shards);
    for (size_t c = 0; c < layout.chunks.size(); ++c) {
      const Chunk& chunk = layout.chunks[c];
      const int64_t part = layout.part_numel(static_cast<int>(c));
      EXPECT_LE(part, 4 * kMi);
      const bool ends_segment = c + 1 == layout.chunks.size() || layout.chunks[c + 1].offset == 0;
      if (ends_segment) continue;  // the rest, of any size
      EXPECT_GE(part, kMi);
      EXPECT_EQ(part % 32768, 0);
      EXPECT_EQ(chunk.offset % (int64_t{32768} * shards), 0);
    }
  }
}

}  // namespace
}  // namespace strata::shard
