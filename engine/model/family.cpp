// SPDX-License-Identifier: Apache-2.0
#include "engine/model/family.h"

#include <fmt/core.h>

#include "engine/base/check.h"
#include "engine/model/architecture.h"

namespace strata::model {
namespace {

constexpr TensorNames kLlamaNames = {
    .embedding = "model.embed_tokens.weight",
    .attention_norm = "model.layers.{}.input_layernorm.weight",
    .query = "model.layers.{}.self_attn.q_proj.weight",
    .key = "model.layers.{}.self_attn.k_proj.weight",
    .value = "model.layers.{}.self_attn.v_proj.weight",
    .output = "model.layers.{}.self_attn.o_proj.weight",
    .mlp_norm = "model.layers.{}.post_attention_layernorm.weight",
    .gate = "model.layers.{}.mlp.gate_proj.weight",
    .up = "model.layers.{}.mlp.up_proj.weight",
    .down = "model.layers.{}.mlp.down_proj.weight",
    .final_norm = "model.norm.weight",
    .head = "lm_head.weight",
};

constexpr Family kFamilies[] = {
    {.architecture = "LlamaForCausalLM",
     .model_type = "llama",
     .norm_eps = 1e-6,
     .kv_heads = 0,
     .max_position = 2048,
     .window = 0,
     .names = &kLlamaNames},
    {.architecture = "MistralForCausalLM",
     .model_type = "mistral",
     .norm_eps = 1e-6,
     .kv_heads = 8,
     .max_position = 131072,
     .window = 4096,
     .names = &kLlamaNames},
};

// Groups of build_spec: by decay, in this order.
constexpr int kMatrices = 0;
constexpr int kVectors = 1;

Parameter parameter(ParameterRole role, const char* pattern, int layer,
                    std::vector<int64_t> shape) {
  Parameter result;
  result.role = role;
  result.name = fmt::format(fmt::runtime(pattern), layer);
  result.shape = std::move(shape);
  result.numel = 1;
  for (const int64_t extent : result.shape) result.numel *= extent;
  result.group = result.shape.size() >= 2 ? kMatrices : kVectors;
  return result;
}

Segment segment(SegmentKind kind, int layer, std::string name, std::vector<Parameter> parameters) {
  Segment result;
  result.kind = kind;
  result.layer = layer;
  result.name = std::move(name);
  result.parameters = std::move(parameters);
  return result;
}

void add_unit(ModelSpec& spec, const std::string& name, std::vector<Segment> segments) {
  Unit unit;
  unit.name = name;
  for (Segment& one : segments) {
    one.unit = static_cast<int>(spec.units.size());
    unit.segments.push_back(static_cast<int>(spec.segments.size()));
    spec.segments.push_back(std::move(one));
  }
  spec.units.push_back(std::move(unit));
}

void add_block(ModelSpec& spec, const TensorNames& names, int layer) {
  using enum ParameterRole;
  const Architecture& a = spec.architecture;
  const int64_t q = a.heads * a.head_size;
  const int64_t kv = a.kv_heads * a.head_size;
  const std::string unit = fmt::format("b{}", layer);
  std::vector<Segment> segments;
  segments.push_back(segment(SegmentKind::kAttention, layer, unit + ".attn",
                             {parameter(kNorm, names.attention_norm, layer, {a.hidden}),
                              parameter(kQuery, names.query, layer, {q, a.hidden}),
                              parameter(kKey, names.key, layer, {kv, a.hidden}),
                              parameter(kValue, names.value, layer, {kv, a.hidden}),
                              parameter(kOutput, names.output, layer, {a.hidden, q})}));
  segments.push_back(segment(SegmentKind::kMlp, layer, unit + ".mlp",
                             {parameter(kNorm, names.mlp_norm, layer, {a.hidden}),
                              parameter(kGate, names.gate, layer, {a.feed_forward, a.hidden}),
                              parameter(kUp, names.up, layer, {a.feed_forward, a.hidden}),
                              parameter(kDown, names.down, layer, {a.hidden, a.feed_forward})}));
  add_unit(spec, unit, std::move(segments));
}

}  // namespace

const Family* find_family_by_architecture(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (architecture == family.architecture) return &family;
  }
  return nullptr;
}

const Family* find_family_by_type(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (model_type == family.model_type) return &family;
  }
  return nullptr;
}

std::string family_names() {
  std::string names;
  for (const Family& family : kFamilies) {
    if (!names.empty()) names += ", ";
    names += family.architecture;
  }
  return names;
}

ModelSpec build_spec(const Architecture& a) {
  const Family* family = find_family_by_type(a.model_type);
  STRATA_CHECK(family != nullptr);
  const TensorNames& names = *family->names;
  ModelSpec spec;
  spec.architecture = a;
  spec.groups = {{"matrices", 1.0, true}, {"vectors", 1.0, false}};

  const std::vector<int64_t> table = {a.vocabulary, a.hidden};
  add_unit(spec, "embed",
           {segment(SegmentKind::kEmbedding, -1, "embed",
                    {parameter(ParameterRole::kEmbedding, names.embedding, 0, table)})});
  for (int layer = 0; layer < a.layers; ++layer) add_block(spec, names, layer);
  Segment head = segment(SegmentKind::kHead, -1, "head",
                         {parameter(ParameterRole::kNorm, names.final_norm, 0, {a.hidden})});
  if (a.tied) {
    head.shares = 0;
  } else {
    head.parameters.push_back(parameter(ParameterRole::kHead, names.head, 0, table));
  }
  add_unit(spec, "head", {std::move(head)});
  assign_offsets(spec, 1);
  return spec;
}

}  // namespace strata::model
