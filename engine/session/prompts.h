// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace strata::session {

// The prompts of a file: its lines that are not empty or, of a .jsonl file, the "prompt" of each
// line's object. Throws Error{kConfig} that names file and line.
std::vector<std::string> read_prompts(const std::string& path);

}  // namespace strata::session
