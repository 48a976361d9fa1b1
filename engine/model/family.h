// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/model/spec.h"

// The families of models: what a config.json leaves out, and what the tensors are called. A family
// is a row of the table in family.cpp.
namespace strata::model {

// Names of the tensors; "{}" stands for the block's index. A matrix is called NAME.weight, its bias
// NAME.bias.
struct TensorNames {
  const char* embedding;
  const char* attention_norm;
  const char* query;
  const char* key;
  const char* value;
  const char* output;
  const char* mlp_norm;
  const char* gate;
  const char* up;
  const char* down;
  const char* final_norm;
  const char* head;
};

// Which products of attention have a bias.
enum class BiasRule : uint8_t {
  kNone,
  kConfig,         // all four where "attention_bias" says so
  kQueryKeyValue,  // always, and none of the output
};

// What "sliding_window" means.
enum class WindowRule : uint8_t {
  kNone,
  kAll,     // the window of all layers; null for none
  kSwitch,  // of some layers where "use_sliding_window" says so
};

struct Family {
  const char* architecture;  // as in config.json's "architectures"
  const char* model_type;
  // What a missing member of config.json means.
  double norm_eps;
  int64_t kv_heads;  // 0: as many as heads
  int64_t max_position;
  int64_t window;
  WindowRule window_rule;
  BiasRule attention_bias;
  bool mlp_bias;  // where "mlp_bias" says so
  const TensorNames* names;
};

// Null when there is none.
const Family* find_family_by_architecture(std::string_view architecture);
const Family* find_family_by_type(std::string_view model_type);

// "LlamaForCausalLM, MistralForCausalLM": for messages.
std::string family_names();

}  // namespace strata::model
