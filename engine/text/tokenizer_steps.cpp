// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_steps.h"

#include <fmt/format.h>

#include <utility>

#include "engine/text/text_bert.h"
#include "engine/text/tokenizer_fields.h"

namespace strata::text {
namespace {

using Fields = TokenizerFields;

constexpr const char* kMetaspace = "\xE2\x96\x81";  // U+2581

// {"String": "..."} or {"Regex": "..."}
TextPattern read_pattern(const Fields& step) {
  const Fields pattern = step.object("pattern");
  pattern.allow({"String", "Regex"});
  try {
    if (pattern.has("Regex")) return TextPattern::regex(pattern.text("Regex"));
    return TextPattern::literal(pattern.text("String"));
  } catch (const Error& error) {
    throw step.error("pattern", error.what());
  }
}

SplitBehavior read_behavior(const Fields& step, const char* otherwise = nullptr) {
  static constexpr std::pair<const char*, SplitBehavior> kBehaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  const std::string name =
      otherwise == nullptr ? step.text("behavior") : step.text_or("behavior", otherwise);
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) return behavior;
  }
  throw step.error("behavior", fmt::format("'{}' is not supported", name));
}

// Reads "prepend_scheme", or the flag that older files have instead.
PrependScheme read_prepend_scheme(const Fields& step) {
  const std::string otherwise = step.flag_or("add_prefix_space", true) ? "always" : "never";
  const std::string scheme = step.text_or("prepend_scheme", otherwise);
  if (scheme == "always") return PrependScheme::kAlways;
  if (scheme == "first") return PrependScheme::kFirst;
  if (scheme == "never") return PrependScheme::kNever;
  throw step.error("prepend_scheme", fmt::format("'{}' is not supported", scheme));
}

std::string read_replacement(const Fields& step) {
  const std::string replacement = step.text_or("replacement", kMetaspace);
  if (replacement.empty() || utf8_length(replacement[0]) != replacement.size()) {
    throw step.error("replacement", "not one character");
  }
  return replacement;
}

