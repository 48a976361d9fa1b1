// SPDX-License-Identifier: Apache-2.0
// config.json in both spellings becomes the same architecture, its spec has the names, shapes and
// layout that the format promises, and what we do not compute is refused by name.
#include "engine/model/architecture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "engine/base/error.h"
#include "engine/model/freeze.h"
#include "tests/model/base_config.h"

namespace strata::model {
namespace {

using config::Json;

TEST(Architecture, ReadsShapesAndDefaults) {
  const Architecture a = read("{}");
  EXPECT_EQ(a.hidden, 48);
  EXPECT_EQ(a.head_size, 8);
  EXPECT_EQ(a.kv_heads, 2);
  EXPECT_EQ(a.norm_eps, 1e-5);
  EXPECT_EQ(a.rope.theta, 10000.0);
  EXPECT_FALSE(a.tied);
  EXPECT_EQ(read(R"({"num_key_value_heads": null})").kv_heads, 6);
  EXPECT_EQ(read(R"({"head_dim": null})").head_size, 8);
  EXPECT_EQ(read(R"({"head_dim": 16})").head_size, 16);
}

TEST(Architecture, BothSpellingsOfRopeAreTheSame) {
  const Architecture old = read(R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3",
      "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 32}})");
  const Architecture fresh = read(R"({"rope_parameters": {"rope_theta": 500000.0,
      "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 32}})");
  for (const Architecture& a : {old, fresh}) {
    EXPECT_EQ(a.rope.scaling, RopeScaling::kLlama3);
    EXPECT_EQ(a.rope.theta, 500000.0);
    EXPECT_EQ(a.rope.factor, 8.0);
    EXPECT_EQ(a.rope.original_max_position, 32);
  }
  EXPECT_EQ(read(R"({"rope_scaling": {"type": "linear", "factor": 2}})").rope.scaling,
            RopeScaling::kLinear);
}

TEST(Architecture, YarnSharpensAttentionByItsFactorOrAsTold) {
  const Rope plain = read(R"({"rope_scaling": {"type": "yarn", "factor": 4.0,
      "original_max_position_embeddings": 16}})")
                         .rope;
  EXPECT_EQ(plain.scaling, RopeScaling::kYarn);
  EXPECT_DOUBLE_EQ(plain.attention_factor, 0.1 * std::log(4.0) + 1.0);
  EXPECT_TRUE(plain.truncate && plain.beta_fast == 32 && plain.beta_slow == 1);
  const Rope told = read(R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 100.0,
      "factor": null, "original_max_position_embeddings": 16, "attention_factor": 0.8,
      "beta_fast": 8, "beta_slow": 2, "truncate": false}})")
                        .rope;
  EXPECT_EQ(told.factor, 4.0);  // of the 64 positions over the 16 original ones
  EXPECT_EQ(told.attention_factor, 0.8);
  EXPECT_FALSE(told.truncate);
  const Rope weighted = read(R"({"rope_scaling": {"rope_type": "yarn", "factor": 2.0,
      "mscale": 0.5, "mscale_all_dim": 2.0}})")
                            .rope;
  EXPECT_DOUBLE_EQ(weighted.attention_factor,
                   (0.05 * std::log(2.0) + 1) / (0.2 * std::log(2.0) + 1));
  EXPECT_EQ(weighted.original_max_position, 64);
}

TEST(Architecture, WindowsOfSomeLayersFollowTheirNamesOrTheFirstWindowedLayer) {
  const Architecture by_rule = read(R"({"architectures": ["Qwen2ForCausalLM"],
      "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1})");
  EXPECT_EQ(by_rule.window_of(0), 0);
  EXPECT_EQ(by_rule.window_of(1), 9);
  EXPECT_EQ(by_rule.window_of(-1), 0);  // the embedding's and the head's
  const Architecture by_name = read(R"({"architectures": ["Qwen2ForCausalLM"],
      "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1,
      "layer_types": ["sliding_attention", "full_attention"]})");
  EXPECT_EQ(by_name.window_of(0), 9);
  EXPECT_EQ(by_name.window_of(1), 0);
  const Architecture off = read(R"({"architectures": ["Qwen2ForCausalLM"],
      "use_sliding_window": false, "sliding_window": 9, "max_window_layers": 1})");
  EXPECT_EQ(off.window_of(1), 0);
}

