// SPDX-License-Identifier: Apache-2.0
#include "engine/text/text_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/text/ascii_automaton.h"
#include "engine/text/text_unicode.h"

namespace strata::text {
namespace {

// The property White_Space. PCRE2's own \s is ASCII; with UCP it includes U+180E, which lost the
// property in Unicode 6.3.
constexpr const char* kWhiteSpace = R"(\x{09}-\x{0D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A})"
                                    R"(\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

constexpr size_t kPatternBytesMax = 64 * 1024;
constexpr uint32_t kMatchLimit = 50'000'000;
constexpr size_t kJitStackBytesMax = 8 * 1024 * 1024;

Error bad_pattern(std::string_view pattern, const std::string& cause) {
  constexpr size_t kShown = 120;
  std::string shown(pattern.substr(0, kShown));
  if (pattern.size() > kShown) shown += "...";
  return Error(ErrorCode::kConfig, fmt::format("read regular expression: '{}': {}",
                                               replace_invalid_utf8(shown), cause));
}

// Translates a pattern in one pass. `in_class_`: inside of [...].
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else {
        plain_character(c);
      }
    }
    return std::move(out_);
  }

 private:
  void refuse(std::string_view construct) const {
    throw bad_pattern(pattern_, fmt::format("'{}' at byte {} is not supported", construct, at_));
  }

  void copy(size_t count) {
    out_.append(pattern_, at_, count);
    at_ += count;
  }

  void class_character(char c) {
    if (c == '[') refuse("[ inside a character class");
    if (pattern_.substr(at_, 2) == "&&") refuse("&& inside a character class");
    const bool is_first = at_ == class_begin_;
    if (c == ']' && !is_first) in_class_ = false;
    copy(1);
  }

  void plain_character(char c) {
    if (c == '[') {
      in_class_ = true;
      copy(1);
      if (at_ < pattern_.size() && pattern_[at_] == '^') copy(1);
      class_begin_ = at_;
      return;
    }
    if (pattern_.substr(at_, 2) == "}+") refuse("}+");
    if (pattern_.substr(at_, 2) == "(*") refuse("(*");
    if (pattern_.substr(at_, 2) == "(?" && at_ + 2 < pattern_.size())
      group();
    else
      copy(1);
  }

  // Accepts groups, lookarounds, atomic groups and the flag i. Refuses recursion, callouts and
  // conditions.
  void group() {
    size_t end = at_ + 2;
    while (end < pattern_.size() && (pattern_[end] == 'i' || pattern_[end] == '-')) ++end;
    const bool has_flags = end > at_ + 2;
    const char kind = end < pattern_.size() ? pattern_[end] : '\0';
    const bool is_behind = kind == '<' && end + 1 < pattern_.size() &&
                           (pattern_[end + 1] == '=' || pattern_[end + 1] == '!');
    if (kind == ':' || (has_flags && kind == ')')) {
      copy(end + 1 - at_);
    } else if (!has_flags && (kind == '=' || kind == '!' || kind == '>')) {
      copy(3);
    } else if (!has_flags && is_behind) {
      copy(4);
    } else {
      refuse(pattern_.substr(at_, 3));
    }
  }

  void escape() {
    if (at_ + 1 == pattern_.size()) refuse("\\ at the end");
    const char c = pattern_[at_ + 1];
    if (c == 's') {
      out_ += in_class_ ? std::string(kWhiteSpace) : fmt::format("[{}]", kWhiteSpace);
      at_ += 2;
    } else if (c == 'S') {
      if (in_class_) refuse("\\S inside a character class");
      out_ += fmt::format("[^{}]", kWhiteSpace);
      at_ += 2;
    } else if (c == 'u') {
      unicode_escape();
    } else if (c == 'p' || c == 'P') {
      property();
    } else if (std::string_view("rntfxd").find(c) != std::string_view::npos ||
               !std::isalnum(static_cast<unsigned char>(c))) {
      copy(2);
    } else {
      refuse(pattern_.substr(at_, 2));
    }
  }

  void unicode_escape() {
    const std::string_view digits = pattern_.substr(at_ + 2, 4);
    for (const char digit : digits) {
      if (!std::isxdigit(static_cast<unsigned char>(digit))) refuse("\\u without four hex digits");
    }
    if (digits.size() != 4) refuse("\\u without four hex digits");
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
  }

  void property() {
    const size_t close = pattern_.find('}', at_);
    if (pattern_.substr(at_ + 2, 1) != "{" || close == std::string_view::npos) {
      refuse("\\p without {name}");
    }
    copy(close + 1 - at_);
  }

  std::string_view pattern_;
  size_t at_ = 0;
  size_t class_begin_ = 0;
  bool in_class_ = false;
  std::string out_;
};

