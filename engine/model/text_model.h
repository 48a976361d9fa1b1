// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/config/json.h"
#include "engine/model/family.h"

// Which family a config.json is of, and where it has the members of the text model: at its top, or
// in text_config.
namespace strata::model {

// An architecture of more than text, whose text model is that of a family. Its config.json has
// members of the text model in text_config alone.
struct Multimodal {
  const char* architecture;
  const char* model_type;
  const char* text_type;                    // model_type of the family
  std::span<const std::string_view> parts;  // prefixes of tensors that are not of the text model
};

std::span<const Multimodal> multimodals();

struct TextModel {
  const Family* family = nullptr;
  const Multimodal* of = nullptr;  // null: it is a model of text
  const config::Json* members = nullptr;
  config::Json beside;  // members that count where `members` lacks them
  std::string source;   // for messages: the path, and text_config
};

// Throws Error (kConfig) for an architecture that is not computed here, and for a file that
// contradicts itself. `json`, an object, must outlive the result.
TextModel find_text_model(const config::Json& json, const std::string& source);

}  // namespace strata::model
