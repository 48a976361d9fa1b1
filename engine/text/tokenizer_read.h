// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "engine/text/tokenizer.h"

namespace strata::text {

// What the text of a tokenizer.json says. Throws Error (kConfig) naming the member for anything
// malformed, and for every step, member or value that is not supported: an ignored one would give
// other ids. `source` is the path, for messages.
TokenizerDefinition read_tokenizer_json(std::string_view text, const std::string& source);

}  // namespace strata::text
