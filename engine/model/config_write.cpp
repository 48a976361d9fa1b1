// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "engine/base/check.h"
#include "engine/model/architecture.h"
#include "engine/model/config_rope.h"
#include "engine/model/family.h"

namespace strata::model {
namespace {

using config::Json;

const char* torch_name(DType dtype) {
  return dtype == DType::kF32 ? "float32" : dtype == DType::kBF16 ? "bfloat16" : "float16";
}

const char* config_name(kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kSilu:
      return "silu";
    case kernels::Activation::kGeluTanh:
      return "gelu_pytorch_tanh";
  }
  return "";
}

void write_windows(const Architecture& a, const Family& family, Json& json) {
  if (family.window_rule == WindowRule::kNone) return;
  if (family.window_rule == WindowRule::kSwitch) json.set("use_sliding_window", a.window > 0);
  json.set("sliding_window", a.window > 0 ? Json(a.window) : Json());
  if (a.window == 0 || family.window_rule == WindowRule::kAll) return;
  Json types = Json::array();
  for (int layer = 0; layer < a.layers; ++layer) {
    types.push_back(a.is_windowed(layer) ? "sliding_attention" : "full_attention");
  }
  json.set("layer_types", std::move(types));
}

// Transformers 5 requires an integer here and a fractional number for caps.
Json scalar_json(double value) {
  return value == std::floor(value) ? Json(static_cast<int64_t>(value)) : Json(value);
}

Json cap_json(double value) {
  return value == 0 ? Json() : Json(value);
}

}  // namespace

Json write_config(const Architecture& a, DType dtype) {
  const Family* family = find_family_by_type(a.model_type);
  STRATA_CHECK(family != nullptr);
  Json json = Json::object();
  json.set("architectures", Json::Array{Json(family->architecture)});
  json.set("model_type", a.model_type);
  const MemberNames& members = family->members;
  json.set(members.hidden, a.hidden);
  json.set(members.feed_forward, a.feed_forward);
  json.set(members.layers, a.layers);
  json.set(members.heads, a.heads);
  const bool plain = a.kv_heads == a.heads && a.heads * a.head_size == a.hidden;
  if (!plain || family->position == Position::kRope) {
    json.set("num_key_value_heads", a.kv_heads);
    json.set("head_dim", a.head_size);
  }
  json.set("vocab_size", a.vocabulary);
  json.set(members.max_position, a.max_position);
  write_windows(a, *family, json);
  json.set(members.activation, config_name(a.activation));
  json.set(members.norm_eps, a.norm_eps);
  if (a.position == Position::kRope) write_ropes(a, json);
  if (family->score_scalar) {
    const double head_size = static_cast<double>(a.head_size);
    json.set("query_pre_attn_scalar", scalar_json(a.score_scalar > 0 ? a.score_scalar : head_size));
  }
  if (family->score_cap) json.set("attn_logit_softcapping", cap_json(a.score_cap));
  if (family->logit_cap) json.set("final_logit_softcapping", cap_json(a.logit_cap));
  if (family->attention_bias == BiasRule::kConfig) json.set("attention_bias", a.attention_bias);
  if (family->mlp_bias == BiasRule::kConfig) json.set("mlp_bias", a.mlp_bias);
  if (a.pad_token >= 0 || family->pad_token.value_or(-1) >= 0) {
    json.set("pad_token_id", a.pad_token >= 0 ? Json(a.pad_token) : Json());
  }
  json.set("tie_word_embeddings", a.tied);
  json.set("torch_dtype", torch_name(dtype));
  return json;
}

Json with_dtype(Json json, DType dtype) {
  const bool new_spelling = json.find("dtype") != nullptr;
  json.set(new_spelling ? "dtype" : "torch_dtype", torch_name(dtype));
  for (config::JsonMember& member : json.members()) {
    if (member.name != "text_config" || !member.value.is_object()) continue;
    for (const char* name : {"dtype", "torch_dtype"}) {
      if (member.value.find(name) != nullptr) member.value.set(name, torch_name(dtype));
    }
  }
  return json;
}

}  // namespace strata::model
