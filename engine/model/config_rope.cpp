// SPDX-License-Identifier: Apache-2.0
#include "engine/model/config_rope.h"

#include <cmath>
#include <iterator>

namespace strata::model {
namespace {

using config::Json;

struct ScalingName {
  const char* name;
  RopeScaling scaling;
};

constexpr ScalingName kScalingNames[] = {
    {"default", RopeScaling::kNone},
    {"linear", RopeScaling::kLinear},
    {"llama3", RopeScaling::kLlama3},
    {"yarn", RopeScaling::kYarn},
    {"longrope", RopeScaling::kLongRope},
    {"su", RopeScaling::kLongRope},  // its name in the first Phi-3 models
};

constexpr const char* kOriginal = "original_max_position_embeddings";
constexpr const char* kPartial = "partial_rotary_factor";
constexpr const char* kFullLayers = "full_attention";
constexpr const char* kWindowLayers = "sliding_attention";

// One object of RoPE members. Null members count as absent.
class RopeObject {
 public:
  RopeObject(const Fields& fields, std::string where, const Json& object)
      : fields_(fields), where_(std::move(where)), object_(object) {
    if (!object.is_object()) fields.wrong(where_, "an object", object);
  }

  const Json* find(const char* name) const {
    const Json* member = object_.find(name);
    return member == nullptr || member->is_null() ? nullptr : member;
  }
  double number(const char* name, double otherwise) const {
    const Json* member = find(name);
    return member == nullptr ? otherwise : fields_.number_of(*member, path(name));
  }
  int64_t integer(const char* name, int64_t otherwise) const {
    const Json* member = find(name);
    return member == nullptr ? otherwise : fields_.integer_of(*member, path(name));
  }
  bool boolean(const char* name, bool otherwise) const {
    const Json* member = find(name);
    return member == nullptr ? otherwise : fields_.boolean_of(*member, path(name));
  }
  std::vector<double> numbers(const char* name) const {
    const Json* member = find(name);
    if (member == nullptr || !member->is_array()) {
      refuse(fmt::format(".{}: is {}, must be an array of numbers", name,
                         member == nullptr ? "missing" : member->describe()));
    }
    std::vector<double> values;
    for (const Json& item : member->items()) values.push_back(fields_.number_of(item, path(name)));
    return values;
  }
  std::string path(const std::string& name) const { return where_ + "." + name; }
  const Json& json() const { return object_; }
  const Fields& fields() const { return fields_; }
  [[noreturn]] void refuse(const std::string& cause) const { fields_.refuse(where_ + cause); }

