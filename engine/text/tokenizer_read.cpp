// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_read.h"

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine/base/advice.h"
#include "engine/config/json_stream.h"
#include "engine/text/sentence_piece.h"
#include "engine/text/text_files.h"
#include "engine/text/tokenizer_fields.h"
#include "engine/text/tokenizer_model_read.h"
#include "engine/text/tokenizer_steps.h"

namespace strata::text {
namespace {

using config::Json;
using Fields = TokenizerFields;

constexpr config::JsonLimits kFileLimits = {.bytes = 256 << 20, .values = 16 << 20, .depth = 32};
constexpr int64_t kTemplateBytesMax = 1 << 20;
constexpr int64_t kProtoBytesMax = 64 << 20;
constexpr const char* kJsonName = "tokenizer.json";
// In the order of preference; all others than the first are SentencePiece's.
constexpr const char* kNames[] = {kJsonName, "tokenizer.model", "spiece.model"};
constexpr const char* kFetchAgain = "fetch the file again";

// [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, ...]: ids before and after the text.
void read_template(const Fields& step, TokenizerDefinition* definition) {
  step.allow({"type", "single", "pair", "special_tokens"});
  const Fields known = step.object("special_tokens");
  bool is_behind = false;
  for (size_t k = 0; k < step.items("single").size(); ++k) {
    const Fields piece = step.item("single", k);
    if (piece.has("Sequence")) {
      if (is_behind) throw step.error("single", "has the text twice");
      is_behind = true;
      continue;
    }
    const Fields token = known.object(piece.object("SpecialToken").text("id"));
    std::vector<int32_t>& ids = is_behind ? definition->suffix_ids : definition->prefix_ids;
    for (const Json& value : token.items("ids")) {
      const std::optional<int64_t> id = value.int64();
      if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) {
        throw token.error("ids", fmt::format("{} is not a token id", value.describe()));
      }
      ids.push_back(static_cast<int32_t>(*id));
    }
  }
  if (!is_behind) throw step.error("single", "does not have the text");
}

// ["[SEP]", 102]: a token and its id.
int32_t read_named_id(const Fields& step, std::string_view name) {
  const Json::Array& pair = step.items(name);
  const std::optional<int64_t> id = pair.size() == 2 ? pair[1].int64() : std::nullopt;
  if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) {
    throw step.error(name, "is not a token and its id");
  }
  return static_cast<int32_t>(*id);
}

