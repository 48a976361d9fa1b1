// SPDX-License-Identifier: Apache-2.0
// The weights of a checkpoint, part after part: every element as it was written, of however many
// ranks and in whatever parts; a damaged block is an error in its place; and nobody hangs who goes
// early.
#include "engine/checkpoint/weight_stream.h"

#include <gtest/gtest.h>

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/shard/layout.h"
#include "tests/support/small_model.h"
#include "tests/support/temporary_directory.h"

namespace strata::checkpoint {
namespace {

namespace fs = std::filesystem;

class NoFrozen : public exec::StateSource {
 public:
  void read(const exec::ChunkState&) override { ADD_FAILURE() << "nothing is frozen"; }
};

float weight_of(int segment, int64_t element) {
  return 1e-3f * static_cast<float>(element % 9973) - static_cast<float>(segment);
}

class Weights : public testing::Test {
 protected:
  // A segment of several parts, whose chunks end elsewhere than parts.
  Weights() {
    model::Architecture at = test::small_llama();
    at.vocabulary = 160'000;
    spec_ = model::build_spec(at);
  }

  // Returns the path of a checkpoint that so many ranks wrote.
  std::string write(Recipe recipe, int world) {
    model::assign_offsets(spec_, world);
    const shard::Layout layout = shard::make_layout(spec_, world);
    CheckpointCommit commit(directory_.path(), 1, checkpoint_bytes(spec_, recipe));
    std::vector<StateFile> files;
    for (int rank = 0; rank < world; ++rank) {
      CheckpointWriter writer(spec_, layout,
                              {.partial = commit.partial(),
                               .nonce = commit.nonce(),
                               .mesh = {.world = world, .rank = rank},
                               .recipe = recipe});
      for (size_t i = 0; i < layout.chunks.size(); ++i) write_part(writer, layout, i, rank, recipe);
      files.push_back(writer.close());
    }
    return commit.commit({.spec = &spec_,
                          .recipe = recipe,
                          .mesh = {.world = world},
                          .run = "",
                          .trainer = config::Json::object(),
                          .files = files});
  }

  void write_part(CheckpointWriter& writer, const shard::Layout& layout, size_t index, int rank,
                  Recipe recipe) {
    const shard::Chunk& chunk = layout.chunks[index];
    const int64_t count = layout.part_numel(static_cast<int>(index));
    std::vector<float> hi(static_cast<size_t>(count)), lo(hi.size());
    std::vector<float> moment1(hi.size()), moment2(hi.size());
    exec::ChunkState state;
    state.segment = chunk.segment;
    state.chunk = static_cast<int>(index);
    state.recipe = recipe;
    state.hi_first = state.state_first = chunk.offset + rank * count;
    state.hi_count = state.state_count = count;
    state.hi = hi.data();
    state.lo = state.has_masters() ? nullptr : lo.data();
    state.exp_avg = moment1.data();
    state.exp_avg_sq = moment2.data();
    exec::fill_chunk(state, [&](int64_t element) { return weight_of(chunk.segment, element); });
    writer.write(state);
  }

  CheckpointReader reader(const std::string& path, Recipe recipe) {
    return CheckpointReader(path, spec_, recipe, frozen_);
  }

  bool is_padding(int segment, int64_t element) const {
    const auto& parameters = spec_.segments[static_cast<size_t>(segment)].parameters;
    return std::ranges::none_of(parameters, [&](const model::Parameter& one) {
      return element >= one.offset && element < one.offset + one.numel;
    });
  }

  // Every element of a part is right, and padding is zero; returns how many there are.
  int64_t expect_right(const exec::ChunkState& part, bool wants_lo) const {
    EXPECT_EQ(part.lo != nullptr, wants_lo && !part.has_masters());
    for (int64_t i = 0; i < part.hi_count; ++i) {
      const int64_t element = part.hi_first + i;
      const float weight =
          is_padding(part.segment, element) ? 0.0f : weight_of(part.segment, element);
      float master = 0;
      uint16_t hi = 0, lo = 0;
      WeightPlanes wanted = part.planes_at(element, true);
      const WeightPlanes found = wanted;
      if (found.master) wanted.master = &master;
      if (found.hi) wanted.hi = &hi;
      if (found.lo) wanted.lo = &lo;
      wanted.set(0, weight);
      if ((!found.master || *found.master == master) && (!found.hi || *found.hi == hi) &&
          (!found.lo || *found.lo == lo)) {
        continue;
      }
      ADD_FAILURE() << "element " << element << " of segment " << part.segment;
      break;
    }
    return part.hi_count;
  }

  model::ModelSpec spec_;
  const test::TemporaryDirectory directory_;
  NoFrozen frozen_;
};

TEST_F(Weights, AreThereEachOnceInOrder) {
  const auto wants_lo = [](const model::Segment& segment) { return segment.name != "head"; };
  for (const RecipePlanes& planes : kRecipeTable) {
    const Recipe recipe = planes.recipe;
    for (const int world : {1, 3}) {
      SCOPED_TRACE(testing::Message() << world << " ranks");
      CheckpointReader checkpoint = reader(write(recipe, world), recipe);
      WeightStream weights(checkpoint, spec_, wants_lo);
      std::vector<int64_t> seen(spec_.segments.size());
      size_t most_parts = 0, parts = 0;
      int last = 0;
      while (const exec::ChunkState* part = weights.next()) {
        const auto segment = static_cast<size_t>(part->segment);
        ASSERT_GE(part->segment, last);
        parts = part->segment == last ? parts + 1 : 1;
        most_parts = std::max(most_parts, parts);
        last = part->segment;
        ASSERT_EQ(part->hi_first, seen[segment]);
        seen[segment] += expect_right(*part, wants_lo(spec_.segments[segment]));
      }
      EXPECT_GE(most_parts, 3u) << "a large segment comes in parts";
      for (size_t s = 0; s < seen.size(); ++s)
        EXPECT_EQ(seen[s], spec_.segments[s].trainable_numel);
      EXPECT_EQ(weights.next(), nullptr) << "and it stays at its end";
    }
  }
}

TEST_F(Weights, BeforeADamagedBlockComeAndThenItsError) {
  const std::string path = write(Recipe::kBf16, 1);
  const CheckpointManifest manifest = read_manifest(path);
  const StateExtent* last = nullptr;
  for (const StateExtent& extent : manifest.files[0].extents) {
    if (extent.plane == Plane::kHi) last = &extent;
  }
  ASSERT_NE(last, nullptr);
  {
    std::fstream file(path + "/" + manifest.files[0].name,
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(last->offset);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(last->offset);
    file.put(byte);
  }
  CheckpointReader checkpoint = reader(path, Recipe::kBf16);
  WeightStream weights(checkpoint, spec_, [](const model::Segment&) { return false; });
  int64_t elements = 0;
  try {
    while (const exec::ChunkState* part = weights.next()) elements += expect_right(*part, false);
    ADD_FAILURE() << "a damaged block was used";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_NE(std::string(error.what()).find("a checksum is wrong (plane "), std::string::npos)
        << error.what();
  }
  EXPECT_GT(elements, WeightStream::kPartElements);
}

TEST_F(Weights, NobodyWaitsForAStreamThatGoesEarly) {
  const std::string path = write(Recipe::kBf16, 1);
  for (const int wanted : {0, 1, 2}) {
    CheckpointReader checkpoint = reader(path, Recipe::kBf16);
    WeightStream weights(checkpoint, spec_, [](const model::Segment&) { return true; });
    for (int i = 0; i < wanted; ++i) ASSERT_NE(weights.next(), nullptr);
  }
}

}  // namespace
}  // namespace strata::checkpoint
