// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/json_stream.h"
#include "engine/text/token_model.h"
#include "engine/text/tokenizer_fields.h"

namespace strata::text {

// The member "model" of a tokenizer.json. Its vocabulary and merges are collected while the file is
// read, because as JSON values they would need three times the memory.
class TokenizerModelParts {
 public:
  explicit TokenizerModelParts(const std::string& source) : source_(source) {}

  // What to read the file with.
  std::vector<config::JsonStream> streams();

  // Called after the file was read. Throws Error that names the member for anything malformed or
  // not supported, and for a model of another kind.
  ModelDefinition take(const TokenizerFields& model);

 private:
  void fail(const std::string& where, const config::Json& value, const char* cause);
  void add_token(const std::string& token, const config::Json& value);
  void add_scored_token(const config::Json& value);
  void add_merge(const config::Json& merge);

  void take_vocabulary(const TokenizerFields& model, bool is_scored);
  void read_bpe(const TokenizerFields& model);
  void read_unigram(const TokenizerFields& model);
  void read_word_piece(const TokenizerFields& model);

  const std::string& source_;
  ModelDefinition parts_;
  BpeRules bpe_;
  UnigramRules unigram_;
  std::optional<Error> failure_;  // the first failure
};

}  // namespace strata::text
