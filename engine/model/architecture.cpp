// SPDX-License-Identifier: Apache-2.0
#include "engine/model/architecture.h"

#include <fmt/core.h>

#include <cmath>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/model/family.h"
#include "engine/model/quantization.h"

namespace strata::model {
namespace {

using config::Json;

[[noreturn]] void refuse(const std::string& source, const std::string& cause) {
  throw Error(ErrorCode::kConfig, "cannot use model: " + source + ": " + cause);
}

// The members of one config, looked up in text_config before the root.
class Fields {
 public:
  Fields(const Json& root, const std::string& source) : root_(root), source_(source) {
    const Json* text = root.find("text_config");
    text_ = text != nullptr && text->is_object() ? text : &root;
  }

  // Null members count as absent.
  const Json* find(const char* name) const {
    for (const Json* place : {text_, &root_}) {
      const Json* value = place->find(name);
      if (value != nullptr && !value->is_null()) return value;
    }
    return nullptr;
  }

  // Present, be it as null.
  bool has(const char* name) const {
    return text_->find(name) != nullptr || root_.find(name) != nullptr;
  }

  std::optional<int64_t> optional_integer(const char* name) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->int64()) wrong(name, "an integer", *value);
    return value->int64();
  }

  int64_t integer(const char* name) const {
    const auto value = optional_integer(name);
    if (!value) refuse(source_, fmt::format("{}: missing (config.json must have it)", name));
    return *value;
  }

  double number(const char* name, double otherwise) const {
    const Json* value = find(name);
    return value == nullptr ? otherwise : number_of(*value, name);
  }

  bool boolean(const char* name, bool otherwise) const {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->boolean()) wrong(name, "true or false", *value);
    return *value->boolean();
  }

  std::string text(const char* name, const std::string& otherwise) const {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) wrong(name, "a string", *value);
    return value->string();
  }

  double number_of(const Json& value, const std::string& name) const {
    if (!value.number()) wrong(name, "a number", value);
    return *value.number();
  }

  [[noreturn]] void wrong(const std::string& name, const char* wanted, const Json& value) const {
    refuse(source_, fmt::format("{}: is {}, must be {}", name, value.describe(), wanted));
  }

  const std::string& source() const { return source_; }

 private:
  const Json& root_;
  const std::string& source_;
  const Json* text_;
};

const Family& family_of(const Fields& fields) {
  std::string name;
  if (const Json* list = fields.find("architectures"); list != nullptr) {
    if (!list->is_array() || list->items().size() != 1 || !list->items()[0].is_string()) {
      fields.wrong("architectures", "an array of one name", *list);
    }
    name = list->items()[0].string();
    if (const Family* family = find_family_by_architecture(name)) return *family;
  } else {
    name = fields.text("model_type", "");
    if (const Family* family = find_family_by_type(name)) return *family;
  }
  refuse(fields.source(),
         fmt::format(
             "architecture \"{}\" is not one that is computed here (use a model of one of: {})",
             name, family_names()));
}

struct ScalingName {
  const char* name;
  RopeScaling scaling;
};

constexpr ScalingName kScalingNames[] = {
    {"default", RopeScaling::kNone},
    {"linear", RopeScaling::kLinear},
    {"llama3", RopeScaling::kLlama3},
};