TEST(Architecture, ThePadTokenIsThatOfTheEmbedding) {
  EXPECT_EQ(read("{}").pad_token, -1);
  EXPECT_EQ(read(R"({"pad_token_id": 2})").pad_token, 2);
  EXPECT_EQ(read(R"({"pad_token_id": null})").pad_token, -1);
  EXPECT_EQ(read(R"({"pad_token_id": -1})").pad_token, 96);
  EXPECT_EQ(read(R"({"pad_token_id": 97})").pad_token, -1);
}

TEST(Architecture, MistralWithoutMembersHasItsOwnDefaults) {
  const char* mistral = R"({"architectures": ["MistralForCausalLM"], "num_attention_heads": 8,
      "num_key_value_heads": null, "hidden_size": 64})";
  const Architecture a = read(mistral);
  EXPECT_EQ(a.kv_heads, 8);
  EXPECT_EQ(a.window, 4096);
  EXPECT_EQ(read(R"({"architectures": ["MistralForCausalLM"], "num_attention_heads": 16,
      "num_key_value_heads": null, "hidden_size": 64})")
                .kv_heads,
            16);
  EXPECT_EQ(read(R"({"architectures": ["MistralForCausalLM"], "sliding_window": null})").window, 0);
}

// Transformers has it of Gemma 3 alone.
TEST(Architecture, LayersOfGemma2AlternateWhateverThePatternSays) {
  const std::string gemma2 = R"({"architectures": ["Gemma2ForCausalLM"], "head_dim": 8,
      "num_hidden_layers": 4)";
  EXPECT_EQ(read((gemma2 + R"(, "sliding_window_pattern": 3})").c_str()).windowed,
            read((gemma2 + "}").c_str()).windowed);
}

TEST(Architecture, GemmaIsTheSameInBothSpellings) {
  const char* old = R"({"architectures": ["Gemma3ForCausalLM"], "head_dim": 8, "rope_theta": 5e5,
      "rope_local_base_freq": 100.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
      "sliding_window": 9, "sliding_window_pattern": 2, "query_pre_attn_scalar": 16})";
  const char* fresh = R"({"architectures": ["Gemma3ForCausalLM"], "head_dim": 8,
      "rope_parameters": {
          "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
          "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}},
      "sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"],
      "query_pre_attn_scalar": 16})";
  for (const char* members : {old, fresh}) {
    const Architecture a = read(members);
    EXPECT_EQ(a.rope_of(0).theta, 100.0);
    EXPECT_EQ(a.rope_of(0).scaling, RopeScaling::kNone);
    EXPECT_EQ(a.rope_of(1).theta, 5e5);
    EXPECT_EQ(a.rope_of(1).scaling, RopeScaling::kLinear);
    EXPECT_EQ(a.window_of(0), 9);
    EXPECT_EQ(a.window_of(1), 0);
    EXPECT_EQ(a.score_scalar, 16);
    EXPECT_TRUE(a.tied && a.block.norm_offset && a.block.post_norm && a.block.pre_norm);
    EXPECT_EQ(a.activation, kernels::Activation::kGeluTanh);
    EXPECT_EQ(a.logit_cap, 0);
    EXPECT_EQ(a.pad_token, 0);
  }
  EXPECT_EQ(read(R"({"architectures": ["Gemma3ForCausalLM"]})").rope_of(0).theta, 1e4);
}

TEST(Architecture, CapsOfGemma2AreItsOwnUnlessNull) {
  const Architecture usual = read(R"({"architectures": ["Gemma2ForCausalLM"]})");
  EXPECT_EQ(usual.score_cap, 50);
  EXPECT_EQ(usual.logit_cap, 30);
  EXPECT_EQ(usual.head_size, 256);
  EXPECT_EQ(usual.window_of(0), 4096);
  EXPECT_EQ(usual.window_of(1), 0);
  const Architecture none = read(R"({"architectures": ["Gemma2ForCausalLM"],
      "attn_logit_softcapping": null, "final_logit_softcapping": null})");
  EXPECT_EQ(none.score_cap, 0);
  EXPECT_EQ(none.logit_cap, 0);
}

