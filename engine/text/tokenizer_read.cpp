// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_read.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine/base/advice.h"
#include "engine/config/json_stream.h"
#include "engine/text/text_files.h"
#include "engine/text/tokenizer_fields.h"
#include "engine/text/tokenizer_steps.h"

namespace strata::text {
namespace {

using config::Json;
using Fields = TokenizerFields;

constexpr config::JsonLimits kFileLimits = {.bytes = 256 << 20, .values = 16 << 20, .depth = 32};
constexpr int64_t kTemplateBytesMax = 1 << 20;
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

void read_post_processor(const Fields& step, TokenizerDefinition* definition) {
  const std::string type = step.text("type");
  if (type == "Sequence") {
    step.allow({"type", "processors"});
    for (size_t k = 0; k < step.items("processors").size(); ++k) {
      read_post_processor(step.item("processors", k), definition);
    }
  } else if (type == "TemplateProcessing") {
    if (!definition->prefix_ids.empty() || !definition->suffix_ids.empty()) {
      throw step.error("type", "a second TemplateProcessing is not supported");
    }
    read_template(step, definition);
  } else if (type != "ByteLevel") {  // ByteLevel only changes offsets, which we do not use
    throw unsupported_type(step, type);
  }
}

// Vocabulary and merges, collected while the file is read, because as JSON values they would need
// three times the memory.
class ModelParts {
 public:
  explicit ModelParts(const std::string& source) : source_(source) {}

  std::vector<config::JsonStream> streams() {
    return {
        {"model.vocab", [this](const std::string& token, const Json& id) { add_token(token, id); }},
        {"model.merges", [this](const std::string&, const Json& merge) { add_merge(merge); }}};
  }

  // Called after the file was read, when `model` is known to be a BPE model.
  BpeDefinition take(const Fields& model) {
    (void)model.members("vocab");
    (void)model.items("merges");
    if (failure_) throw *failure_;
    if (parts_.vocabulary.empty()) throw model.error("vocab", "empty");
    return std::move(parts_);
  }

 private:
  void fail(const std::string& where, const Json& value, const char* cause) {
    if (failure_) return;
    failure_.emplace(ErrorCode::kConfig,
                     fmt::format("read tokenizer: {}: model.{}: {} is not {}", source_,
                                 replace_invalid_utf8(where), value.describe(), cause));
  }

  void add_token(const std::string& token, const Json& value) {
    const std::optional<int64_t> id = value.int64();
    if (id && *id >= 0 && *id <= std::numeric_limits<int32_t>::max()) {
      parts_.vocabulary.emplace_back(token, static_cast<int32_t>(*id));
    } else {
      fail(fmt::format("vocab['{}']", token), value, "a token id");
    }
  }

  // "a b" or ["a", "b"]
  void add_merge(const Json& merge) {
    if (merge.is_string()) {
      const std::string& text = merge.string();
      const size_t space = text.find(' ');
      if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
        parts_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
        return;
      }
    } else if (merge.is_array() && merge.items().size() == 2 && merge.items()[0].is_string() &&
               merge.items()[1].is_string()) {
      parts_.merges.emplace_back(merge.items()[0].string(), merge.items()[1].string());
      return;
    }
    fail(fmt::format("merges[{}]", parts_.merges.size()), merge, "a pair of tokens");
  }

