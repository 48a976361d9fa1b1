// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>

#include "engine/base/rng.h"
#include "engine/model/architecture.h"
#include "engine/model/family.h"
#include "engine/model/stage.h"
#include "engine/model/tensor_slice.h"
#include "engine/plan/input.h"
#include "engine/plan/placement.h"
#include "engine/plan/planner.h"

// Small random models and runs, by seed, for testing properties that must hold for all of them.
namespace strata::test {

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  int64_t below(int64_t count) {
    return static_cast<int64_t>(random_.u64(next_++) % static_cast<uint64_t>(count));
  }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool coin() { return below(2) == 1; }
  double uniform() { return random_.uniform(next_++); }

 private:
  Philox random_;
  uint64_t next_ = 0;
};

inline model::Architecture random_architecture(Draw& draw) {
  model::Architecture at;
  at.model_type = "llama";
  at.kv_heads = draw.between(1, 3);
  at.heads = at.kv_heads * draw.between(1, 3);
  at.head_size = 2 * draw.between(2, 8);
  at.hidden = draw.between(8, 48);
  at.layers = draw.between(1, 4);
  at.feed_forward = draw.between(16, 96);
  at.vocabulary = draw.between(17, 400);
  at.max_position = 64;
  at.tied = draw.coin();
  return at;
}

// longrope on a part of each head; the longer of the drawn lengths uses the long factors.
inline void become_long(Draw& draw, model::Architecture& at) {
  at.rope.scaling = model::RopeScaling::kLongRope;
  at.rope.original_max_position = 8;
  at.rope.attention_factor = 1.2;
  at.rope.rotary = draw.coin() ? at.head_size - 2 : 0;
  const int64_t pairs = (at.rope.rotary > 0 ? at.rope.rotary : at.head_size) / 2;
  for (int64_t i = 0; i < pairs; ++i) {
    at.rope.short_factor.push_back(1.0 + draw.uniform());
    at.rope.long_factor.push_back(2.0 + draw.uniform());
  }
}

// Makes a model one of a family, with random values for what its config.json may say.
inline void become_family(Draw& draw, const model::Family& family, model::Architecture& at) {
  at.model_type = family.model_type;
  at.block = family.block;
  at.activation = family.activation;
  if (family.window_rule != model::WindowRule::kNone) at.window = draw.between(0, 6);
  const bool by_layer = family.window_rule == model::WindowRule::kSwitch ||
                        family.window_rule == model::WindowRule::kPattern;
  for (int64_t layer = 0; by_layer && layer < at.layers; ++layer) {
    at.windowed.push_back(draw.coin());
  }
  at.norm = family.norm;
  at.position = family.position;
  if (family.partial_rotary) {
    become_long(draw, at);
  } else if (draw.coin()) {
    at.rope.scaling = model::RopeScaling::kYarn;
    at.rope.factor = 4;
    at.rope.original_max_position = 8;
    at.rope.attention_factor = 1.14;
  }
  if (family.window_theta) at.window_rope = model::Rope{.theta = 50};
  if (family.score_scalar) at.score_scalar = draw.uniform() + 4;
  if (family.score_cap) at.score_cap = draw.uniform() + 1;
  if (family.logit_cap && draw.coin()) at.logit_cap = draw.uniform() + 2;
  const auto may_have = [&](model::BiasRule rule) {
    return rule == model::BiasRule::kAll || (rule == model::BiasRule::kConfig && draw.coin());
  };
  at.attention_bias =
      family.attention_bias == model::BiasRule::kQueryKeyValue || may_have(family.attention_bias);
  at.output_bias = at.attention_bias && family.attention_bias != model::BiasRule::kQueryKeyValue;
  at.mlp_bias = may_have(family.mlp_bias);
  at.pad_token = draw.between(-1, 3);
}

// Becomes a model of this family whose blocks `ranks` tensor ranks can divide.
inline void become_sliceable(Draw& draw, const model::Family& family, int ranks,
                             model::Architecture& at) {
  become_family(draw, family, at);
  const bool norms_heads = at.block.qk_norm == model::QkNorm::kProjection;
  at.heads *= ranks;
  at.kv_heads =
      norms_heads || draw.coin() ? at.kv_heads * ranks : int64_t{1} << draw.between(0, ranks / 4);
  at.feed_forward *= ranks;
}

inline model::Architecture sliceable_architecture_of(Draw& draw, const model::Family& family,
                                                     int ranks) {
  model::Architecture at = random_architecture(draw);
  become_sliceable(draw, family, ranks, at);
  return at;
}

// The same of some family; without `may_norm_heads`, of one that takes context ranks too.
inline model::Architecture sliceable_architecture(Draw& draw, int ranks,
                                                  bool may_norm_heads = true) {
  std::vector<const model::Family*> families;
  for (const model::Family& family : model::families()) {
    const bool norms_heads = family.block.qk_norm == model::QkNorm::kProjection;
    if (!norms_heads || may_norm_heads) families.push_back(&family);
  }
  model::Architecture at = random_architecture(draw);
  const auto which = static_cast<size_t>(draw.below(static_cast<int64_t>(families.size())));
  become_sliceable(draw, *families[which], ranks, at);
  return at;
}

inline model::ModelSpec random_spec_of(Draw& draw, const model::Architecture& architecture,
                                       int shards, bool may_freeze) {
  model::ModelSpec spec = model::build_spec(architecture);
  if (may_freeze && draw.below(3) == 0) {
    for (model::Segment& segment : spec.segments) {
      for (model::Parameter& parameter : segment.parameters) parameter.frozen = draw.below(4) == 0;
    }
  }
  model::assign_offsets(spec, shards);
  return spec;
}