TEST(Architecture, BiasesFollowTheFamily) {
  const Architecture llama = read(R"({"attention_bias": true})");
  EXPECT_TRUE(llama.attention_bias && llama.output_bias && !llama.mlp_bias);
  EXPECT_TRUE(read(R"({"mlp_bias": true})").mlp_bias);
  const Architecture qwen =
      read(R"({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": false,
      "sliding_window": 4096, "layer_types": ["full_attention", "full_attention"]})");
  EXPECT_TRUE(qwen.attention_bias && !qwen.output_bias && !qwen.mlp_bias);
  EXPECT_EQ(qwen.window, 0);
}

TEST(Architecture, WhatIsNotComputedIsRefusedByName) {
  EXPECT_NE(error_of(R"({"architectures": ["Mamba2ForCausalLM"]})").find("Mamba2ForCausalLM"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"architectures": ["Mamba2ForCausalLM"]})").find("LlamaForCausalLM"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"quantization_config": {"bits": 4}})").find("bf16"), std::string::npos);
  EXPECT_NE(error_of(R"({"hidden_act": "gelu"})").find("gelu"), std::string::npos);
  EXPECT_NE(error_of(R"({"architectures": ["MistralForCausalLM"], "attention_bias": true})")
                .find("attention_bias"),
            std::string::npos);
  EXPECT_NE(
      error_of(R"({"layer_types": ["full_attention", "sliding_attention"]})").find("layer_types"),
      std::string::npos);
  EXPECT_NE(error_of(R"({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": true,
      "layer_types": ["full_attention", "chunked_attention"]})")
                .find("chunked_attention"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": true,
      "layer_types": ["full_attention"]})")
                .find("layer_types"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"architectures": ["MistralForCausalLM"], "sliding_window": 0})")
                .find("sliding_window: is 0"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"architectures": ["Gemma2ForCausalLM"], "attn_logit_softcapping": 0.0})")
                .find("attn_logit_softcapping: must not be 0"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"rope_scaling": {"rope_type": "dynamic", "factor": 2}})").find("dynamic"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"final_logit_softcapping": 30.0})").find("final_logit_softcapping"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"architectures": ["Gemma3ForCausalLM"], "attn_logit_softcapping": 50.0})")
                .find("attn_logit_softcapping"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"architectures": ["Gemma3ForCausalLM"],
      "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}})")
                .find("sliding_attention"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"architectures": ["LlavaForConditionalGeneration"], "text_config": {}})")
                .find("save its text model"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"use_bidirectional_attention": true})").find("bidirectional"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}})")
                .find("full_attention"),
            std::string::npos);
}

TEST(Architecture, APartOfAHeadIsRefusedByThePathOfItsMember) {
  EXPECT_NE(error_of(R"({"partial_rotary_factor": 0.5})")
                .find("config.json: partial_rotary_factor: 0.5: only 1 is supported"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"rope_parameters": {"partial_rotary_factor": 0.5}})")
                .find("config.json: rope_parameters.partial_rotary_factor: 0.5"),
            std::string::npos);
}