  const std::string& source_;
  BpeDefinition parts_;
  std::optional<Error> failure_;  // the first failure
};

BpeDefinition read_model(const Fields& model, ModelParts& parts) {
  const std::string type = model.text_or("type", model.has("merges") ? "BPE" : "unknown");
  if (type != "BPE") throw unsupported_type(model, type);
  model.allow({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
               "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (model.has("dropout")) throw model.error("dropout", "not supported (set it to null)");
  model.require_empty_text("continuing_subword_prefix");
  model.require_empty_text("end_of_word_suffix");
  BpeDefinition definition = parts.take(model);
  definition.unknown_token = model.text_or("unk_token", "");
  definition.fuse_unknown = model.flag_or("fuse_unk", false);
  definition.byte_fallback = model.flag_or("byte_fallback", false);
  definition.ignore_merges = model.flag_or("ignore_merges", false);
  return definition;
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
void check_added_tokens(const Fields& file, const TokenizerDefinition& definition) {
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
    throw file.error("added_tokens",
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
    throw file.error("post_processor",
                     fmt::format("id {} is not in the vocabulary", *unknown.begin()));
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
  throw config.error(name, fmt::format("'{}' is not in tokenizer.json", content));
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

// Reads the files from which Transformers takes these values. A later file overrides an earlier
// one.
TokenizerConfig read_config(const std::filesystem::path& directory,
                            const TokenizerDefinition& definition) {
  TokenizerConfig result;
  for (const char* name :
       {"chat_template.json", "special_tokens_map.json", "tokenizer_config.json"}) {
    const std::filesystem::path path = directory / name;
    if (!std::filesystem::exists(path)) continue;
    const Json json = Json::read_file(path.string(), kFileLimits, kFetchAgain);
    const Fields config(json, path.string(), "");
    if (const auto id = read_named_token(config, "bos_token", definition)) result.bos_id = id;
    if (const auto id = read_named_token(config, "eos_token", definition)) result.eos_id = id;
    read_special_tokens(config, result);
    if (config.has("chat_template")) {
      result.chat_templates = read_chat_templates(config, path.string());
    }
  }
  std::vector<NamedTemplate> templates = read_template_files(directory);
  if (!templates.empty()) result.chat_templates = std::move(templates);
  return result;
}

TokenizerDefinition read_file(const Json& json, const std::string& source, ModelParts& parts) {
  const Fields file(json, source, "");
  // Truncation and padding are ignored: they are defaults that Transformers resets on every call.
  file.allow({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
              "post_processor", "decoder", "model"});
  if (file.text_or("version", "1.0") != "1.0") {
    throw file.error("version", fmt::format("'{}' is not supported", file.text("version")));
  }
  TokenizerDefinition definition;
  definition.model = read_model(file.object("model"), parts);
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
  check_added_tokens(file, definition);
  return definition;
}

// Adds the path and advice to an error about the tokenizer in `path`.
Error explained(const Error& error, const std::filesystem::path& path) {
  std::string what = error.what();
  if (what.find(path.parent_path().string()) == std::string::npos) {
    what = fmt::format("read tokenizer: {}: {} ({})", path.string(), what, kFetchAgain);
  } else if (what.find("not supported") != std::string::npos) {
    what +=
        " (use a model whose tokenizer is byte-level or SentencePiece BPE, or give --data as a "
        "file of tokens, without tokenizer.json in the model directory)";
  } else {
    what = with_advice(what, kFetchAgain);
  }
  return Error(error.code(), what);
}

}  // namespace

TokenizerDefinition read_tokenizer_json(std::string_view text, const std::string& source) {
  ModelParts parts(source);
  const Json json = parse_json(text, source, kFileLimits, kFetchAgain, parts.streams());
  return read_file(json, source, parts);
}

Tokenizer Tokenizer::read(const std::string& directory) {
  const std::filesystem::path path = std::filesystem::path(directory) / "tokenizer.json";
  if (!std::filesystem::exists(path)) {
    throw Error(ErrorCode::kConfig,
                fmt::format("read tokenizer: {}: no such file (convert a directory with only "
                            "tokenizer.model by loading and saving it with Transformers)",
                            path.string()));
  }
  ModelParts parts(path.native());
  const Json json = read_json_file(path.string(), kFileLimits, kFetchAgain, parts.streams());
  try {
    TokenizerDefinition definition = read_file(json, path.string(), parts);
    TokenizerConfig config = read_config(path.parent_path(), definition);
    return Tokenizer(std::move(definition), std::move(config));
  } catch (const Error& error) {
    throw explained(error, path);
  }
}

}  // namespace strata::text