// A model of which some parameters may be frozen, with offsets for `shards`.
inline model::ModelSpec random_spec(Draw& draw, int shards, bool may_freeze) {
  return random_spec_of(draw, random_architecture(draw), shards, may_freeze);
}

// A tensor slice of a random model of some family, with offsets for `shards`.
inline model::ModelSpec random_slice(Draw& draw, const model::TensorSlice& slice, int shards,
                                     bool may_norm_heads = true) {
  const model::Architecture at = sliceable_architecture(draw, slice.ranks, may_norm_heads);
  model::ModelSpec spec = model::tensor_slice(random_spec_of(draw, at, 1, true), slice);
  model::assign_offsets(spec, shards);
  return spec;
}

inline plan::PlanInput random_input(Draw& draw, const model::ModelSpec& spec, int world) {
  plan::PlanInput input;
  input.spec = &spec;
  input.recipe = draw.coin() ? Recipe::kFp32 : Recipe::kBf16;
  input.shape = {draw.between(1, 2), draw.between(4, 16)};
  input.micro_batches = static_cast<int>(draw.between(1, 3));
  input.mode = draw.coin() ? plan::OptimizerMode::kDeferred : plan::OptimizerMode::kInBackward;
  input.device.discrete = draw.below(3) == 0;
  input.mesh.world = world;
  input.mesh.zero_stage = static_cast<int>(draw.between(0, 3));
  input.device.threads = 2;
  input.io_depth = static_cast<int>(draw.between(1, 8));
  input.nvme_budget = int64_t{1} << 40;
  input.frozen_in_source = draw.coin();
  input.shape.documents = draw.below(3) == 0;
  const bool may_scale = input.mode == plan::OptimizerMode::kDeferred;
  if (may_scale && draw.below(4) == 0) input.recipe = Recipe::kFp16;
  if (world > 1) input.device.peers = draw.coin();
  return input;
}

// An architecture that so many sections can divide, and tensor ranks too. Its head may be tied.
inline model::Architecture stageable_architecture(Draw& draw, int sections, int tensor) {
  model::Architecture architecture = sliceable_architecture(draw, tensor);
  architecture.layers = draw.between(sections, sections + 2);
  architecture.windowed.clear();
  return architecture;
}

// What a stage has of a model.
inline model::ModelSpec stage_of(const model::ModelSpec& whole, int stages, int laps, int stage,
                                 int shards) {
  model::ModelSpec spec = model::stage_slice(
      whole, stage,
      model::divide(whole, model::route_of(whole, stages, laps), {1, 8}, Recipe::kFp32, {}));
  model::assign_offsets(spec, shards);
  return spec;
}

inline model::ModelSpec random_stage(Draw& draw, int stages, int laps, int stage, int shards) {
  const model::ModelSpec whole =
      random_spec_of(draw, stageable_architecture(draw, stages * laps, 1), 1, true);
  return stage_of(whole, stages, laps, stage, shards);
}

// Micro-batches of a pipeline of several stages, or of one, in windows.
inline void pass_in_windows(Draw& draw, plan::PlanInput& input) {
  input.windows.count = static_cast<int>(draw.between(1, 5));
  input.windows.order = static_cast<plan::PipelineOrder>(draw.between(0, 2));
  input.micro_batches = input.windows.count * static_cast<int>(draw.between(1, 2));
}

// The placement with which all others are compared.
inline plan::Placement all_in_memory(const plan::PlanInput& input) {
  plan::Placement placement = plan::smallest_placement(input);
  std::fill(placement.hi_in_host.begin(), placement.hi_in_host.end(), 1);
  std::fill(placement.state_in_host.begin(), placement.state_in_host.end(), 1);
  std::fill(placement.grad_in_host.begin(), placement.grad_in_host.end(), 1);
  std::fill(placement.checkpoint_in_host.begin(), placement.checkpoint_in_host.end(), 1);
  return placement;
}

// Makes the device the home of each segment with a probability of `odds` / 4.
inline void make_homes(int64_t odds, Draw& draw, const plan::PlanInput& input,
                       plan::Placement& placement) {
  for (char& home : placement.home_on_device) home = draw.below(4) < odds;
  plan::Placement least = placement;
  plan::PlacementSearch(input).size_rings(least, 0);
  placement.state_ring = std::max(placement.state_ring, least.state_ring);
}

// A random placement: the smallest one with random flags, and rings that hold what is live. Every
// placement must give correct results.
inline plan::Placement random_placement(Draw& draw, const plan::PlanInput& input) {
  const plan::Placement largest = plan::smallest_placement(input);
  plan::Placement placement = largest;
  const auto scatter = [&](std::vector<char>& flags) {
    const int64_t odds = draw.between(0, 4);
    for (char& flag : flags) flag = draw.below(4) < odds;
  };
  scatter(placement.hi_in_host);
  if (input.device.discrete) scatter(placement.hi_on_device);
  scatter(placement.state_in_host);
  if (input.mode == plan::OptimizerMode::kDeferred) scatter(placement.grad_in_host);
  scatter(placement.keep);
  scatter(placement.checkpoint_in_host);
  placement.activations_on_device = !input.device.discrete || draw.coin();
  placement.sums_on_device = !input.device.discrete || draw.coin();
  const int64_t longer = draw.between(1, 3);
  placement.weights_ring *= longer;
  placement.state_ring *= draw.between(1, 4);
  placement.gradient_ring *= longer;
  placement.activation_ring *= draw.between(1, 4);
  placement.write_behind = draw.coin();
  placement.two_sides = draw.coin();
  if (input.device.discrete) make_homes(draw.between(0, 4), draw, input, placement);
  return placement;
}

}  // namespace strata::test
