// SPDX-License-Identifier: Apache-2.0
#include "engine/model/architecture.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/model/config_fields.h"
#include "engine/model/config_rope.h"
#include "engine/model/family.h"
#include "engine/model/quantization.h"
#include "engine/model/text_model.h"

namespace strata::model {
namespace {

using config::Json;

struct ActivationName {
  const char* name;
  kernels::Activation activation;
};

constexpr ActivationName kActivationNames[] = {
    {"silu", kernels::Activation::kSilu},
    {"gelu_pytorch_tanh", kernels::Activation::kGeluTanh},
    {"gelu_new", kernels::Activation::kGeluTanh},
};

kernels::Activation read_activation(const Fields& fields, const Family& family) {
  const char* member = family.members.activation;
  if (fields.find(member) == nullptr) return family.activation;
  const std::string name = fields.text(member, "");
  std::string known;
  for (const ActivationName& row : kActivationNames) {
    if (name == row.name) return row.activation;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  fields.refuse(fmt::format("{}: \"{}\" is not supported (use a model with one of: {})", member,
                            name, known));
}

// Refuses members that ask for a computation that we do not have. Dropout is never applied; the
// caller reports it when a model is opened.
void refuse_variants(const Fields& fields) {
  (void)fields.number("attention_dropout", 0.0);  // must be a number
  const struct {
    const char* name;
    bool computed;
  } switches[] = {{"use_bidirectional_attention", false},
                  {"scale_attn_weights", true},
                  {"scale_attn_by_inverse_layer_idx", false},
                  {"add_cross_attention", false}};
  for (const auto& one : switches) {
    if (fields.boolean(one.name, one.computed) == one.computed) continue;
    fields.refuse(
        fmt::format("{}: only {} is supported (use a model with that)", one.name, one.computed));
  }
}

constexpr int64_t kHiddenMost = 1 << 20;
constexpr const char* kFullLayer = "full_attention";
constexpr const char* kWindowLayer = "sliding_attention";

// Which layers have the window, when config.json has no layer_types.
std::vector<char> windowed_by_rule(const Fields& fields, const Family& family, int64_t layers) {
  std::vector<char> windowed(static_cast<size_t>(layers));
  int64_t pattern = family.window_pattern;
  if (family.window_pattern_member) {
    pattern = fields.optional_integer("sliding_window_pattern").value_or(pattern);
  }
  const int64_t full = fields.optional_integer("max_window_layers").value_or(family.full_layers);
  if (family.window_rule == WindowRule::kPattern && pattern < 1) {
    fields.refuse(fmt::format("sliding_window_pattern: {} is less than 1", pattern));
  }
  for (int64_t layer = 0; layer < layers; ++layer) {
    windowed[static_cast<size_t>(layer)] =
        family.window_rule == WindowRule::kPattern ? (layer + 1) % pattern != 0 : layer >= full;
  }
  return windowed;
}

// The layers that layer_types gives the window; nullopt when config.json has no layer_types.
std::optional<std::vector<char>> read_layer_types(const Fields& fields, int64_t layers) {
  const Json* types = fields.find("layer_types");
  if (types == nullptr) return std::nullopt;
  if (!types->is_array()) fields.wrong("layer_types", "an array of names", *types);
  if (const auto count = static_cast<int64_t>(types->items().size()); count != layers) {
    fields.refuse(fmt::format("layer_types: has {} for {} (correct it, or num_hidden_layers)",
                              counted(count, "name"), counted(layers, "layer")));
  }
  std::vector<char> windowed;
  for (const Json& type : types->items()) {
    const std::string name = type.is_string() ? type.string() : type.describe();
    if (name != kFullLayer && name != kWindowLayer) {
      fields.refuse(fmt::format("layer_types: has {}, only {} and {} are supported", name,
                                kFullLayer, kWindowLayer));
    }
    windowed.push_back(name == kWindowLayer);
  }
  return windowed;
}

int64_t read_window_size(const Fields& fields, const Family& family) {
  const WindowRule rule = family.window_rule;
  const bool off = rule == WindowRule::kNone ||
                   (rule == WindowRule::kSwitch && !fields.boolean("use_sliding_window", false));
  if (off) return 0;
  if (!fields.has("sliding_window")) return family.window;
  const auto window = fields.optional_integer("sliding_window");
  if (window == 0) fields.refuse("sliding_window: is 0, so no token is visible (set it to null)");
  return window.value_or(0);
}

void read_window(const Fields& fields, const Family& family, Architecture& result) {
  result.window = read_window_size(fields, family);
  const auto types = read_layer_types(fields, result.layers);
  const bool by_layer =
      family.window_rule == WindowRule::kSwitch || family.window_rule == WindowRule::kPattern;
  if (result.window > 0 && by_layer) {
    result.windowed = types ? *types : windowed_by_rule(fields, family, result.layers);
  } else if (types) {
    const char only = result.window > 0;
    if (std::count(types->begin(), types->end(), only) == result.layers) return;
    fields.refuse(
        fmt::format("layer_types: only {} is supported for this model, with "
                    "sliding_window {}",
                    only ? kWindowLayer : kFullLayer, result.window));
  }
}

// A number that only some families read. Returns 0 when it is null or the family does not have it.
double read_own_number(const Fields& fields, const char* name,
                       const std::optional<double>& otherwise) {
  const double value = fields.has(name) ? fields.number(name, 0) : otherwise.value_or(0);
  if (otherwise && value == 0 && fields.find(name) != nullptr) {
    fields.refuse(fmt::format("{}: must not be 0 (set it to null to turn it off)", name));
  }
  if (otherwise || value == 0) return value;
  fields.refuse(
      fmt::format("{}: is {}, but this family does not use it (set it to null)", name, value));
}

// Follows torch.nn.Embedding's padding_idx: negative values count from the end. A value beyond the
// vocabulary names no row.
int64_t read_pad_token(const Fields& fields, const Family& family, int64_t vocabulary) {
  if (!family.pad_token) return -1;
  if (!fields.has("pad_token_id")) return *family.pad_token < vocabulary ? *family.pad_token : -1;
  const auto token = fields.optional_integer("pad_token_id");
  if (!token || *token >= vocabulary || *token < -vocabulary) return -1;
  return *token < 0 ? vocabulary + *token : *token;
}

void read_biases(const Fields& fields, const Family& family, Architecture& result) {
  const bool attention = fields.boolean("attention_bias", false);
  const bool mlp = fields.boolean("mlp_bias", false);
  const auto check = [&](const char* name, bool wanted, bool possible) {
    if (!wanted || possible) return;
    fields.refuse(fmt::format("{}: is true, but {} has no such biases (set it to false)", name,
                              family.architecture));
  };
  check("attention_bias", attention, family.attention_bias != BiasRule::kNone);
  check("mlp_bias", mlp, family.mlp_bias != BiasRule::kNone);
  const BiasRule rule = family.attention_bias;
  result.attention_bias = attention || rule == BiasRule::kQueryKeyValue || rule == BiasRule::kAll;
  result.output_bias = (attention && rule == BiasRule::kConfig) || rule == BiasRule::kAll;
  result.mlp_bias = mlp || family.mlp_bias == BiasRule::kAll;
}

// When `otherwise` is 0, the member is required.
int64_t integer_or(const Fields& fields, const char* name, int64_t otherwise) {
  if (otherwise == 0) return fields.integer(name);
  return fields.optional_integer(name).value_or(otherwise);
}

int64_t read_feed_forward(const Fields& fields, const Family& family, int64_t hidden) {
  const char* member = family.members.feed_forward;
  if (family.feed_forward_ratio == 0) return fields.integer(member);
  if (hidden > kHiddenMost) return 0;  // validate() refuses hidden_size
  return fields.optional_integer(member).value_or(family.feed_forward_ratio * hidden);
}

struct Range {
  const char* name;
  int64_t value;
  int64_t least;
  int64_t most;
};

}  // namespace

Architecture read_architecture_file(const std::string& path) {
  return read_architecture(Json::read_file(path, {}, kFetchAgain), path);
}

Architecture read_architecture(const Json& json, const std::string& source) {
  if (!json.is_object())
    refuse_config(source, "it is " + json.describe() + ", and must be an object");
  const TextModel text = find_text_model(json, source);
  const Fields fields(*text.members, text.beside, text.source);
  const Family& family = *text.family;
  read_quantization(json, source);  // refuses methods that cannot be read
  refuse_variants(fields);

  Architecture result;
  result.model_type = family.model_type;
  const MemberNames& members = family.members;
  result.hidden = fields.integer(members.hidden);
  result.layers = fields.integer(members.layers);
  result.heads = integer_or(fields, members.heads, family.heads);
  // Null means as many as heads, even when the family has another default.
  constexpr const char* kKvHeads = "num_key_value_heads";
  const bool as_heads = family.kv_heads == 0 || fields.has(kKvHeads);
  result.kv_heads =
      fields.optional_integer(kKvHeads).value_or(as_heads ? result.heads : family.kv_heads);
  result.feed_forward = read_feed_forward(fields, family, result.hidden);
  result.vocabulary = integer_or(fields, "vocab_size", family.vocabulary);
  result.max_position = fields.optional_integer(members.max_position).value_or(family.max_position);
  result.block = family.block;
  result.norm = family.norm;
  result.position = family.position;
  result.activation = read_activation(fields, family);
  result.score_scalar = read_own_number(fields, "query_pre_attn_scalar", family.score_scalar);
  result.score_cap = read_own_number(fields, "attn_logit_softcapping", family.score_cap);
  result.logit_cap = read_own_number(fields, "final_logit_softcapping", family.logit_cap);
  result.pad_token = read_pad_token(fields, family, result.vocabulary);
  read_biases(fields, family, result);
  result.norm_eps = fields.number(members.norm_eps, family.norm_eps);
  result.tied = fields.boolean("tie_word_embeddings", family.tied);
  if (const auto head_size = fields.optional_integer("head_dim")) {
    result.head_size = *head_size;
  } else if (family.head_size > 0) {
    result.head_size = family.head_size;
  } else if (result.heads > 0 && result.hidden % result.heads == 0) {
    result.head_size = result.hidden / result.heads;
  } else {
    fields.refuse(
        fmt::format("hidden_size: {} is not a multiple of num_attention_heads: {}, and there is no "
                    "head_dim",
                    result.hidden, result.heads));
  }
  validate(result, text.source);
  // Sizes are now known to be bounded. The code below allocates by layer and divides by positions.
  read_window(fields, family, result);
  if (result.position == Position::kRope) read_ropes(fields, family, result);
  validate(result, text.source);
  return result;
}

void validate(const Architecture& a, const std::string& source) {
  const Range ranges[] = {
      {"hidden_size", a.hidden, 1, kHiddenMost},
      {"num_hidden_layers", a.layers, 1, 1 << 14},
      {"num_attention_heads", a.heads, 1, 1 << 14},
      {"num_key_value_heads", a.kv_heads, 1, a.heads},
      {"head_dim", a.head_size, 2, 1 << 12},
      {"intermediate_size", a.feed_forward, 1, 1 << 24},
      {"vocab_size", a.vocabulary, 2, INT32_MAX},
      {"max_position_embeddings", a.max_position, 1, INT32_MAX},
      {"sliding_window", a.window, 0, INT32_MAX},
  };
  for (const Range& range : ranges) {
    if (range.value >= range.least && range.value <= range.most) continue;
    refuse_config(source, fmt::format("{}: {} is not between {} and {}", range.name, range.value,
                                      range.least, range.most));
  }
  if (a.heads % a.kv_heads != 0) {
    refuse_config(
        source, fmt::format("num_attention_heads: {} is not a multiple of num_key_value_heads: {}",
                            a.heads, a.kv_heads));
  }
  if (a.head_size % 2 != 0 && a.position == Position::kRope) {
    refuse_config(source, fmt::format("head_dim: {} is odd, but RoPE rotates pairs", a.head_size));
  }
  if (!(a.norm_eps > 0 && a.norm_eps < 1)) {
    const char* name = a.norm == Norm::kRms ? "rms_norm_eps" : "layer_norm_epsilon";
    refuse_config(source, fmt::format("{}: {} is not between 0 and 1", name, a.norm_eps));
  }
  const struct {
    const char* name;
    double value;
  } numbers[] = {{"query_pre_attn_scalar", a.score_scalar},
                 {"attn_logit_softcapping", a.score_cap},
                 {"final_logit_softcapping", a.logit_cap}};
  for (const auto& number : numbers) {
    if (number.value == 0 || (number.value >= 1e-6 && number.value <= 1e6)) continue;
    refuse_config(source,
                  fmt::format("{}: {} is not between 1e-6 and 1e6", number.name, number.value));
  }
  if (!a.windowed.empty() && static_cast<int64_t>(a.windowed.size()) != a.layers) {
    refuse_config(source,
                  fmt::format("layer_types: has {} for {}", counted(std::ssize(a.windowed), "name"),
                              counted(a.layers, "layer")));
  }
  validate_rope(a.rope, a.head_size, source);
  if (a.window_rope) validate_rope(*a.window_rope, a.head_size, source);
}

}  // namespace strata::model