struct FreePattern {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using Code = std::unique_ptr<pcre2_code, FreePattern>;

// What a thread matches with, whatever the pattern; only the place of the whole match is kept.
struct MatchMemory {
  pcre2_match_data* const data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* const context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* const jit_stack = pcre2_jit_stack_create(64 * 1024, kJitStackBytesMax, nullptr);

  MatchMemory() {
    STRATA_CHECK(data != nullptr && context != nullptr);
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_jit_stack_assign(context, nullptr, jit_stack);
  }
  MatchMemory(const MatchMemory&) = delete;
  MatchMemory& operator=(const MatchMemory&) = delete;
  ~MatchMemory() {
    pcre2_jit_stack_free(jit_stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

// Compiles a translated pattern; `pattern` is what the file has.
Code compile(std::string_view translated, uint32_t options, std::string_view pattern) {
  const std::unique_ptr<pcre2_compile_context, FreePattern> context(
      pcre2_compile_context_create(nullptr));
  STRATA_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | options,
                    &error, &offset, context.get()));
  if (code != nullptr) return code;
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  throw bad_pattern(pattern, reinterpret_cast<const char*>(text));
}

const MatchMemory& match_memory() {
  thread_local const MatchMemory memory;
  return memory;
}

// As pcre2_match().
int match_from(const pcre2_code* code, std::string_view text, size_t from) {
  const MatchMemory& memory = match_memory();
  return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                     PCRE2_NO_UTF_CHECK, memory.data, memory.context);
}

// Which ASCII characters an atom of a translated pattern matches, as PCRE2 itself says.
AsciiAutomaton::Characters characters_of(std::string_view atom, bool ignores_case) {
  const uint32_t options =
      PCRE2_ANCHORED | PCRE2_ENDANCHORED | (ignores_case ? PCRE2_CASELESS : 0u);
  const Code code = compile(atom, options, atom);
  AsciiAutomaton::Characters characters;
  for (size_t k = 0; k < characters.size(); ++k) {
    const char character = static_cast<char>(k);
    characters[k] = match_from(code.get(), {&character, 1}, 0) >= 0;
  }
  return characters;
}

}  // namespace

std::string translate_regex(std::string_view pattern) {
  return Translator(pattern).run();
}

struct TextPattern::Compiled {
  Code code;
  std::optional<AsciiAutomaton> automaton;  // of patterns that have one
};

TextPattern::TextPattern(TextPattern&&) noexcept = default;
TextPattern& TextPattern::operator=(TextPattern&&) noexcept = default;
TextPattern::~TextPattern() = default;

TextPattern TextPattern::literal(std::string text) {
  if (text.empty())
    throw Error(ErrorCode::kConfig, "read pattern: '': an empty pattern matches nothing");
  TextPattern pattern;
  pattern.literal_ = std::move(text);
  return pattern;
}

TextPattern TextPattern::character(bool (*is)(uint32_t code_point)) {
  TextPattern pattern;
  pattern.is_ = is;
  return pattern;
}

