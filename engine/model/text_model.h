// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/config/json.h"
#include "engine/model/family.h"

// Finds the family of a config.json, and the members of its text model: at the top, or in
// text_config.
namespace strata::model {

// A multimodal architecture whose text model belongs to a family. Its config.json has the members
// of the text model in text_config.
struct Multimodal {
  const char* architecture;
  const char* model_type;
  const char* text_type;                    // model_type of the family
  std::span<const std::string_view> parts;  // prefixes of tensors outside of the text model
};

std::span<const Multimodal> multimodals();

struct TextModel {
  const Family* family = nullptr;
  const Multimodal* of = nullptr;  // null: a model of text only
  const config::Json* members = nullptr;
  config::Json beside;  // used for what `members` lacks
  std::string source;   // for messages: the path, and text_config
};

// Throws Error (kConfig) for an architecture that is not supported, and for a file that
// contradicts itself. `json` is an object and must outlive the result.
TextModel find_text_model(const config::Json& json, const std::string& source);

}  // namespace strata::model
