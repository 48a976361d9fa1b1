// SPDX-License-Identifier: Apache-2.0
#include "engine/model/family_report.h"

#include <string_view>

#include "engine/model/config_rope.h"
#include "engine/model/text_model.h"

namespace strata::model {
namespace {

bool same(const char* a, const char* b) {
  return a != nullptr && b != nullptr && std::string_view(a) == b;
}

void add_norms(const Family& family, std::vector<std::string>& features) {
  const Block& block = family.block;
  const std::string name = family.norm == Norm::kLayer ? "LayerNorm" : "RMSNorm";
  const char* where = block.pre_norm && block.post_norm ? " before and behind branches"
                      : block.post_norm                 ? " behind branches"
                                                        : "";
  features.push_back(name + where);
  if (block.qk_norm == QkNorm::kHead) features.push_back("norms of the heads of q and k");
  if (block.qk_norm == QkNorm::kProjection) features.push_back("norms of q and k");
}

void add_positions(const Family& family, std::vector<std::string>& features) {
  if (family.position == Position::kLearned) {
    features.push_back("learned positions");
    return;
  }
  const char* part = family.partial_rotary ? ", of whole heads or of parts" : "";
  features.push_back("RoPE (" + rope_scaling_names() + part + ")");
  switch (family.window_rule) {
    case WindowRule::kNone:
      return;
    case WindowRule::kAll:
      features.push_back("sliding window");
      return;
    case WindowRule::kSwitch:
    case WindowRule::kPattern:
      features.push_back("sliding windows by layer");
      return;
  }
}

const char* words_of(kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kSilu:
      return "silu";
    case kernels::Activation::kGeluTanh:
      return "gelu (tanh)";
  }
  return "";
}

void add_mlp(const Family& family, std::vector<std::string>& features) {
  features.push_back((family.block.gated ? std::string("gated MLP, ") : "plain MLP, ") +
                     words_of(family.activation));
}

void add_biases(const Family& family, std::vector<std::string>& features) {
  switch (family.attention_bias) {
    case BiasRule::kNone:
      break;
    case BiasRule::kConfig:
      features.push_back("biases as attention_bias says");
      break;
    case BiasRule::kQueryKeyValue:
      features.push_back("biases of q, k, v");
      break;
    case BiasRule::kAll:
      features.push_back("biases of attention");
      break;
  }
  if (family.mlp_bias == BiasRule::kConfig) features.push_back("biases as mlp_bias says");
  if (family.mlp_bias == BiasRule::kAll) features.push_back("biases of the MLP");
}

void add_storage(const TensorNames& names, std::vector<std::string>& features) {
  if (same(names.query, names.key)) features.push_back("q, k, v stored as one tensor");
  if (same(names.gate, names.up)) features.push_back("gate, up stored as one tensor");
  if (names.transposed) features.push_back("matrices stored transposed");
  if (names.prefix != nullptr) {
    features.push_back(std::string("names with or without \"") + names.prefix + "\"");
  }
}

}  // namespace

std::vector<std::string> features_of(const Family& family) {
  std::vector<std::string> features;
  add_norms(family, features);
  add_positions(family, features);
  add_mlp(family, features);
  add_biases(family, features);
  if (family.score_cap) features.push_back("capped scores");
  if (family.logit_cap) features.push_back("capped logits");
  if (family.block.scaled_embedding) features.push_back("scaled embeddings");
  features.push_back(family.tied ? "tied head (or its own)" : "head of its own (or tied)");
  add_storage(*family.names, features);
  for (const Multimodal& of : multimodals()) {
    if (!same(of.text_type, family.model_type)) continue;
    features.push_back(std::string("also as the text model in ") + of.architecture);
  }
  return features;
}

std::vector<std::string> weight_types() {
  return {"F32", "BF16", "F16", "F8_E4M3 with block scales (quant_method fp8)"};
}

}  // namespace strata::model
