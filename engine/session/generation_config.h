// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/json.h"
#include "engine/config/options.h"

namespace strata::session {

// What a model says about generating text: its generation_config.json and, where that has no
// eos_token_id, that of its config.json. Members that are missing or null are nullopt.
struct GenerationConfig {
  std::vector<int32_t> end_ids = {};  // tokens that end a text; ascending, of the vocabulary
  std::optional<bool> do_sample = {};
  std::optional<double> temperature = {};
  std::optional<int64_t> top_k = {};  // 0: off
  std::optional<double> top_p = {};
  std::optional<int64_t> max_new_tokens = {};
  // Members that would change texts and that Strata does not have.
  std::vector<std::string> unused = {};
};

// Reads the file of options.model; without one, only config.json counts, whose contents `config`
// are. Members that given options replace are not looked at. Ids outside of the vocabulary end no
// text; a warning names them. Throws Error{kConfig} that names file and member.
GenerationConfig read_generation_config(const config::Options& options, const config::Json& config,
                                        int64_t vocabulary);

// Only the tokens that end a text, ascending: those of the files of the model directory `model`, as
// above, and the tokenizer's.
std::vector<int32_t> read_end_ids(const std::string& model, const config::Json& config,
                                  int64_t vocabulary, std::optional<int32_t> tokenizer_end);

// Sets the options that were not given. Returns what it set, ids that end texts besides the
// tokenizer's, and what is not used, as clauses for the user; empty when the files say nothing new.
// Throws Error{kUsage} for a given option without effect because the model takes the most likely
// token.
std::string apply_generation_config(const GenerationConfig& file,
                                    std::optional<int32_t> tokenizer_end, config::Options& options);

// Puts a token into an ascending list, if it is not there.
void add_end_id(int32_t id, std::vector<int32_t>& end_ids);

// The tokens that end a text, ascending: the model's and the tokenizer's.
std::vector<int32_t> end_ids_of(const GenerationConfig& file, std::optional<int32_t> tokenizer_end);

}  // namespace strata::session