void read_byte_level(const Fields& step, TokenizerDefinition* definition) {
  step.allow({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (step.flag_or("add_prefix_space", true))
    definition->pre_tokenizers.emplace_back(PrefixSpaceStep{});
  if (step.flag_or("use_regex", true)) {
    definition->pre_tokenizers.emplace_back(
        SplitStep{TextPattern::regex(kGpt2Pattern), SplitBehavior::kIsolated, false});
  }
  definition->byte_level = true;
}

// One character.
std::string read_character(const Fields& step, std::string_view name) {
  const std::string character = step.text(name);
  if (character.empty() || utf8_length(character[0]) != character.size()) {
    throw step.error(name, "not one character");
  }
  return character;
}

NormalizeBert read_bert(const Fields& step) {
  step.allow({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool lowercases = step.flag_or("lowercase", true);
  return {step.flag_or("clean_text", true), step.flag_or("handle_chinese_chars", true),
          step.flag_or("strip_accents", lowercases), lowercases};
}

NormalizeCharsmap read_charsmap(const Fields& step) {
  step.allow({"type", "precompiled_charsmap"});
  const std::string map = step.text_or("precompiled_charsmap", "");
  try {
    return {map.empty() ? Charsmap() : Charsmap(decode_base64(map))};
  } catch (const Error& error) {
    throw step.error("precompiled_charsmap", error.what());
  }
}

// Reads steps that cut at characters of a kind. False for others.
bool read_character_split(const Fields& step, const std::string& type,
                          std::vector<PreTokenizeStep>* steps) {
  if (type == "BertPreTokenizer" || type == "Whitespace" || type == "WhitespaceSplit") {
    step.allow({"type"});
    steps->emplace_back(
        SplitStep{TextPattern::character(is_white_space), SplitBehavior::kRemoved, false});
    if (type == "WhitespaceSplit") return true;
    const bool is_bert = type == "BertPreTokenizer";
    steps->emplace_back(SplitStep{TextPattern::character(is_bert ? is_punctuation : is_word),
                                  is_bert ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                                  false});
  } else if (type == "Punctuation") {
    step.allow({"type", "behavior"});
    steps->emplace_back(
        SplitStep{TextPattern::character(is_punctuation), read_behavior(step, "Isolated"), false});
  } else if (type == "CharDelimiterSplit") {
    step.allow({"type", "delimiter"});
    steps->emplace_back(SplitStep{TextPattern::literal(read_character(step, "delimiter")),
                                  SplitBehavior::kRemoved, false});
  } else {
    return false;
  }
  return true;
}

}  // namespace

Error unsupported_type(const Fields& step, const std::string& type) {
  return step.error("type", fmt::format("'{}' is not supported", type));
}

void read_normalizer(const Fields& step, std::vector<NormalizeStep>* steps) {
  const std::string type = step.text("type");
  if (type == "Sequence") {
    step.allow({"type", "normalizers"});
    for (size_t k = 0; k < step.items("normalizers").size(); ++k) {
      read_normalizer(step.item("normalizers", k), steps);
    }
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    step.allow({"type"});
    const bool is_composed = type.back() == 'C';
    UnicodeForm form = is_composed ? UnicodeForm::kNfkc : UnicodeForm::kNfkd;
    if (type.size() == 3) form = is_composed ? UnicodeForm::kNfc : UnicodeForm::kNfd;
    steps->emplace_back(NormalizeUnicode{form});
  } else if (type == "Lowercase") {
    step.allow({"type"});
    steps->emplace_back(NormalizeLowercase{});
  } else if (type == "StripAccents") {
    step.allow({"type"});
    steps->emplace_back(NormalizeAccents{});
  } else if (type == "Nmt") {
    step.allow({"type"});
    steps->emplace_back(NormalizeControls{});
  } else if (type == "BertNormalizer") {
    steps->emplace_back(read_bert(step));
  } else if (type == "Precompiled") {
    steps->emplace_back(read_charsmap(step));
  } else if (type == "Prepend") {
    step.allow({"type", "prepend"});
    steps->emplace_back(NormalizePrepend{step.text("prepend")});
  } else if (type == "Replace") {
    step.allow({"type", "pattern", "content"});
    steps->emplace_back(NormalizeReplace{read_pattern(step), step.text("content")});
  } else if (type == "Strip") {
    step.allow({"type", "strip_left", "strip_right"});
    steps->emplace_back(
        NormalizeStrip{step.flag_or("strip_left", true), step.flag_or("strip_right", true)});
  } else {
    throw unsupported_type(step, type);
  }
}

void read_pre_tokenizer(const Fields& step, TokenizerDefinition* definition) {
  const std::string type = step.text("type");
  if (definition->byte_level) {
    throw step.error("type", fmt::format("'{}' after ByteLevel is not supported", type));
  }
  if (type == "Sequence") {
    step.allow({"type", "pretokenizers"});
    for (size_t k = 0; k < step.items("pretokenizers").size(); ++k) {
      read_pre_tokenizer(step.item("pretokenizers", k), definition);
    }
  } else if (type == "ByteLevel") {
    read_byte_level(step, definition);
  } else if (type == "Split") {
    step.allow({"type", "pattern", "behavior", "invert"});
    definition->pre_tokenizers.emplace_back(
        SplitStep{read_pattern(step), read_behavior(step), step.flag_or("invert", false)});
  } else if (type == "Digits") {
    step.allow({"type", "individual_digits"});
    const SplitBehavior behavior = step.flag_or("individual_digits", false)
                                       ? SplitBehavior::kIsolated
                                       : SplitBehavior::kContiguous;
    definition->pre_tokenizers.emplace_back(
        SplitStep{TextPattern::regex("\\p{N}"), behavior, false});
  } else if (type == "Metaspace") {
    step.allow({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    const std::string replacement = read_replacement(step);
    definition->pre_tokenizers.emplace_back(MetaspaceStep{TextPattern::literal(replacement),
                                                          replacement, read_prepend_scheme(step),
                                                          step.flag_or("split", true)});
  } else if (!read_character_split(step, type, &definition->pre_tokenizers)) {
    throw unsupported_type(step, type);
  }
}

void read_decoder(const Fields& step, std::vector<DecodeStep>* steps) {
  const std::string type = step.text("type");
  if (type == "Sequence") {
    step.allow({"type", "decoders"});
    for (size_t k = 0; k < step.items("decoders").size(); ++k) {
      read_decoder(step.item("decoders", k), steps);
    }
  } else if (type == "ByteLevel") {
    steps->emplace_back(DecodeByteLevel{});
  } else if (type == "ByteFallback") {
    steps->emplace_back(DecodeByteFallback{});
  } else if (type == "Fuse") {
    steps->emplace_back(DecodeFuse{});
  } else if (type == "Metaspace") {
    step.allow({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    steps->emplace_back(DecodeMetaspace{read_replacement(step),
                                        read_prepend_scheme(step) != PrependScheme::kNever});
  } else if (type == "Replace") {
    step.allow({"type", "pattern", "content"});
    steps->emplace_back(DecodeReplace{read_pattern(step), step.text("content")});
  } else if (type == "Strip") {
    step.allow({"type", "content", "start", "stop"});
    steps->emplace_back(
        DecodeStrip{read_character(step, "content"), step.integer("start"), step.integer("stop")});
  } else if (type == "WordPiece") {
    step.allow({"type", "prefix", "cleanup"});
    steps->emplace_back(
        DecodeWordPiece{step.text_or("prefix", "##"), step.flag_or("cleanup", true)});
  } else {
    throw unsupported_type(step, type);
  }
}

}  // namespace strata::text
