// SPDX-License-Identifier: Apache-2.0
#include "engine/base/check.h"
#include "engine/model/architecture.h"
#include "engine/model/family.h"

namespace strata::model {
namespace {

using config::Json;

const char* torch_name(DType dtype) {
  return dtype == DType::kF32 ? "float32" : dtype == DType::kBF16 ? "bfloat16" : "float16";
}

Json scaling_object(const Rope& rope) {
  if (rope.scaling == RopeScaling::kNone) return Json();
  const bool llama3 = rope.scaling == RopeScaling::kLlama3;
  Json object = Json::object();
  object.set("rope_type", llama3 ? "llama3" : "linear");
  object.set("factor", rope.factor);
  if (llama3) {
    object.set("low_freq_factor", rope.low_freq_factor);
    object.set("high_freq_factor", rope.high_freq_factor);
    object.set("original_max_position_embeddings", rope.original_max_position);
  }
  return object;
}

}  // namespace

Json write_config(const Architecture& a, DType dtype) {
  const Family* family = find_family_by_type(a.model_type);
  STRATA_CHECK(family != nullptr);
  Json json = Json::object();
  json.set("architectures", Json::Array{Json(family->architecture)});
  json.set("model_type", a.model_type);
  json.set("hidden_size", a.hidden);
  json.set("intermediate_size", a.feed_forward);
  json.set("num_hidden_layers", a.layers);
  json.set("num_attention_heads", a.heads);
  json.set("num_key_value_heads", a.kv_heads);
  json.set("head_dim", a.head_size);
  json.set("vocab_size", a.vocabulary);
  json.set("max_position_embeddings", a.max_position);
  if (family->window_rule == WindowRule::kAll) {
    json.set("sliding_window", a.window > 0 ? Json(a.window) : Json());
  }
  json.set("hidden_act", "silu");
  json.set("rms_norm_eps", a.norm_eps);
  json.set("rope_theta", a.rope.theta);
  json.set("rope_scaling", scaling_object(a.rope));
  if (family->attention_bias == BiasRule::kConfig) json.set("attention_bias", a.attention_bias);
  if (family->mlp_bias) json.set("mlp_bias", a.mlp_bias);
  json.set("tie_word_embeddings", a.tied);
  json.set("torch_dtype", torch_name(dtype));
  return json;
}

Json with_dtype(Json json, DType dtype) {
  const bool new_spelling = json.find("dtype") != nullptr;
  json.set(new_spelling ? "dtype" : "torch_dtype", torch_name(dtype));
  return json;
}

}  // namespace strata::model
