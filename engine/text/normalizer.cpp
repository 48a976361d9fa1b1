// SPDX-License-Identifier: Apache-2.0
#include "engine/text/normalizer.h"

#include "engine/text/text_bert.h"

namespace strata::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

std::string_view strip(std::string_view text, bool left, bool right) {
  size_t begin = 0;
  size_t end = text.size();
  while (left && begin < end && is_white_space(code_point_at(text, begin))) {
    begin += utf8_length(text[begin]);
  }
  while (right && end > begin) {
    const size_t last = utf8_start(text, end - 1);
    if (!is_white_space(code_point_at(text, last))) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

// The text of a document between two steps.
struct StepText {
  std::string_view text;
  bool continues;
  AddedBytes& added;
};

std::string apply(const NormalizeUnicode& step, const StepText& in) {
  return to_unicode_form(step.form, in.text);
}

std::string apply(const NormalizeLowercase&, const StepText& in) {
  return to_lower_case(in.text);
}

std::string apply(const NormalizeAccents&, const StepText& in) {
  return without_marks(in.text);
}

std::string apply(const NormalizeControls&, const StepText& in) {
  return without_nmt_controls(in.text);
}

std::string apply(const NormalizePrepend& step, const StepText& in) {
  if (in.text.empty() || in.continues) return std::string(in.text);
  in.added.add(step.text.size());
  return step.text + std::string(in.text);
}

std::string apply(const NormalizeReplace& step, const StepText& in) {
  return replace_matches(step.pattern, step.content, in.text, in.added);
}

std::string apply(const NormalizeStrip& step, const StepText& in) {
  return std::string(strip(in.text, step.left, step.right));
}

std::string apply(const NormalizeBert& step, const StepText& in) {
  std::string text(in.text);
  if (step.cleans) text = without_controls(text);
  if (step.spaces_ideographs) text = with_spaced_ideographs(text);
  if (step.strips_accents) text = without_accents(to_unicode_form(UnicodeForm::kNfd, text));
  return step.lowercases ? to_lower_case(text) : text;
}

std::string apply(const NormalizeCharsmap& step, const StepText& in) {
  return step.charsmap.replace_clusters(in.text, in.added);
}

// The replacement of the start of a text, and the bytes that it stands for.
Charsmap::Rule next_replacement(const NormalizeSentencePiece& step, std::string_view text) {
  const size_t verbatim = step.verbatim.longest_prefix(text).end;
  if (verbatim > 0) return {verbatim, text.substr(0, verbatim)};
  const Charsmap::Rule rule = step.charsmap.longest(text);
  if (rule.bytes > 0) return rule;
  const size_t length = utf8_length(text[0]);
  return {length, text.substr(0, length)};
}

// Replaces all of a text and removes spaces that follow spaces, and those at the start.
std::string replaced(const NormalizeSentencePiece& step, std::string_view text, AddedBytes& added) {
  std::string result;
  result.reserve(text.size() + text.size() / 2);
  bool follows_space = step.removes_spaces;
  while (!text.empty()) {
    Charsmap::Rule rule = next_replacement(step, text);
    text.remove_prefix(rule.bytes);
    while (follows_space && rule.replacement.starts_with(' ')) rule.replacement.remove_prefix(1);
    added.add(rule.replacement.size());
    for (const char c : rule.replacement) {
      if (c == ' ')
        result += kSpaceMark;
      else
        result += c;
    }
    if (!step.removes_spaces || rule.replacement.empty()) continue;
    follows_space = rule.replacement.ends_with(' ');
  }
  return result;
}

// A text that continues another one and starts with a space keeps it.
std::string apply(const NormalizeSentencePiece& step, const StepText& in) {
  std::string_view rest = in.text;
  while (step.removes_spaces && !rest.empty()) {
    const Charsmap::Rule rule = next_replacement(step, rest);
    if (rule.replacement != " ") break;
    rest.remove_prefix(rule.bytes);
  }
  if (rest.empty()) return "";
  const bool is_prefixed = step.prepends_space && !step.spaces_end_words &&
                           (!in.continues || rest.size() < in.text.size());
  std::string text(is_prefixed ? kSpaceMark : "");
  text += replaced(step, rest, in.added);
  while (step.removes_spaces && text.ends_with(kSpaceMark)) {
    text.resize(text.size() - kSpaceMark.size());
  }
  if (step.prepends_space && step.spaces_end_words) text += kSpaceMark;
  return text;
}

}  // namespace

std::string normalize(const std::vector<NormalizeStep>& steps, std::string_view text,
                      bool continues) {
  std::string result(text);
  AddedBytes added(text.size());
  for (const NormalizeStep& any : steps) {
    result = std::visit(
        [&](const auto& step) {
          return apply(step, StepText{result, continues, added});
        },
        any);
  }
  return result;
}

}  // namespace strata::text
