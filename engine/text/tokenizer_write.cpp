// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "engine/config/json.h"
#include "engine/text/bpe_trainer.h"
#include "engine/text/pretokenizer.h"
#include "engine/text/text_files.h"

namespace strata::text {
namespace {

using config::Json;

Json object(std::initializer_list<std::pair<const char*, Json>> members) {
  Json result = Json::object();
  for (const auto& [name, value] : members) result.members().push_back({name, value});
  return result;
}

Json byte_level() {
  return object({{"type", "ByteLevel"},
                 {"add_prefix_space", false},
                 {"trim_offsets", true},
                 {"use_regex", false}});
}

Json pre_tokenizer() {
  Json steps = Json::array();
  steps.push_back(object({{"type", "Split"},
                          {"pattern", object({{"Regex", BpeTrainer::kSplitPattern}})},
                          {"behavior", "Isolated"},
                          {"invert", false}}));
  steps.push_back(byte_level());
  return object({{"type", "Sequence"}, {"pretokenizers", steps}});
}

Json added_tokens(const BpeVocabulary& vocabulary) {
  Json tokens = Json::array();
  auto id = static_cast<int64_t>(vocabulary.tokens.size());
  for (const std::string& token : vocabulary.special_tokens) {
    tokens.push_back(object({{"id", id++},
                             {"content", token},
                             {"single_word", false},
                             {"lstrip", false},
                             {"rstrip", false},
                             {"normalized", false},
                             {"special", true}}));
  }
  return tokens;
}

Json model(const BpeVocabulary& vocabulary) {
  const ByteAlphabet alphabet;
  Json entries = Json::object();
  int64_t id = 0;
  for (const std::string& token : vocabulary.tokens) {
    entries.members().push_back({alphabet.spell(token), id++});
  }
  for (const std::string& token : vocabulary.special_tokens) {
    entries.members().push_back({token, id++});
  }
  Json merges = Json::array();
  for (const auto& [left, right] : vocabulary.merges) {
    Json pair = Json::array();
    pair.push_back(alphabet.spell(vocabulary.tokens[static_cast<size_t>(left)]));
    pair.push_back(alphabet.spell(vocabulary.tokens[static_cast<size_t>(right)]));
    merges.push_back(std::move(pair));
  }
  return object({{"type", "BPE"},
                 {"dropout", nullptr},
                 {"unk_token", nullptr},
                 {"continuing_subword_prefix", nullptr},
                 {"end_of_word_suffix", nullptr},
                 {"fuse_unk", false},
                 {"byte_fallback", false},
                 {"ignore_merges", false},
                 {"vocab", entries},
                 {"merges", merges}});
}

}  // namespace

void write_tokenizer(const BpeVocabulary& vocabulary, const std::string& directory) {
  const std::filesystem::path folder(directory);
  const Json file = object({{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", added_tokens(vocabulary)},
                            {"normalizer", nullptr},
                            {"pre_tokenizer", pre_tokenizer()},
                            {"post_processor", nullptr},
                            {"decoder", byte_level()},
                            {"model", model(vocabulary)}});
  Json config = object(
      {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}});
  if (!vocabulary.special_tokens.empty())
    config.set("eos_token", vocabulary.special_tokens.front());
  write_text_file((folder / "tokenizer.json").string(), file.dump(1) + "\n");
  write_text_file((folder / "tokenizer_config.json").string(), config.dump(2) + "\n");
}

}  // namespace strata::text