void read_post_processor(const Fields& step, TokenizerDefinition* definition) {
  const std::string type = step.text("type");
  const bool adds_tokens =
      type == "TemplateProcessing" || type == "BertProcessing" || type == "RobertaProcessing";
  if (adds_tokens && (!definition->prefix_ids.empty() || !definition->suffix_ids.empty())) {
    throw step.error("type",
                     fmt::format("a second step that adds tokens, '{}', is not supported", type));
  }
  if (type == "Sequence") {
    step.allow({"type", "processors"});
    for (size_t k = 0; k < step.items("processors").size(); ++k) {
      read_post_processor(step.item("processors", k), definition);
    }
  } else if (type == "TemplateProcessing") {
    read_template(step, definition);
  } else if (adds_tokens) {
    step.allow({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    definition->prefix_ids = {read_named_id(step, "cls")};
    definition->suffix_ids = {read_named_id(step, "sep")};
  } else if (type != "ByteLevel") {  // ByteLevel only changes offsets, which we do not use
    throw unsupported_type(step, type);
  }
}

AddedToken read_added_token(const Fields& token) {
  token.allow({"id", "content", "special", "lstrip", "rstrip", "single_word", "normalized"});
  AddedToken added;
  const int64_t id = token.integer("id");
  if (id < 0 || id >= (1 << 24)) throw token.error("id", fmt::format("{} is not a token id", id));
  added.id = static_cast<int32_t>(id);
  added.content = token.text("content");
  added.special = token.flag_or("special", false);
  added.lstrip = token.flag_or("lstrip", false);
  added.rstrip = token.flag_or("rstrip", false);
  added.single_word = token.flag_or("single_word", false);
  added.normalized = token.flag_or("normalized", !added.special);
  return added;
}

// Checks added tokens. One may equal a token of the model if both have the same id.
void check_added_tokens(const TokenizerDefinition& definition,
                        const std::function<Error(const char*, const std::string&)>& error) {
  std::unordered_map<std::string_view, int32_t> id_by_text;
  std::unordered_map<int32_t, std::string_view> text_by_id;
  std::unordered_set<int32_t> unknown(definition.prefix_ids.begin(), definition.prefix_ids.end());
  unknown.insert(definition.suffix_ids.begin(), definition.suffix_ids.end());
  const auto check = [&](std::string_view text, int32_t id) {
    unknown.erase(id);
    const auto by_text = id_by_text.find(text);
    const auto by_id = text_by_id.find(id);
    const bool clashes_by_text = by_text != id_by_text.end() && by_text->second != id;
    const bool clashes_by_id = by_id != text_by_id.end() && by_id->second != text;
    if (!clashes_by_text && !clashes_by_id) return;
    throw error("added_tokens",
                fmt::format("'{}' has id {}, which clashes with '{}' of id {}", text, id,
                            clashes_by_id ? by_id->second : by_text->first,
                            clashes_by_id ? by_id->first : by_text->second));
  };
  for (const AddedToken& token : definition.added_tokens) {
    check(token.content, token.id);
    id_by_text.emplace(token.content, token.id);
    text_by_id.emplace(token.id, token.content);
  }
  for (const auto& [text, id] : definition.model.vocabulary) check(text, id);
  if (!unknown.empty()) {
    throw error("post_processor", fmt::format("id {} is not in the vocabulary", *unknown.begin()));
  }
}

// A token of tokenizer_config.json is a string or an object with "content".
std::string token_text(const Fields& config, std::string_view name) {
  return config.is_text(name) ? config.text(name) : config.object(name).text("content");
}

std::optional<int32_t> read_named_token(const Fields& config, std::string_view name,
                                        const TokenizerDefinition& definition) {
  if (!config.has(name)) return std::nullopt;
  const std::string content = token_text(config, name);
  for (const AddedToken& token : definition.added_tokens) {
    if (token.content == content) return token.id;
  }
  for (const auto& [token, id] : definition.model.vocabulary) {
    if (token == content) return id;
  }
  throw config.error(name, fmt::format("'{}' is not in the tokenizer's vocabulary", content));
}

// One template, or a list of templates with names.
std::vector<NamedTemplate> read_chat_templates(const Fields& config, const std::string& path) {
  const char* name = "chat_template";
  if (config.is_text(name)) return {{"default", config.text(name), path}};
  std::vector<NamedTemplate> templates;
  for (size_t k = 0; k < config.items(name).size(); ++k) {
    const Fields entry = config.item(name, k);
    templates.push_back({entry.text("name"), entry.text("template"), path});
  }
  return templates;
}

// The templates in files of their own.
std::vector<NamedTemplate> read_template_files(const std::filesystem::path& directory) {
  namespace fs = std::filesystem;
  std::map<std::string, fs::path> paths;
  if (fs::exists(directory / "chat_template.jinja")) {
    paths["default"] = directory / "chat_template.jinja";
  }
  const fs::path others = directory / "additional_chat_templates";
  if (fs::is_directory(others)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(others)) {
      const fs::path& path = entry.path();
      if (path.extension() == ".jinja") paths.emplace(path.stem().string(), path);
    }
  }
  std::vector<NamedTemplate> templates;
  for (const auto& [name, path] : paths) {
    templates.push_back({name, read_text_file(path.string(), kTemplateBytesMax), path.string()});
  }
  return templates;
}

// Reads the texts of the special tokens that chat templates know by name.
void read_special_tokens(const Fields& config, TokenizerConfig& result) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    if (!config.has(name)) continue;
    std::erase_if(result.special_tokens, [&](const auto& one) { return one.first == name; });
    result.special_tokens.emplace_back(name, token_text(config, name));
  }
}

}  // namespace

// A later file overrides an earlier one.
std::vector<NamedTemplate> chat_templates_in(const std::string& directory) {
  std::vector<NamedTemplate> templates = read_template_files(directory);
  if (!templates.empty()) return templates;
  for (const char* name :
       {"chat_template.json", "special_tokens_map.json", "tokenizer_config.json"}) {
    const std::filesystem::path path = std::filesystem::path(directory) / name;
    if (!std::filesystem::exists(path)) continue;
    const Json json = Json::read_file(path.string(), kFileLimits, kFetchAgain);
    const Fields config(json, path.string(), "");
    if (config.has("chat_template")) templates = read_chat_templates(config, path.string());
  }
  return templates;
}

