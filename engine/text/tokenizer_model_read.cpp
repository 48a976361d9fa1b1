// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_model_read.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "engine/text/text_unicode.h"
#include "engine/text/tokenizer_steps.h"

namespace strata::text {

using config::Json;
using Fields = TokenizerFields;

std::vector<config::JsonStream> TokenizerModelParts::streams() {
  const auto take_token = [this](const std::string& token, const Json& item) {
    if (item.is_array())
      add_scored_token(item);
    else
      add_token(token, item);
  };
  const auto take_merge = [this](const std::string&, const Json& merge) { add_merge(merge); };
  return {{"model.vocab", take_token}, {"model.merges", take_merge}};
}

void TokenizerModelParts::fail(const std::string& where, const Json& value, const char* cause) {
  if (failure_) return;
  failure_.emplace(ErrorCode::kConfig,
                   fmt::format("read tokenizer: {}: model.{}: {} is not {}", source_,
                               replace_invalid_utf8(where), value.describe(), cause));
}

void TokenizerModelParts::add_token(const std::string& token, const Json& value) {
  const std::optional<int64_t> id = value.int64();
  if (id && *id >= 0 && *id <= std::numeric_limits<int32_t>::max()) {
    parts_.vocabulary.emplace_back(token, static_cast<int32_t>(*id));
  } else {
    fail(fmt::format("vocab['{}']", token), value, "a token id");
  }
}

// ["a", -2.5]
void TokenizerModelParts::add_scored_token(const Json& value) {
  const Json::Array& pair = value.items();
  const size_t index = unigram_.scores.size();
  if (pair.size() != 2 || !pair[0].is_string() || !pair[1].number()) {
    fail(fmt::format("vocab[{}]", index), value, "a token and its score");
    return;
  }
  parts_.vocabulary.emplace_back(pair[0].string(), static_cast<int32_t>(index));
  unigram_.scores.push_back(*pair[1].number());
}

// "a b" or ["a", "b"]
void TokenizerModelParts::add_merge(const Json& merge) {
  if (merge.is_string()) {
    const std::string& text = merge.string();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      bpe_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
      return;
    }
  } else if (merge.is_array() && merge.items().size() == 2 && merge.items()[0].is_string() &&
             merge.items()[1].is_string()) {
    bpe_.merges.emplace_back(merge.items()[0].string(), merge.items()[1].string());
    return;
  }
  fail(fmt::format("merges[{}]", bpe_.merges.size()), merge, "a pair of tokens");
}

void TokenizerModelParts::take_vocabulary(const Fields& model, bool is_scored) {
  if (is_scored)
    (void)model.items("vocab");
  else
    (void)model.members("vocab");
  if (failure_) throw *failure_;
  if (parts_.vocabulary.empty()) throw model.error("vocab", "empty");
  if (is_scored != !unigram_.scores.empty() ||
      (is_scored && unigram_.scores.size() != parts_.vocabulary.size())) {
    throw model.error("vocab", "some tokens have scores, others ids");
  }
}

void TokenizerModelParts::read_bpe(const Fields& model) {
  model.allow({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
               "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (model.has("dropout")) throw model.error("dropout", "not supported (set it to null)");
  model.require_empty_text("continuing_subword_prefix");
  model.require_empty_text("end_of_word_suffix");
  (void)model.items("merges");
  take_vocabulary(model, false);
  parts_.unknown_token = model.text_or("unk_token", "");
  parts_.byte_fallback = model.flag_or("byte_fallback", false);
  bpe_.fuse_unknown = model.flag_or("fuse_unk", false);
  bpe_.ignore_merges = model.flag_or("ignore_merges", false);
  parts_.rules = std::move(bpe_);
}

void TokenizerModelParts::read_unigram(const Fields& model) {
  model.allow({"type", "unk_id", "vocab", "byte_fallback"});
  take_vocabulary(model, true);
  if (model.has("unk_id")) {
    const int64_t id = model.integer("unk_id");
    if (id < 0 || id >= static_cast<int64_t>(parts_.vocabulary.size())) {
      throw model.error("unk_id", fmt::format("{} is not in the vocabulary", id));
    }
    parts_.unknown_token = parts_.vocabulary[static_cast<size_t>(id)].first;
  }
  parts_.byte_fallback = model.flag_or("byte_fallback", false);
  parts_.rules = std::move(unigram_);
}

void TokenizerModelParts::read_word_piece(const Fields& model) {
  model.allow(
      {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  take_vocabulary(model, false);
  parts_.unknown_token = model.text("unk_token");
  WordPieceRules rules;
  rules.prefix = model.text("continuing_subword_prefix");
  rules.characters_max = model.integer("max_input_chars_per_word");
  parts_.rules = std::move(rules);
}

// Older files do not name the kind.
ModelDefinition TokenizerModelParts::take(const Fields& model) {
  const char* guess = model.has("merges")                     ? "BPE"
                      : model.has("max_input_chars_per_word") ? "WordPiece"
                      : model.has("unk_id")                   ? "Unigram"
                                                              : "unknown";
  const std::string type = model.text_or("type", guess);
  if (type == "BPE")
    read_bpe(model);
  else if (type == "Unigram")
    read_unigram(model);
  else if (type == "WordPiece")
    read_word_piece(model);
  else
    throw unsupported_type(model, type);
  return std::move(parts_);
}

}  // namespace strata::text
