// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/model/spec.h"

// The families of models: their properties that config.json leaves out, and the names of their
// tensors. A family is a row of the table in family.cpp.
namespace strata::model {

// Names of tensors, with "{}" for the block's index; null when the family has no such tensor. A
// matrix is stored as NAME.weight, its bias as NAME.bias. Parameters with the same name are parts
// of one tensor, in the order of their rows.
struct TensorNames {
  const char* embedding;
  const char* position;
  const char* attention_norm;
  const char* query;
  const char* key;
  const char* value;
  const char* query_norm;
  const char* key_norm;
  const char* output;
  const char* attention_post_norm;
  const char* mlp_norm;
  const char* gate;
  const char* up;
  const char* down;
  const char* mlp_post_norm;
  const char* final_norm;
  const char* head;
  bool transposed;     // matrices of blocks are stored as their transposes
  const char* prefix;  // a prefix that some files leave out; may be null
};

// Members of config.json whose names differ between families.
struct MemberNames {
  const char* hidden = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* feed_forward = "intermediate_size";
  const char* max_position = "max_position_embeddings";
  const char* norm_eps = "rms_norm_eps";
  const char* activation = "hidden_act";
};

// Which products of attention, or of the MLP, have a bias.
enum class BiasRule : uint8_t {
  kNone,
  kConfig,         // all, if "attention_bias" or "mlp_bias" is true
  kQueryKeyValue,  // always q, k and v, never the output
  kAll,            // always all
};

// What "sliding_window" means.
enum class WindowRule : uint8_t {
  kNone,
  kAll,      // all layers have the window; null: no layer has one
  kSwitch,   // layers from "max_window_layers" on have it, if "use_sliding_window" is true
  kPattern,  // all layers except every `window_pattern`-th have it
};

struct Family {
  const char* architecture;  // as in config.json's "architectures"
  const char* model_type;
  Block block = {};
  Norm norm = Norm::kRms;
  Position position = Position::kRope;

  // Values for missing members of config.json.
  double norm_eps = 1e-6;
  int64_t heads = 0;       // 0: the member is required
  int64_t vocabulary = 0;  // 0: the member is required
  int64_t kv_heads = 0;    // 0: as many as heads
  int64_t head_size = 0;   // 0: hidden / heads
  int64_t max_position = 0;
  int64_t window = 0;
  int64_t window_pattern = 0;
  int64_t full_layers = 28;  // "max_window_layers"
  double rope_theta = 10000.0;
  bool tied = false;
  kernels::Activation activation = kernels::Activation::kSilu;
  int64_t feed_forward_ratio = 0;  // feed_forward / hidden; 0: the member is required

  // Members that not every family has. A number is the value of a missing member; nullopt: the
  // family does not have the member.
  MemberNames members = {};
  WindowRule window_rule = WindowRule::kNone;
  bool window_pattern_member = false;  // "sliding_window_pattern" replaces window_pattern
  bool partial_rotary = false;
  int64_t original_position = 0;            // "original_max_position_embeddings"; 0: max_position
  std::optional<double> window_theta = {};  // windowed layers have a RoPE of their own
  std::optional<double> score_scalar = {};
  std::optional<double> score_cap = {};
  std::optional<double> logit_cap = {};
  BiasRule attention_bias = BiasRule::kNone;
  std::optional<int64_t> pad_token = -1;
  BiasRule mlp_bias = BiasRule::kNone;
  const TensorNames* names = nullptr;
};

// Both return null when no family matches.
const Family* find_family_by_architecture(std::string_view architecture);
const Family* find_family_by_type(std::string_view model_type);

std::span<const Family> families();

// "LlamaForCausalLM, MistralForCausalLM": for messages.
std::string family_names();

}  // namespace strata::model
