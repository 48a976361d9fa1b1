// SPDX-License-Identifier: Apache-2.0
#include "engine/model/family.h"

#include <fmt/core.h>

#include "engine/base/check.h"
#include "engine/model/architecture.h"

namespace strata::model {
namespace {

constexpr TensorNames kLlamaNames = {
    .embedding = "model.embed_tokens",
    .position = nullptr,
    .attention_norm = "model.layers.{}.input_layernorm",
    .query = "model.layers.{}.self_attn.q_proj",
    .key = "model.layers.{}.self_attn.k_proj",
    .value = "model.layers.{}.self_attn.v_proj",
    .query_norm = nullptr,
    .key_norm = nullptr,
    .output = "model.layers.{}.self_attn.o_proj",
    .attention_post_norm = nullptr,
    .mlp_norm = "model.layers.{}.post_attention_layernorm",
    .gate = "model.layers.{}.mlp.gate_proj",
    .up = "model.layers.{}.mlp.up_proj",
    .down = "model.layers.{}.mlp.down_proj",
    .mlp_post_norm = nullptr,
    .final_norm = "model.norm",
    .head = "lm_head",
    .transposed = false,
    .prefix = nullptr,
};

constexpr TensorNames with_fused_rows(TensorNames names) {
  names.query = names.key = names.value = "model.layers.{}.self_attn.qkv_proj";
  names.gate = names.up = "model.layers.{}.mlp.gate_up_proj";
  return names;
}

constexpr TensorNames kPhi3Names = with_fused_rows(kLlamaNames);

constexpr TensorNames kGpt2Names = {
    .embedding = "transformer.wte",
    .position = "transformer.wpe",
    .attention_norm = "transformer.h.{}.ln_1",
    .query = "transformer.h.{}.attn.c_attn",
    .key = "transformer.h.{}.attn.c_attn",
    .value = "transformer.h.{}.attn.c_attn",
    .query_norm = nullptr,
    .key_norm = nullptr,
    .output = "transformer.h.{}.attn.c_proj",
    .attention_post_norm = nullptr,
    .mlp_norm = "transformer.h.{}.ln_2",
    .gate = nullptr,
    .up = "transformer.h.{}.mlp.c_fc",
    .down = "transformer.h.{}.mlp.c_proj",
    .mlp_post_norm = nullptr,
    .final_norm = "transformer.ln_f",
    .head = "lm_head",
    .transposed = true,
    .prefix = "transformer.",
};

constexpr TensorNames kOlmo2Names = [] {
  TensorNames names = kLlamaNames;
  names.attention_norm = nullptr;
  names.query_norm = "model.layers.{}.self_attn.q_norm";
  names.key_norm = "model.layers.{}.self_attn.k_norm";
  names.attention_post_norm = "model.layers.{}.post_attention_layernorm";
  names.mlp_norm = nullptr;
  names.mlp_post_norm = "model.layers.{}.post_feedforward_layernorm";
  return names;
}();

constexpr TensorNames kQwen3Names = [] {
  TensorNames names = kLlamaNames;
  names.query_norm = kOlmo2Names.query_norm;
  names.key_norm = kOlmo2Names.key_norm;
  return names;
}();

// Gemma 2 has no norms of q and k and never uses these names.
constexpr TensorNames kGemmaNames = [] {
  TensorNames names = kQwen3Names;
  names.attention_post_norm = kOlmo2Names.attention_post_norm;
  names.mlp_norm = "model.layers.{}.pre_feedforward_layernorm";
  names.mlp_post_norm = kOlmo2Names.mlp_post_norm;
  return names;
}();

constexpr Family kFamilies[] = {
    {.architecture = "LlamaForCausalLM",
     .model_type = "llama",
     .max_position = 2048,
     .attention_bias = BiasRule::kConfig,
     .mlp_bias = BiasRule::kConfig,
     .names = &kLlamaNames},
    {.architecture = "MistralForCausalLM",
     .model_type = "mistral",
     .kv_heads = 8,
     .max_position = 131072,
     .window = 4096,
     .window_rule = WindowRule::kAll,
     .names = &kLlamaNames},
    {.architecture = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .kv_heads = 32,
     .max_position = 32768,
     .window = 4096,
     .window_rule = WindowRule::kSwitch,
     .attention_bias = BiasRule::kQueryKeyValue,
     .names = &kLlamaNames},
    {.architecture = "Olmo2ForCausalLM",
     .model_type = "olmo2",
     .block = {.pre_norm = false, .post_norm = true, .qk_norm = QkNorm::kProjection},
     .norm_eps = 1e-5,
     .max_position = 2048,
     .attention_bias = BiasRule::kConfig,
     .pad_token = 1,
     .names = &kOlmo2Names},
    {.architecture = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .block = {.qk_norm = QkNorm::kHead},
     .kv_heads = 32,
     .head_size = 128,
     .max_position = 32768,
     .window = 4096,
     .window_rule = WindowRule::kSwitch,
     .attention_bias = BiasRule::kConfig,
     .names = &kQwen3Names},
    {.architecture = "Gemma2ForCausalLM",
     .model_type = "gemma2",
     .block = {.post_norm = true, .norm_offset = true, .scaled_embedding = true},
     .kv_heads = 4,
     .head_size = 256,
     .max_position = 8192,
     .window = 4096,
     .window_pattern = 2,
     .tied = true,
     .activation = kernels::Activation::kGeluTanh,
     .members = {.activation = "hidden_activation"},
     .window_rule = WindowRule::kPattern,
     .score_scalar = 256,
     .score_cap = 50,
     .logit_cap = 30,
     .attention_bias = BiasRule::kConfig,
     .pad_token = 0,
     .names = &kGemmaNames},
    {.architecture = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .block = {.post_norm = true,
               .qk_norm = QkNorm::kHead,
               .norm_offset = true,
               .scaled_embedding = true},
     .heads = 8,
     .vocabulary = 262208,
     .kv_heads = 4,
     .head_size = 256,
     .max_position = 131072,
     .window = 4096,
     .window_pattern = 6,
     .rope_theta = 1e6,
     .tied = true,
     .activation = kernels::Activation::kGeluTanh,
     .members = {.activation = "hidden_activation"},
     .window_rule = WindowRule::kPattern,
     .window_pattern_member = true,
     .window_theta = 1e4,
     .score_scalar = 256,
     .logit_cap = 0,
     .attention_bias = BiasRule::kConfig,
     .pad_token = 0,
     .names = &kGemmaNames},
    {.architecture = "Phi3ForCausalLM",
     .model_type = "phi3",
     .norm_eps = 1e-5,
     .max_position = 4096,
     .window_rule = WindowRule::kAll,
     .partial_rotary = true,
     .original_position = 4096,
     .pad_token = 32000,
     .names = &kPhi3Names},
    {.architecture = "GPT2LMHeadModel",
     .model_type = "gpt2",
     .block = {.gated = false},
     .norm = Norm::kLayer,
     .position = Position::kLearned,
     .norm_eps = 1e-5,
     .max_position = 1024,
     .tied = true,
     .activation = kernels::Activation::kGeluTanh,
     .feed_forward_ratio = 4,
     .members = {.hidden = "n_embd",
                 .layers = "n_layer",
                 .heads = "n_head",
                 .feed_forward = "n_inner",
                 .max_position = "n_positions",
                 .norm_eps = "layer_norm_epsilon",
                 .activation = "activation_function"},
     .attention_bias = BiasRule::kAll,
     .pad_token = std::nullopt,
     .mlp_bias = BiasRule::kAll,
     .names = &kGpt2Names},
};

// The groups of build_spec, with and without decay, in this order.
constexpr int kMatrices = 0;
constexpr int kVectors = 1;

// The names of the parts of fused tensors.
const char* part_name(ParameterRole role) {
  using enum ParameterRole;
  switch (role) {
    case kQuery:
    case kQueryBias:
      return "q";
    case kKey:
    case kKeyBias:
      return "k";
    case kValue:
    case kValueBias:
      return "v";
    case kGate:
    case kGateBias:
      return "gate";
    case kUp:
    case kUpBias:
      return "up";
    default:
      STRATA_CHECK(false);
      return "";
  }
}

// The parameters of one segment, in order. Parameters with the same name become parts of one
// tensor.
class ParameterList {
 public:
  ParameterList(int layer, bool transposed) : layer_(layer), transposed_(transposed) {}