TextPattern TextPattern::regex(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    throw bad_pattern(pattern, fmt::format("longer than {} bytes", kPatternBytesMax));
  }
  if (find_invalid_utf8(pattern) != std::string_view::npos) {
    throw bad_pattern(pattern, "not UTF-8");
  }
  const std::string translated = translate_regex(pattern);
  TextPattern result;
  result.compiled_ = std::make_unique<Compiled>();
  result.compiled_->code = compile(translated, 0, pattern);
  result.compiled_->automaton = AsciiAutomaton::make(translated, characters_of);
  // Where this fails, matching is slower.
  (void)pcre2_jit_compile(result.compiled_->code.get(), PCRE2_JIT_COMPLETE);
  return result;
}

bool TextPattern::find(std::string_view text, size_t from, TextSpan* match) const {
  if (is_ != nullptr) {
    while (from < text.size() && !is_(code_point_at(text, from))) from += utf8_length(text[from]);
    if (from >= text.size()) return false;
    *match = {from, from + utf8_length(text[from])};
    return true;
  }
  if (compiled_ == nullptr) {
    const size_t at = text.find(literal_, from);
    if (at == std::string_view::npos) return false;
    *match = {at, at + literal_.size()};
    return true;
  }
  if (compiled_->automaton) {
    const size_t end = compiled_->automaton->match_end(text, from);
    if (end != std::string_view::npos) {
      *match = {from, end};
      return true;
    }
  }
  const int found = match_from(compiled_->code.get(), text, from);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    PCRE2_UCHAR cause[256];
    pcre2_get_error_message(found, cause, sizeof cause);
    throw Error(
        ErrorCode::kConfig,
        fmt::format("match regular expression: text of {} bytes at byte {}: {} (cut the text into "
                    "shorter documents: the pattern backtracks too much in it)",
                    text.size(), from, reinterpret_cast<const char*>(cause)));
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match_memory().data);
  *match = {ends[0], ends[1]};
  return true;
}

void AddedBytes::add(size_t bytes) {
  constexpr size_t kTimes = 64;
  constexpr size_t kAlways = 256;
  added_ += bytes;
  const size_t most = kTimes * text_bytes_ + kAlways;
  if (added_ <= most) return;
  throw Error(ErrorCode::kConfig,
              fmt::format("convert text: the steps of tokenizer.json add more than {} bytes to a "
                          "text of {} (is the file damaged? fetch it again)",
                          most, text_bytes_));
}

std::optional<char> TextPattern::byte() const {
  if (literal_.size() != 1) return std::nullopt;
  return literal_[0];
}

namespace {

// Most tokenizers whose pieces are long replace each space.
std::string replace_byte(char byte, std::string_view content, std::string_view text,
                         AddedBytes& added) {
  const auto count = static_cast<size_t>(std::count(text.begin(), text.end(), byte));
  added.add(count * content.size());
  std::string result(text.size() - count + count * content.size(), '\0');
  char* to = result.data();
  for (const char c : text) {
    if (c == byte) {
      to = std::copy(content.begin(), content.end(), to);
    } else {
      *to++ = c;
    }
  }
  return result;
}

}  // namespace

std::string replace_matches(const TextPattern& pattern, std::string_view content,
                            std::string_view text, AddedBytes& added) {
  if (pattern.byte()) return replace_byte(*pattern.byte(), content, text, added);
  std::string result;
  result.reserve(text.size());
  TextMatches matches(pattern, text);
  TextSpan match;
  size_t done = 0;
  while (matches.next(&match)) {
    added.add(content.size());
    result.append(text, done, match.begin - done);
    result += content;
    done = match.end;
  }
  result.append(text, done, text.size() - done);
  return result;
}

bool TextMatches::next(TextSpan* match) {
  while (from_ <= text_.size() && pattern_.find(text_, from_, match)) {
    const bool is_empty = match->end == match->begin;
    const bool is_taken = !is_empty || match->end != last_end_;
    from_ = match->end;
    if (is_empty) from_ += from_ < text_.size() ? utf8_length(text_[from_]) : 1;
    last_end_ = match->end;
    if (is_taken) return true;
  }
  from_ = text_.size() + 1;
  return false;
}

}  // namespace strata::text
