// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/train/tokenizer.h"

namespace strata::config {
class Json;
}

namespace strata::train {

// What a tokenizer.json says. Throws Error (kConfig) naming the member for anything malformed, and
// for every step, member or value that is not supported: an ignored one would give other ids.
// `source` is the path, for messages.
TokenizerDefinition read_tokenizer_json(const config::Json& json, const std::string& source);

}  // namespace strata::train
