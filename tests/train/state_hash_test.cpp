// SPDX-License-Identifier: Apache-2.0
// The hash of a state says whether two states are equal, however they are cut.
#include <gtest/gtest.h>

#include <bit>

#include "engine/checkpoint/checkpoint_hash.h"
#include "engine/model/tensor_slice.h"
#include "tests/support/random_runs.h"
#include "tests/support/seeds.h"
#include "tests/train/written_checkpoint.h"

namespace strata::checkpoint {
namespace {

struct Cut {
  int tensor = 1;
  int shards = 1;
  Recipe recipe = Recipe::kFp32;
};

constexpr uint64_t kSeed = 5;

// Calls visit with the hash and every chunk of a rank before it is hashed; returns the sum of all
// ranks.
template <typename Visit>
uint64_t hash_of(const model::ModelSpec& whole, const Cut& cut, const Visit& visit) {
  uint64_t sum = 0;
  for (int rank = 0; rank < cut.tensor; ++rank) {
    model::ModelSpec slice = model::tensor_slice(whole, {rank, cut.tensor});
    model::assign_offsets(slice, cut.shards);
    const shard::Layout layout = shard::make_layout(slice, cut.shards);
    test::SliceSource source(slice, whole, kSeed);
    for (int part = 0; part < cut.shards; ++part) {
      StateHash hash(slice);
      for (size_t c = 0; c < layout.chunks.size(); ++c) {
        if (layout.chunks[c].frozen) continue;
        const ChunkMemory memory(layout, c, cut.recipe, part);
        fill(memory.state(), source);
        visit(memory.state());
        hash.write(memory.state());
      }
      sum += hash.value();
    }
  }
  return sum;
}

uint64_t hash_of(const model::ModelSpec& whole, const Cut& cut) {
  return hash_of(whole, cut, [](const exec::ChunkState&) {});
}

TEST(StateHash, IsTheSameHoweverTheStateIsCut) {
  for (uint64_t seed = 1; seed <= test::seeds(3); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(700 + seed);
    const model::ModelSpec whole =
        test::random_spec_of(draw, test::sliceable_architecture(draw, 4), 1, true);
    const uint64_t expected = hash_of(whole, {});
    for (const int tensor : {1, 2, 4}) {
      for (const int shards : {1, 3}) {
        for (const RecipePlanes& planes : kRecipeTable) {
          const Recipe recipe = planes.recipe;
          EXPECT_EQ(hash_of(whole, {tensor, shards, recipe}), expected)
              << tensor << " slices of " << shards << " shards";
        }
      }
    }
  }
}

// One bit of one element, and two elements that change places.
TEST(StateHash, IsAnotherForAnyOtherState) {
  test::Draw draw(1);
  const model::ModelSpec whole =
      test::random_spec_of(draw, test::sliceable_architecture(draw, 1), 1, false);
  const uint64_t expected = hash_of(whole, {});
  const auto changed = [&](const auto& change) {
    bool first = true;
    return hash_of(whole, {}, [&](const exec::ChunkState& chunk) {
      if (first) change(chunk);
      first = false;
    });
  };
  EXPECT_EQ(changed([](const exec::ChunkState&) {}), expected);
  using Values = float* (*)(const exec::ChunkState&);
  constexpr Values kArrays[] = {
      [](const exec::ChunkState& chunk) { return static_cast<float*>(chunk.hi); },
      [](const exec::ChunkState& chunk) { return chunk.exp_avg; },
      [](const exec::ChunkState& chunk) { return chunk.exp_avg_sq; }};
  for (const Values values : kArrays) {
    for (int bit = 0; bit < 32; ++bit) {
      EXPECT_NE(changed([&](const exec::ChunkState& chunk) {
                  float& value = values(chunk)[7];
                  value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ uint32_t{1} << bit);
                }),
                expected)
          << "bit " << bit;
    }
    EXPECT_NE(changed([&](const exec::ChunkState& chunk) {
                std::swap(values(chunk)[3], values(chunk)[4]);
              }),
              expected);
  }
}

}  // namespace
}  // namespace strata::checkpoint