TEST(Architecture, NumbersThatCannotBeAreRefusedByName) {
  const struct {
    const char* members;
    const char* named;
  } cases[] = {
      {R"({"num_attention_heads": 5, "num_key_value_heads": 1})", "num_attention_heads"},
      {R"({"num_key_value_heads": 4})", "num_key_value_heads"},
      {R"({"num_key_value_heads": 7})", "num_key_value_heads"},
      {R"({"num_attention_heads": 0})", "num_attention_heads"},
      {R"({"head_dim": 7})", "head_dim"},
      {R"({"hidden_size": -48})", "hidden_size"},
      {R"({"hidden_size": "48"})", "hidden_size"},
      {R"({"hidden_size": null})", "hidden_size"},
      {R"({"vocab_size": 1e30})", "vocab_size"},
      {R"({"num_hidden_layers": 1000000})", "num_hidden_layers"},
      {R"({"rms_norm_eps": 0})", "rms_norm_eps"},
      {R"({"rms_norm_eps": "tiny"})", "rms_norm_eps"},
      {R"({"rope_theta": -1})", "rope_theta"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 0.5, "low_freq_factor": 1,
                            "high_freq_factor": 4}})",
       "factor"},
      {R"({"rope_scaling": {"rope_type": "linear"}})", "rope_scaling.factor: missing"},
      {R"({"rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 9}})",
       "rope_scaling.factor: missing"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 2, "low_freq_factor": 1}})",
       "rope_scaling.high_freq_factor: missing"},
      {R"({"rope_scaling": {"rope_type": "linear", "factor": 8},
           "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}})",
       "rope_scaling and rope_parameters differ in rope_type"},
      {R"({"rope_scaling": {"rope_type": "linear", "factor": 3},
           "rope_parameters": {"rope_type": "linear", "factor": 3, "rope_theta": 50.0}})",
       "rope_scaling and rope_parameters differ in rope_theta"},
      {R"({"rope_scaling": {"rope_type": 7, "factor": 3}})", "rope_type 7 is not a text"},
      {R"({"model_type": "mistral"})", "contradicts model_type \"mistral\""},
      {R"({"model_type": "granite"})", "contradicts model_type \"granite\""},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 2, "beta_fast": 0.5}})", "beta_fast"},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 2, "attention_factor": -1}})",
       "attention_factor"},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 2,
                            "original_max_position_embeddings": 0}})",
       "original_max_position_embeddings"},
      {R"({"tie_word_embeddings": 1})", "tie_word_embeddings"},
      {R"({"architectures": []})", "architectures"},
  };
  for (const auto& one : cases) {
    EXPECT_NE(error_of(one.members).find(one.named), std::string::npos)
        << one.members << " gave: " << error_of(one.members);
  }
}

TEST(Architecture, WrittenConfigReadsBackEqual) {
  for (const char* members :
       {R"({"tie_word_embeddings": true, "head_dim": 12, "rope_theta": 5e5,
            "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                             "high_freq_factor": 4,
                             "original_max_position_embeddings": 16}})",
        R"({"rope_scaling": {"rope_type": "yarn", "factor": 8, "truncate": false}})",
        R"({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": true,
            "max_window_layers": 1})",
        R"({"architectures": ["Olmo2ForCausalLM"], "pad_token_id": null})",
        R"({"architectures": ["Gemma2ForCausalLM"], "final_logit_softcapping": null})",
        R"({"architectures": ["Gemma3ForCausalLM"], "sliding_window_pattern": 2})",
        R"({"architectures": ["Gemma3ForCausalLM"], "rope_parameters": {
            "sliding_attention": {"rope_type": "yarn", "factor": 2, "rope_theta": 100.0}}})"}) {
    const Json written = write_config(read(members), DType::kBF16);
    EXPECT_EQ(write_config(read_architecture(written, "again"), DType::kBF16).dump(),
              written.dump());
    EXPECT_EQ(written.find("torch_dtype")->string(), "bfloat16");
  }
}

TEST(Architecture, TheWeightTypeIsReplacedInItsSpelling) {
  EXPECT_EQ(with_dtype(Json::parse(R"({"dtype": "float32", "x": 1})", "x"), DType::kBF16).dump(),
            R"({"dtype": "bfloat16", "x": 1})");
  EXPECT_EQ(with_dtype(Json::parse(R"({"x": 1})", "x"), DType::kF32).dump(),
            R"({"x": 1, "torch_dtype": "float32"})");
  EXPECT_EQ(
      with_dtype(Json::parse(R"({"dtype": "float32", "text_config": {"dtype": "float32"}})", "x"),
                 DType::kBF16)
          .dump(),
      R"({"dtype": "bfloat16", "text_config": {"dtype": "bfloat16"}})");
}

