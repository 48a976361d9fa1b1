// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/model/architecture.h"

// A small Llama config.json, and what becomes of it with other members.
namespace strata::model {

inline constexpr const char* kBaseConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 48,
  "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 6,
  "num_key_value_heads": 2, "vocab_size": 97, "rms_norm_eps": 1e-05, "hidden_act": "silu",
  "max_position_embeddings": 64})";

// The base with members set. Another architecture has another model_type, which may be left out.
inline config::Json with(const char* members) {
  config::Json json = config::Json::parse(kBaseConfig, "base");
  if (std::string_view(members).find("\"architectures\"") != std::string_view::npos) {
    json.set("model_type", config::Json());
  }
  for (const config::JsonMember& member : config::Json::parse(members, "members").members()) {
    json.set(member.name, member.value);
  }
  return json;
}

inline Architecture read(const char* members) {
  return read_architecture(with(members), "config.json");
}

// What reading it is refused with; empty when it is not.
inline std::string error_of(const char* members) {
  try {
    read(members);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "";
}

}  // namespace strata::model