// One object of RoPE members: rope_parameters of version 5, or rope_scaling of version 4.
void read_rope_object(const Fields& fields, const std::string& where, const Json& object,
                      Rope& rope) {
  if (!object.is_object()) fields.wrong(where, "an object", object);
  const auto value = [&](const char* name, double otherwise) {
    const Json* member = object.find(name);
    return member == nullptr || member->is_null() ? otherwise
                                                  : fields.number_of(*member, where + "." + name);
  };
  for (const config::JsonMember& member : object.members()) {
    if (member.value.is_object()) {
      refuse(fields.source(),
             where + "." + member.name +
                 ": RoPE that differs between layers is not computed here (use a model "
                 "with one set of RoPE members)");
    }
  }
  const Json* type = object.find("rope_type");
  if (type == nullptr) type = object.find("type");
  const std::string name = type != nullptr && type->is_string() ? type->string() : "default";
  const ScalingName* found = nullptr;
  for (const ScalingName& row : kScalingNames) {
    if (name == row.name) found = &row;
  }
  if (found == nullptr) {
    refuse(fields.source(),
           fmt::format("{}: rope_type \"{}\" is not computed here (use a model with "
                       "default, linear or llama3)",
                       where, name));
  }
  rope.scaling = found->scaling;
  rope.theta = value("rope_theta", rope.theta);
  rope.factor = value("factor", rope.factor);
  rope.low_freq_factor = value("low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = value("high_freq_factor", rope.high_freq_factor);
  const char* original = "original_max_position_embeddings";
  if (const Json* member = object.find(original); member != nullptr && !member->is_null()) {
    if (!member->int64()) fields.wrong(where + "." + original, "an integer", *member);
    rope.original_max_position = *member->int64();
  }
  if (value("partial_rotary_factor", 1.0) != 1.0) {
    refuse(fields.source(), where + ".partial_rotary_factor: only 1 is computed here");
  }
}

Rope read_rope(const Fields& fields) {
  Rope rope;
  rope.theta = fields.number("rope_theta", rope.theta);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (const Json* object = fields.find(name)) read_rope_object(fields, name, *object, rope);
  }
  return rope;
}

// Members that would change what the model computes in a way that we do not have.
void refuse_variants(const Fields& fields) {
  const std::string activation = fields.text("hidden_act", "silu");
  if (activation != "silu") {
    refuse(fields.source(),
           fmt::format("hidden_act: \"{}\" is not computed here (use a model with \"silu\")",
                       activation));
  }
  for (const char* name : {"attention_dropout", "partial_rotary_factor"}) {
    const double neutral = std::string_view(name) == "attention_dropout" ? 0.0 : 1.0;
    if (fields.number(name, neutral) != neutral) {
      refuse(fields.source(), fmt::format("{}: only {} is computed here", name, neutral));
    }
  }
}

// The window of all layers; 0 for none.
int64_t read_window(const Fields& fields, const Family& family) {
  int64_t window = 0;
  if (family.window_rule == WindowRule::kAll) {
    window = fields.has("sliding_window") ? fields.optional_integer("sliding_window").value_or(0)
                                          : family.window;
  } else if (family.window_rule == WindowRule::kSwitch &&
             fields.boolean("use_sliding_window", false)) {
    refuse(
        fields.source(),
        "use_sliding_window: windows that differ between layers are not computed here (set it to "
        "false where sequences are no longer than the window)");
  }
  const Json* types = fields.find("layer_types");
  if (types == nullptr) return window;
  if (!types->is_array()) fields.wrong("layer_types", "an array", *types);
  const std::string_view wanted = window > 0 ? "sliding_attention" : "full_attention";
  for (const Json& type : types->items()) {
    if (type.is_string() && type.string() == wanted) continue;
    refuse(fields.source(),
           fmt::format("layer_types: has {}, only {} is computed here for this model",
                       type.describe(), wanted));
  }
  return window;
}

void read_biases(const Fields& fields, const Family& family, Architecture& result) {
  const bool attention = fields.boolean("attention_bias", false);
  const bool mlp = fields.boolean("mlp_bias", false);
  const auto check = [&](const char* name, bool wanted, bool possible) {
    if (!wanted || possible) return;
    refuse(fields.source(), fmt::format("{}: is true, but {} has no such biases (set it to false)",
                                        name, family.architecture));
  };
  check("attention_bias", attention, family.attention_bias != BiasRule::kNone);
  check("mlp_bias", mlp, family.mlp_bias);
  result.attention_bias = attention || family.attention_bias == BiasRule::kQueryKeyValue;
  result.output_bias = attention && family.attention_bias == BiasRule::kConfig;
  result.mlp_bias = mlp;
}

struct Range {
  const char* name;
  int64_t value;
  int64_t least;
  int64_t most;
};

}  // namespace