TEST(Spec, HasUnitsSegmentsAndEveryTensorOnce) {
  const ModelSpec spec = build_spec(read("{}"));
  ASSERT_EQ(spec.units.size(), 4u);
  ASSERT_EQ(spec.segments.size(), 6u);
  EXPECT_EQ(spec.segments[1].name, "b0.attn");
  EXPECT_EQ(spec.segments[4].name, "b1.mlp");
  EXPECT_EQ(spec.segments[5].shares, -1);
  EXPECT_EQ(spec.units[2].segments, (std::vector<int>{3, 4}));
  std::set<std::string> names;
  for (const Segment& segment : spec.segments) {
    for (const Parameter& parameter : segment.parameters) names.insert(parameter.name);
  }
  EXPECT_EQ(names.size(), 2u * 9 + 3);
  EXPECT_TRUE(names.count("model.layers.1.self_attn.k_proj.weight"));
  EXPECT_TRUE(names.count("lm_head.weight"));
  const int64_t block = 2 * 48 + 48 * 48 * 2 + 16 * 48 * 2 + 3 * 48 * 80;
  EXPECT_EQ(spec.parameter_count(), 2 * block + 48 + 2 * 97 * 48);
}

TEST(Spec, TiedHeadSharesTheEmbedding) {
  const ModelSpec spec = build_spec(read(R"({"tie_word_embeddings": true})"));
  EXPECT_EQ(spec.segments.back().shares, 0);
  EXPECT_EQ(spec.segments.back().parameters.size(), 1u);
}

TEST(Spec, BiasesLieSideBySideAsTheirMatricesDo) {
  const ModelSpec spec =
      build_spec(read(R"({"attention_bias": true, "mlp_bias": true, "head_dim": 32})"));
  const Segment& attention = spec.segments[1];
  ASSERT_EQ(attention.parameters.size(), 9u);
  EXPECT_EQ(attention.parameters[4].name, "model.layers.0.self_attn.q_proj.bias");
  EXPECT_EQ(attention.parameters[5].offset, attention.parameters[4].offset + 6 * 32);
  EXPECT_EQ(spec.segments[2].parameters.size(), 7u);
  EXPECT_EQ(spec.segments[2].parameters.back().name, "model.layers.0.mlp.down_proj.bias");
}

TEST(Spec, NormsDoNotDecayAndMatricesDo) {
  const ModelSpec spec = build_spec(read("{}"));
  for (const Segment& segment : spec.segments) {
    for (const Parameter& parameter : segment.parameters) {
      EXPECT_EQ(spec.groups[static_cast<size_t>(parameter.group)].decays,
                parameter.shape.size() == 2)
          << parameter.name;
    }
  }
}

TEST(Spec, FrozenParametersLieBehindTrainableOnes) {
  ModelSpec spec = build_spec(read("{}"));
  Segment& attention = spec.segments[1];
  attention.parameters[1].frozen = true;
  assign_offsets(spec, 3);
  EXPECT_EQ(attention.trainable_numel % (3 * 4096), 0);
  EXPECT_EQ(attention.frozen_numel, 3 * 4096);
  EXPECT_EQ(attention.parameters[0].offset, 0);
  EXPECT_EQ(attention.parameters[1].offset, attention.trainable_numel);
  EXPECT_EQ(attention.parameters[2].offset, 64);
  for (const Segment& segment : spec.segments) {
    for (const Parameter& parameter : segment.parameters) EXPECT_EQ(parameter.offset % 64, 0);
  }
}

TEST(Freeze, MatchingParametersAreFrozenAndOffsetsFollow) {
  ModelSpec spec = build_spec(read("{}"));
  freeze_parameters(spec, R"(model\.layers\.0\..*|model\.embed_tokens\.weight)", 1);
  EXPECT_EQ(spec.segments[0].trainable_numel, 0);
  EXPECT_EQ(spec.segments[1].trainable_numel, 0);
  EXPECT_GT(spec.segments[1].frozen_numel, 0);
  EXPECT_EQ(spec.segments[3].frozen_numel, 0);
}

TEST(Freeze, UselessPatternsAreRefusedAndChangeNothing) {
  ModelSpec spec = build_spec(read("{}"));
  for (const char* pattern : {"model", "(", ".*"}) {
    EXPECT_THROW(freeze_parameters(spec, pattern, 1), Error) << pattern;
  }
  EXPECT_GT(spec.segments[0].trainable_numel, 0);
}

}  // namespace
}  // namespace strata::model