namespace {

// Reads the files from which Transformers takes these values. A later file overrides an earlier
// one.
TokenizerConfig read_config(const std::filesystem::path& directory,
                            const TokenizerDefinition& definition) {
  TokenizerConfig result;
  result.bos_id = definition.bos_id;
  result.eos_id = definition.eos_id;
  for (const char* name :
       {"chat_template.json", "special_tokens_map.json", "tokenizer_config.json"}) {
    const std::filesystem::path path = directory / name;
    if (!std::filesystem::exists(path)) continue;
    const Json json = Json::read_file(path.string(), kFileLimits, kFetchAgain);
    const Fields config(json, path.string(), "");
    if (const auto id = read_named_token(config, "bos_token", definition)) result.bos_id = id;
    if (const auto id = read_named_token(config, "eos_token", definition)) result.eos_id = id;
    read_special_tokens(config, result);
  }
  result.chat_templates = chat_templates_in(directory.string());
  return result;
}

TokenizerDefinition read_file(const Json& json, const std::string& source,
                              TokenizerModelParts& parts) {
  const Fields file(json, source, "");
  // Truncation and padding are ignored: they are defaults that Transformers resets on every call.
  file.allow({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
              "post_processor", "decoder", "model"});
  if (file.text_or("version", "1.0") != "1.0") {
    throw file.error("version", fmt::format("'{}' is not supported", file.text("version")));
  }
  TokenizerDefinition definition;
  definition.model = parts.take(file.object("model"));
  if (file.has("added_tokens")) {
    for (size_t k = 0; k < file.items("added_tokens").size(); ++k) {
      definition.added_tokens.push_back(read_added_token(file.item("added_tokens", k)));
    }
  }
  if (file.has("normalizer")) read_normalizer(file.object("normalizer"), &definition.normalizers);
  if (file.has("pre_tokenizer")) read_pre_tokenizer(file.object("pre_tokenizer"), &definition);
  if (file.has("post_processor")) {
    read_post_processor(file.object("post_processor"), &definition);
  }
  if (file.has("decoder")) {
    read_decoder(file.object("decoder"), &definition.decoders.emplace());
  }
  check_added_tokens(definition, [&](const char* name, const std::string& cause) {
    return file.error(name, cause);
  });
  return definition;
}

TokenizerDefinition read_proto(const std::filesystem::path& path) {
  TokenizerDefinition definition =
      read_sentence_piece(read_text_file(path.string(), kProtoBytesMax), path.string());
  apply_transformers_files(path.parent_path().string(), &definition);
  check_added_tokens(definition, [&](const char*, const std::string& cause) {
    return Error(ErrorCode::kConfig, fmt::format("read tokenizer: {}: {}", path.string(), cause));
  });
  return definition;
}

// Adds the path and advice to an error about the tokenizer in `path`.
Error explained(const Error& error, const std::filesystem::path& path) {
  std::string what = error.what();
  if (what.find(path.parent_path().string()) == std::string::npos) {
    what = fmt::format("read tokenizer: {}: {} ({})", path.string(), what, kFetchAgain);
  } else if (what.find("not supported") != std::string::npos) {
    what +=
        " (use a model with a tokenizer of BPE, Unigram or WordPiece, or give --data as a file of "
        "tokens, without tokenizer.json in the model directory)";
  } else {
    what = with_advice(what, kFetchAgain);
  }
  return Error(error.code(), what);
}

// The file of a model directory that has its tokenizer.
std::optional<std::filesystem::path> find_file(const std::filesystem::path& directory) {
  for (const char* name : kNames) {
    if (std::filesystem::exists(directory / name)) return directory / name;
  }
  return std::nullopt;
}

}  // namespace

TokenizerDefinition read_tokenizer_json(std::string_view text, const std::string& source) {
  TokenizerModelParts parts(source);
  const Json json = parse_json(text, source, kFileLimits, kFetchAgain, parts.streams());
  return read_file(json, source, parts);
}

bool Tokenizer::is_in(const std::string& directory) {
  return find_file(directory).has_value();
}

Tokenizer Tokenizer::read(const std::string& directory) {
  const auto found = find_file(directory);
  if (!found) {
    throw Error(ErrorCode::kConfig,
                fmt::format("read tokenizer: {}: it has neither tokenizer.json nor tokenizer.model "
                            "(give a directory with one of them; Transformers' AutoTokenizer saves "
                            "other tokenizers as tokenizer.json with save_pretrained())",
                            directory));
  }
  const std::filesystem::path& path = *found;
  const bool has_json = path.filename() == kJsonName;
  TokenizerModelParts parts(path.native());
  const Json json =
      has_json ? read_json_file(path.string(), kFileLimits, kFetchAgain, parts.streams()) : Json();
  try {
    TokenizerDefinition definition =
        has_json ? read_file(json, path.string(), parts) : read_proto(path);
    TokenizerConfig config = read_config(path.parent_path(), definition);
    return Tokenizer(std::move(definition), std::move(config));
  } catch (const Error& error) {
    throw explained(error, path);
  }
}

}  // namespace strata::text
