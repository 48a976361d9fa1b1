// SPDX-License-Identifier: Apache-2.0
// Ranks that follow take the mesh that rank 0 has chosen.
#include "engine/session/mesh_setup.h"

#include <gtest/gtest.h>

#include "engine/config/mesh_option.h"
#include "engine/config/options.h"

namespace strata::session {
namespace {

TEST(MeshSetup, WhatRankZeroHasChosenIsTaken) {
  config::Options chosen;
  chosen.ranks = 96;
  chosen.tensor_ranks = 2;
  chosen.pipeline_ranks = 3;
  chosen.context_ranks = 4;
  chosen.shard_ranks = 8;
  chosen.accumulate = 24;
  train::JobTerms terms;
  terms.options = config::to_json(config::Command::kTrain, chosen);
  config::Options options;
  options.ranks = 96;
  take_mesh(terms, options);
  EXPECT_EQ(options.tensor_ranks, 1) << "a mesh was given";
  options.mesh = {"auto"};
  take_mesh(terms, options);
  EXPECT_TRUE(options.mesh.empty());
  EXPECT_EQ(options.accumulate, 24);
  EXPECT_EQ(config::mesh_text(options), config::mesh_text(chosen));
  EXPECT_EQ(config::mesh_text(options), "shard=2,replicate=2,tensor=2,pipeline=3,context=4");
}

}  // namespace
}  // namespace strata::session
