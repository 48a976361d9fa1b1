// SPDX-License-Identifier: Apache-2.0
// Describes the model of a checkpoint field by field, so that an error can say what differs.
#include <fmt/core.h>

#include "engine/base/check.h"
#include "engine/checkpoint/checkpoint_manifest.h"
#include "io/checksum.h"

namespace strata::checkpoint {
namespace {

using config::Json;

constexpr const char* kTableHash = "table_hash";

constexpr const char* kNorms[] = {"rms", "layer"};
constexpr const char* kActivations[] = {"silu", "gelu_tanh"};
constexpr const char* kPositions[] = {"rope", "learned"};
constexpr const char* kQkNorms[] = {"none", "head", "projection"};
constexpr const char* kRopeScalings[] = {"none", "linear", "llama3", "yarn", "longrope"};

template <typename Enum, size_t N>
Json name_in(const char* const (&names)[N], Enum value) {
  STRATA_CHECK(static_cast<size_t>(value) < N);
  return Json(names[static_cast<size_t>(value)]);
}

// A field with its default is left out, so that checkpoints from before the field existed still
// match.
template <typename Value>
void add_unless(const Value& usual, const char* name, const Value& value, Json& json) {
  if (value != usual) json.set(name, value);
}

void add_yarn(const std::string& prefix, const model::Rope& rope, Json& json) {
  if (rope.scaling != model::RopeScaling::kYarn) return;
  json.set(prefix + "attention_factor", rope.attention_factor);
  json.set(prefix + "beta_fast", rope.beta_fast);
  json.set(prefix + "beta_slow", rope.beta_slow);
  json.set(prefix + "truncate", rope.truncate);
}

std::string hash_of(const model::Rope& rope) {
  std::string factors;
  for (const auto* list : {&rope.short_factor, &rope.long_factor}) {
    for (const double factor : *list) factors += fmt::format("{} ", factor);
    factors += "\n";
  }
  return fmt::format("{:016x}", io::checksum_block(factors.data(), factors.size(), 0, 0));
}

void add_variants(const model::Architecture& at, Json& json) {
  const model::Block usual;
  add_unless(usual.pre_norm, "pre_norm", at.block.pre_norm, json);
  add_unless(usual.post_norm, "post_norm", at.block.post_norm, json);
  if (at.block.qk_norm != usual.qk_norm) json.set("qk_norm", name_in(kQkNorms, at.block.qk_norm));
  add_unless(usual.norm_offset, "norm_offset", at.block.norm_offset, json);
  add_unless(usual.gated, "gated", at.block.gated, json);
  add_unless(usual.scaled_embedding, "scaled_embedding", at.block.scaled_embedding, json);
  add_unless(0.0, "score_scalar", at.score_scalar, json);
  add_unless(0.0, "score_cap", at.score_cap, json);
  add_unless(0.0, "logit_cap", at.logit_cap, json);
  add_unless(int64_t{-1}, "pad_token", at.pad_token, json);
  add_yarn("rope_", at.rope, json);
  add_unless(int64_t{0}, "rope_rotary", at.rope.rotary, json);
  if (at.rope.scaling == model::RopeScaling::kLongRope) {
    json.set("rope_attention_factor", at.rope.attention_factor);
    json.set("rope_factors_hash", hash_of(at.rope));
  }
  if (!at.windowed.empty()) {
    std::string layers;
    for (const char windowed : at.windowed) layers += windowed ? 'w' : 'f';
    json.set("windowed", layers);
  }
  if (!at.window_rope) return;
  const model::Rope& rope = *at.window_rope;
  json.set("window_rope_theta", rope.theta);
  json.set("window_rope_scaling", name_in(kRopeScalings, rope.scaling));
  json.set("window_rope_factor", rope.factor);
  json.set("window_rope_low_freq_factor", rope.low_freq_factor);
  json.set("window_rope_high_freq_factor", rope.high_freq_factor);
  json.set("window_rope_original_max_position", rope.original_max_position);
  add_yarn("window_rope_", rope, json);
}

void add_architecture(const model::Architecture& at, Json& json) {
  json.set("model_type", at.model_type);
  json.set("hidden", at.hidden);
  json.set("layers", at.layers);
  json.set("heads", at.heads);
  json.set("kv_heads", at.kv_heads);
  json.set("head_size", at.head_size);
  json.set("feed_forward", at.feed_forward);
  json.set("vocabulary", at.vocabulary);
  json.set("max_position", at.max_position);
  json.set("window", at.window);
  json.set("norm", name_in(kNorms, at.norm));
  json.set("norm_eps", at.norm_eps);
  json.set("activation", name_in(kActivations, at.activation));
  json.set("position", name_in(kPositions, at.position));
  json.set("rope_theta", at.rope.theta);
  json.set("rope_scaling", name_in(kRopeScalings, at.rope.scaling));
  json.set("rope_factor", at.rope.factor);
  json.set("rope_low_freq_factor", at.rope.low_freq_factor);
  json.set("rope_high_freq_factor", at.rope.high_freq_factor);
  json.set("rope_original_max_position", at.rope.original_max_position);
  json.set("tied", at.tied);
  json.set("attention_bias", at.attention_bias);
  json.set("mlp_bias", at.mlp_bias);
  add_variants(at, json);
}

}  // namespace

Json model_identity(const model::ModelSpec& spec, Recipe recipe) {
  Json json = Json::object();
  json.set("recipe", name_of(recipe));
  add_architecture(spec.architecture, json);
  std::string table;
  int64_t tensors = 0, elements = 0, frozen_tensors = 0, frozen_elements = 0;
  for (const model::Segment& segment : spec.segments) {
    table += segment.name + "\n";
    for (const model::Parameter& parameter : segment.parameters) {
      table += parameter.name + (parameter.frozen ? " frozen" : "");
      for (const int64_t extent : parameter.shape) table += fmt::format(" {}", extent);
      table += "\n";
      ++tensors;
      elements += parameter.numel;
      frozen_tensors += parameter.frozen ? 1 : 0;
      frozen_elements += parameter.frozen ? parameter.numel : 0;
    }
  }
  json.set("tensors", tensors);
  json.set("parameters", elements);
  json.set("frozen_tensors", frozen_tensors);
  json.set("frozen_parameters", frozen_elements);
  json.set(kTableHash,
           fmt::format("{:016x}", io::checksum_block(table.data(), table.size(), 0, 0)));
  return json;
}

std::string identity_difference(const Json& saved, const Json& here) {
  if (!saved.is_object()) return "the checkpoint names no model";
  std::string text;
  const auto add = [&](const std::string& name, const Json* there, const Json* ours) {
    const std::string in_checkpoint = there ? there->dump() : "nothing";
    const std::string in_model = ours ? ours->dump() : "nothing";
    if (in_checkpoint == in_model) return;
    if (!text.empty() && name == kTableHash) return;  // it differs because the sizes do
    if (!text.empty()) text += "; ";
    text += fmt::format("{}: {} in the checkpoint, {} here", name, in_checkpoint, in_model);
  };
  for (const config::JsonMember& member : here.members()) {
    add(member.name, saved.find(member.name), &member.value);
  }
  for (const config::JsonMember& member : saved.members()) {
    if (here.find(member.name) == nullptr) add(member.name, &member.value, nullptr);
  }
  return text;
}

}  // namespace strata::checkpoint
