// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"

namespace strata::text {

// Reads the text of a tokenizer.json. Throws Error (kConfig) that names the member for anything
// malformed, and for every step, member or value that is not supported, because ignoring it would
// give other ids. `source` is the path, for messages.
TokenizerDefinition read_tokenizer_json(std::string_view text, const std::string& source);

// The chat templates of a model directory, from the files in which Transformers looks for them. A
// directory without any has none. Failure: Error (kConfig) that names the file.
std::vector<NamedTemplate> chat_templates_in(const std::string& directory);

}  // namespace strata::text