 private:
  const Fields& fields_;
  const std::string where_;
  const Json& object_;
};

RopeScaling scaling_of(const RopeObject& object) {
  const Json* type = object.find("rope_type");
  if (type == nullptr) type = object.find("type");
  if (type != nullptr && !type->is_string() && !type->is_null()) {
    object.refuse(fmt::format(": rope_type {} is not a text", type->dump()));
  }
  const std::string name = type != nullptr && type->is_string() ? type->string() : "default";
  std::string known;
  // Some Phi-3 models call longrope yarn.
  if (name == "yarn" && object.find("short_factor") != nullptr) return RopeScaling::kLongRope;
  for (const ScalingName& row : kScalingNames) {
    if (name == row.name) return row.scaling;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  object.refuse(fmt::format(": rope_type \"{}\" is not supported (use a model with one of: {})",
                            name, known));
}

// The attention factor of yarn: 0.1 ln(factor) + 1 by default (Peng et al. 2023, arXiv:2309.00071,
// eq. 22).
double yarn_attention_factor(const RopeObject& object, double factor) {
  const auto of = [&](double weight) {
    return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
  };
  const double own = object.number("mscale", 0);
  const double all = object.number("mscale_all_dim", 0);
  return object.number("attention_factor", own != 0 && all != 0 ? of(own) / of(all) : of(1.0));
}

// The attention factor of longrope: sqrt(1 + ln(factor) / ln(original positions)) (Ding et al.
// 2024, arXiv:2402.13753).
double long_attention_factor(const RopeObject& object, const Rope& rope) {
  const double original = static_cast<double>(rope.original_max_position);
  const double otherwise =
      rope.factor <= 1 ? 1.0 : std::sqrt(1.0 + std::log(rope.factor) / std::log(original));
  return object.number("attention_factor", otherwise);
}

// The value of a missing factor, for scalings that allow it to be missing.
double factor_otherwise(const Rope& rope, int64_t max_position) {
  if (rope.scaling != RopeScaling::kYarn && rope.scaling != RopeScaling::kLongRope) {
    return rope.factor;
  }
  return static_cast<double>(max_position) / static_cast<double>(rope.original_max_position);
}

// Members of config.json that a RoPE object refers to.
struct Positions {
  int64_t max;
  std::optional<int64_t> original;  // overrides the object's own
  int64_t head_size;
  bool partial;  // whether the family may rotate a part of each head
};

// The number of elements of a head that are rotated; 0: all. `path` is the path of the member.
int64_t rotary_of(double part, const Positions& positions, const Fields& fields,
                  const std::string& path) {
  if (part == 1.0) return 0;
  const double turned = static_cast<double>(positions.head_size) * part;
  if (!positions.partial || !(part < 1 && turned >= 2)) {
    fields.refuse(fmt::format(
        "{}: {}: {} is supported for this model (use one with such a value)", path, part,
        positions.partial ? "a part of at least two elements of a head" : "only 1"));
  }
  return static_cast<int64_t>(turned);
}

// Refuses a missing member without which Transformers does not load the model. With yarn, a factor
// of null has a meaning.
void require_members(const RopeObject& object, RopeScaling scaling) {
  const auto require = [&](const char* name) {
    const Json* member = object.json().find(name);
    if (member != nullptr && (!member->is_null() || scaling == RopeScaling::kYarn)) return;
    object.refuse(fmt::format(".{}: missing (rope_type needs it: add it)", name));
  };
  if (scaling == RopeScaling::kNone || scaling == RopeScaling::kLongRope) return;
  require("factor");
  if (scaling != RopeScaling::kLlama3) return;
  require("low_freq_factor");
  require("high_freq_factor");
}

void read_rope_object(const RopeObject& object, const Positions& positions, Rope& rope) {
  for (const config::JsonMember& member : object.json().members()) {
    if (!member.value.is_object()) continue;
    object.refuse("." + member.name +
                  ": RoPE that differs between layers is not supported for this model (use one "
                  "with one set of RoPE members)");
  }
  rope.scaling = scaling_of(object);
  rope.theta = object.number("rope_theta", rope.theta);
  const bool stretched = rope.scaling != RopeScaling::kNone && rope.scaling != RopeScaling::kLinear;
  rope.original_max_position =
      object.integer(kOriginal, stretched ? positions.max : rope.original_max_position);
  if (stretched && positions.original) rope.original_max_position = *positions.original;
  if (rope.original_max_position < 1) {
    object.refuse(fmt::format(".{}: {} is less than 1", kOriginal, rope.original_max_position));
  }
  require_members(object, rope.scaling);
  rope.factor = object.number("factor", factor_otherwise(rope, positions.max));
  rope.low_freq_factor = object.number("low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = object.number("high_freq_factor", rope.high_freq_factor);
  if (rope.scaling == RopeScaling::kYarn) {
    rope.attention_factor = yarn_attention_factor(object, rope.factor);
    rope.beta_fast = object.number("beta_fast", rope.beta_fast);
    rope.beta_slow = object.number("beta_slow", rope.beta_slow);
    rope.truncate = object.boolean("truncate", rope.truncate);
  }
  if (rope.scaling == RopeScaling::kLongRope) {
    rope.short_factor = object.numbers("short_factor");
    rope.long_factor = object.numbers("long_factor");
    rope.attention_factor = long_attention_factor(object, rope);
  }
  if (object.find(kPartial) != nullptr) {
    rope.rotary =
        rotary_of(object.number(kPartial, 1.0), positions, object.fields(), object.path(kPartial));
  }
}

// Reads rope_parameters with one object for each type of layer.
void read_by_layer_type(const Fields& fields, const Family& family, const RopeObject& all,
                        Architecture& result) {
  const struct {
    const char* name;
    Rope* rope;
  } types[] = {{kFullLayers, &result.rope}, {kWindowLayers, &*result.window_rope}};
  for (const config::JsonMember& member : all.json().members()) {
    if (member.name == kFullLayers || member.name == kWindowLayers) continue;
    all.refuse(fmt::format(".{}: is neither {} nor {}", member.name, kFullLayers, kWindowLayers));
  }
  for (const auto& type : types) {
    if (const Json* json = all.find(type.name)) {
      read_rope_object({fields, all.path(type.name), *json},
                       {result.max_position, {}, result.head_size, family.partial_rotary},
                       *type.rope);
    }
  }
}

Json array_of(const std::vector<double>& values) {
  Json array = Json::array();
  for (const double value : values) array.push_back(value);
  return array;
}

Json scaling_object(const Rope& rope) {
  if (rope.scaling == RopeScaling::kNone) return Json();
  Json object = Json::object();
  for (const ScalingName& row : kScalingNames) {
    if (row.scaling != rope.scaling) continue;
    object.set("rope_type", row.name);
    break;
  }
  object.set("factor", rope.factor);
  if (rope.scaling == RopeScaling::kLinear) return object;
  object.set(kOriginal, rope.original_max_position);
  if (rope.scaling == RopeScaling::kLlama3) {
    object.set("low_freq_factor", rope.low_freq_factor);
    object.set("high_freq_factor", rope.high_freq_factor);
  } else if (rope.scaling == RopeScaling::kLongRope) {
    object.set("attention_factor", rope.attention_factor);
    object.set("short_factor", array_of(rope.short_factor));
    object.set("long_factor", array_of(rope.long_factor));
  } else {
    object.set("attention_factor", rope.attention_factor);
    object.set("beta_fast", rope.beta_fast);
    object.set("beta_slow", rope.beta_slow);
    object.set("truncate", rope.truncate);
  }
  return object;
}

Json parameters_object(const Rope& rope) {
  Json object = scaling_object(rope);
  if (rope.scaling == RopeScaling::kNone) object.set("rope_type", "default");
  object.set("rope_theta", rope.theta);
  return object;
}

// Both spellings may be present when they agree.
void require_one_spelling(const Fields& fields) {
  const Json* old = fields.find("rope_scaling");
  const Json* now = fields.find("rope_parameters");
  if (old == nullptr || now == nullptr || !old->is_object()) return;
  const auto says = [](const Json* object, const std::string& name, const Json& value) {
    const Json* same = object != nullptr && object->is_object() ? object->find(name) : nullptr;
    return same != nullptr && same->dump() == value.dump();
  };
  const auto refuse = [&](const std::string& name) {
    fields.refuse(
        fmt::format("rope_scaling and rope_parameters differ in {}: which one is meant? "
                    "(keep one of them)",
                    name));
  };
  for (const config::JsonMember& member : old->members()) {
    if (!says(now, member.name, member.value)) refuse(member.name);
  }
  if (!now->is_object()) return;
  // A member that the old spelling lacks is given elsewhere, or Transformers ignores it.
  const Json* theta = fields.find("rope_theta");
  for (const config::JsonMember& member : now->members()) {
    if (old->find(member.name) != nullptr) continue;
    const bool elsewhere =
        member.name == "rope_theta" && theta != nullptr && theta->dump() == member.value.dump();
    const bool older = member.name == "rope_type" && says(old, "type", member.value);
    if (!elsewhere && !older) refuse(member.name);
  }
}

}  // namespace

void read_ropes(const Fields& fields, const Family& family, Architecture& result) {
  require_one_spelling(fields);
  Rope& rope = result.rope;
  Positions positions = {result.max_position, fields.optional_integer(kOriginal), result.head_size,
                         family.partial_rotary};
  if (!positions.original && family.original_position > 0) {
    positions.original = family.original_position;
  }
  rope.rotary = rotary_of(fields.number(kPartial, 1.0), positions, fields, kPartial);
  if (family.window_theta) {
    result.window_rope = rope;
    result.window_rope->theta = fields.number("rope_local_base_freq", *family.window_theta);
  }
  rope.theta = fields.number("rope_theta", family.rope_theta);
  if (const Json* json = fields.find("rope_scaling")) {
    read_rope_object({fields, "rope_scaling", *json}, positions, rope);
  }
  if (const Json* json = fields.find("rope_parameters")) {
    const RopeObject object(fields, "rope_parameters", *json);
    if (family.window_theta) {
      read_by_layer_type(fields, family, object, result);
    } else {
      read_rope_object(object, positions, rope);
    }
  }
}

namespace {

void validate_long_rope(const Rope& rope, int64_t head_size, const std::string& source) {
  const int64_t turned = rope.rotary > 0 ? rope.rotary : head_size;
  const auto pairs = static_cast<size_t>(turned / 2);
  for (const auto* factors : {&rope.short_factor, &rope.long_factor}) {
    const char* name = factors == &rope.short_factor ? "short_factor" : "long_factor";
    if (factors->size() != pairs) {
      refuse_config(source,
                    fmt::format("{}: has {} numbers, must have {}: one for each pair of the {} "
                                "elements that RoPE rotates of head_dim {} (take this model's own "
                                "array, or correct head_dim or {})",
                                name, factors->size(), pairs, turned, head_size, kPartial));
    }
    for (const double factor : *factors) {
      if (factor > 0 && std::isfinite(factor)) continue;
      refuse_config(source, fmt::format("{}: has {}, must be positive", name, factor));
    }
  }
  if (rope.original_max_position >= 2 && rope.attention_factor > 0 &&
      std::isfinite(rope.attention_factor)) {
    return;
  }
  refuse_config(source, fmt::format("longrope: {} {} and attention_factor {}: needs at least 2 "
                                    "positions and a positive factor",
                                    kOriginal, rope.original_max_position, rope.attention_factor));
}

}  // namespace

void validate_rope(const Rope& rope, int64_t head_size, const std::string& source) {
  if (rope.rotary < 0 || rope.rotary > head_size || rope.rotary % 2 != 0) {
    refuse_config(source, fmt::format("{}: rotates {} of {} elements of a head, must be an even "
                                      "number",
                                      kPartial, rope.rotary, head_size));
  }
  if (rope.scaling == RopeScaling::kLongRope) validate_long_rope(rope, head_size, source);
  const auto finite = [](double value) { return std::isfinite(value); };
  if (!(rope.theta >= 1 && finite(rope.theta))) {
    refuse_config(source,
                  fmt::format("rope_theta: {} is not a finite number of at least 1", rope.theta));
  }
  if (rope.original_max_position < 1 || rope.original_max_position > INT32_MAX) {
    refuse_config(source, fmt::format("{}: {} is not between 1 and {}", kOriginal,
                                      rope.original_max_position, INT32_MAX));
  }
  const bool factors = rope.factor >= 1 && finite(rope.factor) && rope.low_freq_factor > 0 &&
                       rope.high_freq_factor > rope.low_freq_factor &&
                       finite(rope.high_freq_factor);
  if (rope.scaling != RopeScaling::kNone && !factors) {
    refuse_config(source, fmt::format("RoPE scaling: factor {}, low_freq_factor {}, "
                                      "high_freq_factor {}: needs factor >= 1 and 0 < low < high",
                                      rope.factor, rope.low_freq_factor, rope.high_freq_factor));
  }
  const bool yarn = rope.theta > 1 && rope.beta_slow > 0 && rope.beta_fast >= rope.beta_slow &&
                    finite(rope.beta_fast) && rope.attention_factor > 0 &&
                    finite(rope.attention_factor);
  if (rope.scaling == RopeScaling::kYarn && !yarn) {
    refuse_config(source,
                  fmt::format("RoPE scaling: rope_theta {}, beta_slow {}, beta_fast {}, "
                              "attention_factor {}: yarn needs theta > 1, 0 < slow <= fast "
                              "and a positive attention_factor",
                              rope.theta, rope.beta_slow, rope.beta_fast, rope.attention_factor));
  }
}

std::string rope_scaling_names() {
  std::string names;
  for (size_t i = 0; i < std::size(kScalingNames); ++i) {
    if (i > 0 && kScalingNames[i].scaling == kScalingNames[i - 1].scaling) continue;
    names += (i > 0 ? ", " : "") + std::string(kScalingNames[i].name);
  }
  return names;
}

void write_ropes(const Architecture& a, Json& json) {
  if (a.window_rope && a.window_rope->scaling != RopeScaling::kNone) {
    Json parameters = Json::object();
    parameters.set(kFullLayers, parameters_object(a.rope));
    parameters.set(kWindowLayers, parameters_object(*a.window_rope));
    json.set("rope_parameters", std::move(parameters));
    return;
  }
  json.set("rope_theta", a.rope.theta);
  // Phi-3 has a default for this member that overrides the object's own, so it is always written.
  if (a.rope.scaling == RopeScaling::kLongRope) json.set(kOriginal, a.rope.original_max_position);
  if (a.rope.rotary > 0) {  // half an element more, because readers round down
    json.set(kPartial,
             (static_cast<double>(a.rope.rotary) + 0.5) / static_cast<double>(a.head_size));
  }
  if (a.window_rope) json.set("rope_local_base_freq", a.window_rope->theta);
  json.set("rope_scaling", scaling_object(a.rope));
}

}  // namespace strata::model