Architecture read_architecture(const Json& json, const std::string& source) {
  if (!json.is_object()) refuse(source, "it is " + json.describe() + ", must be an object");
  const Fields fields(json, source);
  const Family& family = family_of(fields);
  read_quantization(json, source);  // refuses what cannot be read
  refuse_variants(fields);

  Architecture result;
  result.model_type = family.model_type;
  result.hidden = fields.integer("hidden_size");
  result.layers = fields.integer("num_hidden_layers");
  result.heads = fields.integer("num_attention_heads");
  const int64_t kv_heads = family.kv_heads > 0 ? family.kv_heads : result.heads;
  result.kv_heads = fields.optional_integer("num_key_value_heads").value_or(kv_heads);
  result.feed_forward = fields.integer("intermediate_size");
  result.vocabulary = fields.integer("vocab_size");
  result.max_position =
      fields.optional_integer("max_position_embeddings").value_or(family.max_position);
  result.window = read_window(fields, family);
  read_biases(fields, family, result);
  result.norm_eps = fields.number("rms_norm_eps", family.norm_eps);
  result.tied = fields.boolean("tie_word_embeddings", false);
  result.rope.original_max_position = result.max_position;
  result.rope = read_rope(fields);
  if (const auto head_size = fields.optional_integer("head_dim")) {
    result.head_size = *head_size;
  } else if (result.heads > 0 && result.hidden % result.heads == 0) {
    result.head_size = result.hidden / result.heads;
  } else {
    refuse(source,
           fmt::format("hidden_size: {} is no multiple of num_attention_heads: {}, and there is no "
                       "head_dim",
                       result.hidden, result.heads));
  }
  validate(result, source);
  return result;
}

void validate(const Architecture& a, const std::string& source) {
  const Range ranges[] = {
      {"hidden_size", a.hidden, 1, 1 << 20},
      {"num_hidden_layers", a.layers, 1, 1 << 14},
      {"num_attention_heads", a.heads, 1, 1 << 14},
      {"num_key_value_heads", a.kv_heads, 1, a.heads},
      {"head_dim", a.head_size, 2, 1 << 12},
      {"intermediate_size", a.feed_forward, 1, 1 << 24},
      {"vocab_size", a.vocabulary, 2, INT32_MAX},
      {"max_position_embeddings", a.max_position, 1, INT32_MAX},
      {"sliding_window", a.window, 0, INT32_MAX},
      {"original_max_position_embeddings", a.rope.original_max_position, 1, INT32_MAX},
  };
  for (const Range& range : ranges) {
    if (range.value >= range.least && range.value <= range.most) continue;
    refuse(source, fmt::format("{}: {} is not between {} and {}", range.name, range.value,
                               range.least, range.most));
  }
  if (a.heads % a.kv_heads != 0) {
    refuse(source, fmt::format("num_attention_heads: {} is no multiple of num_key_value_heads: {}",
                               a.heads, a.kv_heads));
  }
  if (a.head_size % 2 != 0) {
    refuse(source, fmt::format("head_dim: {} is odd, RoPE turns pairs", a.head_size));
  }
  if (!(a.norm_eps > 0 && a.norm_eps < 1)) {
    refuse(source, fmt::format("rms_norm_eps: {} is not between 0 and 1", a.norm_eps));
  }
  const Rope& rope = a.rope;
  if (!(rope.theta >= 1 && std::isfinite(rope.theta))) {
    refuse(source, fmt::format("rope_theta: {} is not a finite number of at least 1", rope.theta));
  }
  const bool factors = rope.factor >= 1 && std::isfinite(rope.factor) && rope.low_freq_factor > 0 &&
                       rope.high_freq_factor > rope.low_freq_factor &&
                       std::isfinite(rope.high_freq_factor);
  if (rope.scaling != RopeScaling::kNone && !factors) {
    refuse(source,
           fmt::format("RoPE scaling: factor {}, low_freq_factor {}, high_freq_factor {}: needs "
                       "factor >= 1 and 0 < low < high",
                       rope.factor, rope.low_freq_factor, rope.high_freq_factor));
  }
}

}  // namespace strata::model
