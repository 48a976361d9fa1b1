// SPDX-License-Identifier: Apache-2.0
// What Transformers' files of a model directory add to a tokenizer.model.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "engine/config/json.h"
#include "engine/text/sentence_piece.h"
#include "engine/text/tokenizer_fields.h"

namespace strata::text {
namespace {

using config::Json;
using Fields = TokenizerFields;

constexpr config::JsonLimits kSettingsLimits = {.bytes = 64 << 20, .values = 4 << 20, .depth = 32};
constexpr const char* kDamagedFile = "fetch the file again";

// The tokens that these classes put before and after a text where the file does not say it.
struct ClassTokens {
  std::string_view name;
  bool has_bos;
  bool has_eos;
};
constexpr ClassTokens kClasses[] = {
    {"LlamaTokenizer", true, false},     {"LlamaTokenizerFast", true, false},
    {"CodeLlamaTokenizer", true, false}, {"CodeLlamaTokenizerFast", true, false},
    {"GemmaTokenizer", true, false},     {"GemmaTokenizerFast", true, false},
    {"T5Tokenizer", false, true},        {"T5TokenizerFast", false, true},
};

// Adds a token, or replaces one of the same id.
void add_token(AddedToken token, TokenizerDefinition* definition) {
  std::erase_if(definition->added_tokens,
                [&](const AddedToken& other) { return other.id == token.id; });
  definition->added_tokens.push_back(std::move(token));
}

int32_t checked_id(const Fields& file, std::string_view name, int64_t id) {
  if (id >= 0 && id < (1 << 24)) return static_cast<int32_t>(id);
  throw file.error(name, fmt::format("{} is not a token id", id));
}

// {"32000": {"content": "<pad>", "special": true, ...}, ...}
void read_added_decoder(const Fields& tokens, TokenizerDefinition* definition) {
  for (const config::JsonMember& member : tokens.members()) {
    int64_t id = -1;
    const char* end = member.name.data() + member.name.size();
    if (std::from_chars(member.name.data(), end, id).ptr != end) id = -1;
    const Fields entry = tokens.object(member.name);
    AddedToken token;
    token.id = checked_id(tokens, member.name, id);
    token.content = entry.text("content");
    token.special = entry.flag_or("special", false);
    token.lstrip = entry.flag_or("lstrip", false);
    token.rstrip = entry.flag_or("rstrip", false);
    token.single_word = entry.flag_or("single_word", false);
    add_token(std::move(token), definition);
  }
}

// {"<pad>": 32000, ...}
void read_added_tokens(const Fields& file, TokenizerDefinition* definition) {
  for (const config::JsonMember& member : file.members()) {
    AddedToken token;
    token.content = member.name;
    token.id = checked_id(file, member.name, file.integer(member.name));
    add_token(std::move(token), definition);
  }
}

void read_settings(const Fields& config, TokenizerDefinition* definition) {
  if (config.has("added_tokens_decoder")) {
    read_added_decoder(config.object("added_tokens_decoder"), definition);
  }
  const std::string name = config.text_or("tokenizer_class", "");
  const auto* known = std::find_if(std::begin(kClasses), std::end(kClasses),
                                   [&](const ClassTokens& one) { return one.name == name; });
  const bool is_known = known != std::end(kClasses);
  const bool has_bos = config.flag_or("add_bos_token", is_known && known->has_bos);
  const bool has_eos = config.flag_or("add_eos_token", is_known && known->has_eos);
  if (has_bos && definition->bos_id) definition->prefix_ids = {*definition->bos_id};
  if (has_eos && definition->eos_id) definition->suffix_ids = {*definition->eos_id};
  definition->is_joined_at_tokens = !config.flag_or("legacy", true);
}

}  // namespace

void apply_transformers_files(const std::string& directory, TokenizerDefinition* definition) {
  namespace fs = std::filesystem;
  const auto read = [&](const char* name, const auto& use) {
    const std::string path = (fs::path(directory) / name).string();
    if (!fs::exists(path)) return;
    const Json json = Json::read_file(path, kSettingsLimits, kDamagedFile);
    use(Fields(json, path, ""), definition);
  };
  read("added_tokens.json", read_added_tokens);
  read("tokenizer_config.json", read_settings);
}

}  // namespace strata::text