  void weight(ParameterRole role, const char* pattern, std::vector<int64_t> shape) {
    add(role, pattern, ".weight", std::move(shape));
  }
  void bias(ParameterRole role, const char* pattern, int64_t outputs) {
    add(role, pattern, ".bias", {outputs});
  }
  // LayerNorm has a bias.
  void norm(const Architecture& a, const char* pattern) {
    weight(ParameterRole::kNorm, pattern, {a.hidden});
    if (a.norm == Norm::kLayer) bias(ParameterRole::kNormBias, pattern, a.hidden);
  }
  std::vector<Parameter> take() {
    for (size_t i = 0; i < parameters_.size(); ++i) place(i);
    return std::move(parameters_);
  }

 private:
  void place(size_t index) {
    Parameter& one = parameters_[index];
    int64_t rows = 0;
    int parts = 0;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Parameter& other = parameters_[i];
      if (other.stored.tensor != one.stored.tensor) continue;
      if (i < index) one.stored.first += other.shape[0];
      rows += other.shape[0];
      ++parts;
    }
    one.stored.shape[0] = rows;
    one.stored.transposed = transposed_ && one.shape.size() == 2;
    if (one.stored.transposed) std::swap(one.stored.shape[0], one.stored.shape[1]);
    if (parts > 1) one.name += std::string("[") + part_name(one.role) + "]";
  }

