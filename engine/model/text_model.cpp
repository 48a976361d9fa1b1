// SPDX-License-Identifier: Apache-2.0
#include "engine/model/text_model.h"

#include <fmt/core.h>

#include "engine/model/config_fields.h"

namespace strata::model {
namespace {

using config::Json;

constexpr std::string_view kVisionParts[] = {"vision_tower.", "multi_modal_projector.",
                                             "model.vision_tower.", "model.multi_modal_projector."};

constexpr Multimodal kMultimodals[] = {
    {"Gemma3ForConditionalGeneration", "gemma3", "gemma3_text", kVisionParts},
};

constexpr const char* kText = "text_config";
constexpr const char* kType = "model_type";
constexpr const char* kArchitectures = "architectures";

// The members of a single object.
Fields fields_of(const Json& json, const std::string& source) {
  static const Json kNothing = Json::object();
  return {json, kNothing, source};
}

// Empty when it is missing.
std::string architecture_of(const Fields& fields) {
  const Json* list = fields.find(kArchitectures);
  if (list == nullptr) return "";
  if (list->is_array() && list->items().size() == 1 && list->items()[0].is_string()) {
    return list->items()[0].string();
  }
  fields.wrong(kArchitectures, "an array of one name", *list);
}

const Multimodal* find_multimodal(const std::string& architecture, const std::string& type) {
  for (const Multimodal& row : kMultimodals) {
    if (architecture == row.architecture || (architecture.empty() && type == row.model_type)) {
      return &row;
    }
  }
  return nullptr;
}

// Refuses a config.json that contradicts itself, since Transformers goes by model_type.
void require_type(const std::string& type, const char* wanted, const std::string& architecture,
                  const std::string& source) {
  if (type.empty() || type == wanted) return;
  refuse_config(source,
                fmt::format("architectures: \"{}\" contradicts model_type \"{}\" (correct the one "
                            "that is wrong)",
                            architecture, type));
}

[[noreturn]] void refuse_unknown(const std::string& name, const std::string& type,
                                 const std::string& source) {
  if (name.empty()) {
    refuse_config(
        source, "architectures: missing, and so is model_type (fetch the model's own config.json)");
  }
  if (const Family* family = find_family_by_type(type)) {
    refuse_config(source, fmt::format("architecture \"{}\" is not supported (of "
                                      "model_type \"{}\" only {} is: use a model of that)",
                                      name, type, family->architecture));
  }
  const char* hint =
      name.ends_with("ForConditionalGeneration") ? "save its text model by itself, or " : "";
  std::string known = family_names();
  for (const Multimodal& row : kMultimodals) known += std::string(", ") + row.architecture;
  refuse_config(source, fmt::format("architecture \"{}\" is not supported ({}use a model "
                                    "of one of: {})",
                                    name, hint, known));
}

TextModel text_of_multimodal(const Json& json, const Multimodal& of, const std::string& source) {
  const Fields outer = fields_of(json, source);
  require_type(outer.text(kType, ""), of.model_type, of.architecture, source);
  const Json* text = outer.find(kText);
  if (text == nullptr || !text->is_object()) {
    refuse_config(
        source, fmt::format("{}: is {}, and must be an object: {} has its text model there", kText,
                            text == nullptr ? "missing" : text->describe(), of.architecture));
  }
  TextModel result{find_family_by_type(of.text_type), &of, text, Json::object(),
                   source + ": " + kText};
  const std::string type = fields_of(*text, result.source).text(kType, "");
  if (!type.empty() && type != of.text_type) {
    refuse_config(result.source, fmt::format("model_type: is \"{}\", only \"{}\" is supported "
                                             "in {}",
                                             type, of.text_type, of.architecture));
  }
  // The head belongs to the outer model.
  constexpr const char* kTied = "tie_word_embeddings";
  if (const Json* tied = json.find(kTied)) result.beside.set(kTied, *tied);
  return result;
}

}  // namespace

std::span<const Multimodal> multimodals() {
  return kMultimodals;
}

TextModel find_text_model(const Json& json, const std::string& source) {
  const Fields fields = fields_of(json, source);
  const std::string architecture = architecture_of(fields);
  const std::string type = fields.text(kType, "");
  if (const Multimodal* of = find_multimodal(architecture, type)) {
    return text_of_multimodal(json, *of, source);
  }
  const Json* text = fields.find(kText);
  const bool nested = text != nullptr && text->is_object();
  const std::string where = source + ": " + kText;
  const std::string inner = nested ? fields_of(*text, where).text(kType, "") : "";
  const std::string type_of_text = inner.empty() ? type : inner;
  const Family* family = architecture.empty() ? find_family_by_type(type_of_text)
                                              : find_family_by_architecture(architecture);
  if (family == nullptr) refuse_unknown(architecture.empty() ? type : architecture, type, source);
  require_type(type_of_text, family->model_type, architecture, source);
  if (nested) return {family, nullptr, text, json, source};
  return {family, nullptr, &json, Json::object(), source};
}

}  // namespace strata::model
