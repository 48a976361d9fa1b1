// SPDX-License-Identifier: Apache-2.0
// GPT-2 and Phi-3: members, defaults and layouts of their own.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "engine/model/architecture.h"
#include "engine/model/freeze.h"
#include "tests/model/base_config.h"

namespace strata::model {
namespace {

using config::Json;

constexpr const char* kGpt2 = R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
    "n_embd": 48, "n_layer": 2, "n_head": 3, "vocab_size": 97%s})";

Architecture read_gpt2(const std::string& more) {
  std::string text = kGpt2;
  text.replace(text.find("%s"), 2, more);
  return read_architecture(Json::parse(text, "gpt2"), "config.json");
}

TEST(FamilyLayout, Gpt2HasNamesAndDefaultsOfItsOwn) {
  const Architecture a = read_gpt2("");
  EXPECT_EQ(a.norm, Norm::kLayer);
  EXPECT_EQ(a.position, Position::kLearned);
  EXPECT_EQ(a.activation, kernels::Activation::kGeluTanh);
  EXPECT_EQ(a.feed_forward, 4 * 48);
  EXPECT_EQ(a.max_position, 1024);
  EXPECT_EQ(a.head_size, 16);
  EXPECT_TRUE(a.tied && a.attention_bias && a.output_bias && a.mlp_bias && !a.block.gated);
  EXPECT_EQ(read_gpt2(R"(, "n_inner": 100)").feed_forward, 100);
  EXPECT_EQ(read_gpt2(R"(, "n_inner": null, "n_positions": 5)").max_position, 5);
  const Json written = write_config(a, DType::kF32);
  EXPECT_EQ(write_config(read_architecture(written, "again"), DType::kF32).dump(), written.dump());
  for (const char* variant :
       {R"(, "scale_attn_by_inverse_layer_idx": true)", R"(, "scale_attn_weights": false)",
        R"(, "add_cross_attention": true)", R"(, "activation_function": "relu")"}) {
    EXPECT_THROW(read_gpt2(variant), Error) << variant;
  }
}

constexpr const char* kLongRope = R"({"architectures": ["Phi3ForCausalLM"],
    "max_position_embeddings": 256, "original_max_position_embeddings": 64,
    "partial_rotary_factor": 0.75, "rope_scaling": {"type": "su", "short_factor": [1, 1.5, 2],
    "long_factor": [2, 3.5, 4]}})";

TEST(FamilyLayout, Phi3HasLongRopeAndPartsOfHeads) {
  const Architecture a = read(kLongRope);
  EXPECT_EQ(a.rope.scaling, RopeScaling::kLongRope);
  EXPECT_EQ(a.rope.rotary, 6);
  EXPECT_EQ(a.rope.original_max_position, 64);
  EXPECT_EQ(a.rope.long_factor, (std::vector<double>{2, 3.5, 4}));
  EXPECT_NEAR(a.rope.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(64.0)), 1e-12);
  const Json written = write_config(a, DType::kF32);
  EXPECT_EQ(write_config(read_architecture(written, "again"), DType::kF32).dump(), written.dump());
  EXPECT_EQ(read(R"({"architectures": ["Phi3ForCausalLM"], "sliding_window": 9})").window, 9);
  EXPECT_EQ(read(R"({"architectures": ["Phi3ForCausalLM"]})").window, 0);
  EXPECT_NE(error_of(R"({"architectures": ["Phi3ForCausalLM"], "rope_scaling": {"type": "longrope",
      "short_factor": [1, 1], "long_factor": [1, 1, 1, 1]}})")
                .find("short_factor: has 2 numbers, must have 4: one for each pair of the 8 "
                      "elements that RoPE rotates of head_dim 8"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"architectures": ["Phi3ForCausalLM"], "rope_scaling": {"type": "longrope",
      "short_factor": [1, 1, 1, 1]}})")
                .find("long_factor"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"partial_rotary_factor": 0.5})").find("partial_rotary_factor"),
            std::string::npos);
  for (const char* part :
       {"0.1", "0.4", "-1", "1.5"}) {  // of 8 elements: none, 3, and what is none
    EXPECT_NE(error_of((R"({"architectures": ["Phi3ForCausalLM"], "partial_rotary_factor": )" +
                        std::string(part) + "}")
                           .c_str())
                  .find("partial_rotary_factor"),
              std::string::npos)
        << part;
  }
}

TEST(FamilyLayout, FusedTensorsHavePartsInOrder) {
  const ModelSpec spec = build_spec(read(kLongRope));
  const Segment& attention = spec.segments[1];
  ASSERT_EQ(attention.parameters.size(), 5u);
  EXPECT_EQ(attention.parameters[1].name, "model.layers.0.self_attn.qkv_proj.weight[q]");
  const Storage& value = attention.parameters[3].stored;
  EXPECT_EQ(value.tensor, "model.layers.0.self_attn.qkv_proj.weight");
  EXPECT_EQ(value.shape, (std::vector<int64_t>{48 + 2 * 16, 48}));
  EXPECT_EQ(value.first, 48 + 16);
  EXPECT_FALSE(value.transposed);
  EXPECT_EQ(spec.segments[2].parameters[2].stored.first, 80);
}

TEST(FamilyLayout, Gpt2StoresMatricesOfBlocksTransposed) {
  const ModelSpec spec = build_spec(read_gpt2(""));
  EXPECT_EQ(spec.segments[0].parameters[1].stored.tensor, "transformer.wpe.weight");
  EXPECT_FALSE(spec.segments[0].parameters[1].stored.transposed);
  const Segment& attention = spec.segments[1];
  ASSERT_EQ(attention.parameters.size(), 10u);
  EXPECT_EQ(attention.parameters[1].name, "transformer.h.0.ln_1.bias");
  const Parameter& key = attention.parameters[3];
  EXPECT_EQ(key.name, "transformer.h.0.attn.c_attn.weight[k]");
  EXPECT_EQ(key.shape, (std::vector<int64_t>{48, 48}));
  EXPECT_EQ(key.stored.shape, (std::vector<int64_t>{48, 144}));
  EXPECT_EQ(key.stored.first, 48);
  EXPECT_TRUE(key.stored.transposed);
  EXPECT_EQ(attention.parameters[6].name, "transformer.h.0.attn.c_attn.bias[k]");
  EXPECT_EQ(attention.parameters[6].stored.first, 48);
  EXPECT_EQ(spec.segments[2].parameters.size(), 6u);
}

TEST(FamilyLayout, ATensorsNameFreezesAllItsParts) {
  ModelSpec spec = build_spec(read(kLongRope));
  freeze_parameters(spec, R"(model\.layers\.0\.self_attn\.qkv_proj\.weight)", 1);
  for (size_t i = 1; i <= 3; ++i) EXPECT_TRUE(spec.segments[1].parameters[i].frozen);
  EXPECT_FALSE(spec.segments[1].parameters[4].frozen);
}

}  // namespace
}  // namespace strata::model
