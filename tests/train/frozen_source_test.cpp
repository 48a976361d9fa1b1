// SPDX-License-Identifier: Apache-2.0
// Frozen weights that are read again are what they were, or the run ends.
#include "engine/checkpoint/frozen_source.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace strata::checkpoint {
namespace {

// Bytes that a test can change.
class Files : public exec::StateSource {
 public:
  void read(const exec::ChunkState& chunk) override {
    auto* hi = static_cast<uint16_t*>(chunk.hi);
    for (int64_t i = 0; i < chunk.hi_count; ++i) hi[i] = static_cast<uint16_t>(first + i);
  }
  uint16_t first = 1;
};

class FrozenWeights : public testing::Test {
 protected:
  FrozenWeights() {
    spec_.segments.resize(2);
    spec_.segments[1].name = "b0.mlp";
  }

  void read(int chunk) {
    exec::ChunkState state;
    state.segment = 1;
    state.chunk = chunk;
    state.frozen = true;
    state.hi_count = static_cast<int64_t>(weights_.size());
    state.hi = weights_.data();
    frozen_.read(state);
  }

  model::ModelSpec spec_;
  Files files_;
  FrozenSource frozen_{files_, spec_, "some/model"};
  std::vector<uint16_t> weights_ = std::vector<uint16_t>(1000);
};

TEST_F(FrozenWeights, AreReadAsOftenAsWanted) {
  for (int round = 0; round < 3; ++round) {
    for (int chunk : {4, 0, 7}) EXPECT_NO_THROW(read(chunk));
  }
  EXPECT_EQ(weights_[999], 1000);
}

TEST_F(FrozenWeights, ThatChangedAreAnErrorThatNamesThem) {
  read(0);
  read(3);
  files_.first = 2;
  try {
    read(3);
    FAIL() << "other weights were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_NE(std::string(error.what()).find("b0.mlp of some/model"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(read(0), Error);
  EXPECT_NO_THROW(read(1)) << "it was never read before";
}

}  // namespace
}  // namespace strata::checkpoint