  void add(ParameterRole role, const char* pattern, const char* suffix,
           std::vector<int64_t> shape) {
    STRATA_CHECK(pattern != nullptr);  // the family names every tensor of its blocks
    Parameter result;
    result.role = role;
    result.name = fmt::format(fmt::runtime(pattern), layer_) + suffix;
    result.shape = std::move(shape);
    result.stored = {.tensor = result.name, .shape = result.shape};
    result.numel = 1;
    for (const int64_t extent : result.shape) result.numel *= extent;
    result.group = result.shape.size() >= 2 ? kMatrices : kVectors;
    parameters_.push_back(std::move(result));
  }

  int layer_;
  bool transposed_;
  std::vector<Parameter> parameters_;
};

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
    const int index = static_cast<int>(spec.segments.size());
    if (one.kind != SegmentKind::kEmbedding) one.inputs = {index - 1};
    unit.segments.push_back(index);
    spec.segments.push_back(std::move(one));
  }
  spec.units.push_back(std::move(unit));
}

Segment attention_segment(const Architecture& a, const TensorNames& names, int layer) {
  using enum ParameterRole;
  const int64_t q = a.heads * a.head_size;
  const int64_t kv = a.kv_heads * a.head_size;
  const bool of_heads = a.block.qk_norm == QkNorm::kHead;
  ParameterList list(layer, names.transposed);
  if (a.block.pre_norm) list.norm(a, names.attention_norm);
  list.weight(kQuery, names.query, {q, a.hidden});
  list.weight(kKey, names.key, {kv, a.hidden});
  list.weight(kValue, names.value, {kv, a.hidden});
  if (a.attention_bias) {
    list.bias(kQueryBias, names.query, q);
    list.bias(kKeyBias, names.key, kv);
    list.bias(kValueBias, names.value, kv);
  }
  if (a.block.qk_norm != QkNorm::kNone) {
    list.weight(kQueryNorm, names.query_norm, {of_heads ? a.head_size : q});
    list.weight(kKeyNorm, names.key_norm, {of_heads ? a.head_size : kv});
  }
  list.weight(kOutput, names.output, {a.hidden, q});
  if (a.output_bias) list.bias(kOutputBias, names.output, a.hidden);
  if (a.block.post_norm) list.weight(kPostNorm, names.attention_post_norm, {a.hidden});
  return segment(SegmentKind::kAttention, layer, fmt::format("b{}.attn", layer), list.take());
}

Segment mlp_segment(const Architecture& a, const TensorNames& names, int layer) {
  using enum ParameterRole;
  ParameterList list(layer, names.transposed);
  if (a.block.pre_norm) list.norm(a, names.mlp_norm);
  if (a.block.gated) list.weight(kGate, names.gate, {a.feed_forward, a.hidden});
  list.weight(kUp, names.up, {a.feed_forward, a.hidden});
  if (a.mlp_bias && a.block.gated) list.bias(kGateBias, names.gate, a.feed_forward);
  if (a.mlp_bias) list.bias(kUpBias, names.up, a.feed_forward);
  list.weight(kDown, names.down, {a.hidden, a.feed_forward});
  if (a.mlp_bias) list.bias(kDownBias, names.down, a.hidden);
  if (a.block.post_norm) list.weight(kPostNorm, names.mlp_post_norm, {a.hidden});
  return segment(SegmentKind::kMlp, layer, fmt::format("b{}.mlp", layer), list.take());
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

std::span<const Family> families() {
  return kFamilies;
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
  ParameterList embedding(0, false);
  embedding.weight(ParameterRole::kEmbedding, names.embedding, table);
  if (a.position == Position::kLearned) {
    embedding.weight(ParameterRole::kPosition, names.position, {a.max_position, a.hidden});
  }
  add_unit(spec, "embed", {segment(SegmentKind::kEmbedding, -1, "embed", embedding.take())});
  for (int layer = 0; layer < a.layers; ++layer) {
    add_unit(spec, fmt::format("b{}", layer),
             {attention_segment(a, names, layer), mlp_segment(a, names, layer)});
  }
  ParameterList last(0, false);
  last.norm(a, names.final_norm);
  if (!a.tied) last.weight(ParameterRole::kHead, names.head, table);
  Segment head = segment(SegmentKind::kHead, -1, "head", last.take());
  if (a.tied) head.shares = 0;
  add_unit(spec, "head", {std::move(head)});
  assign_offsets(spec, 1);
  return spec;
}

}  // namespace strata::model
