// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace strata::text {

struct TextSpan {
  size_t begin;
  size_t end;
};

// A pattern to find in well-formed UTF-8: a literal string, a character of a kind, or a regular
// expression in the syntax of tokenizer.json (Oniguruma).
//
// Constructs whose meaning differs between Oniguruma and PCRE2 are translated (`\s`, `\u1234`, `^`,
// `$`) or refused by name, so an accepted pattern matches the same text as in the `tokenizers`
// library. Threads: any number; immutable after construction. Memory: 64 KiB to 8 MiB for each
// thread that matches. Failure: construction and matching throw Error; a match limit stops a
// pattern that backtracks too much.
class TextPattern {
 public:
  static TextPattern literal(std::string text);
  static TextPattern regex(std::string_view pattern);
  static TextPattern character(bool (*is)(uint32_t code_point));
  TextPattern(TextPattern&&) noexcept;
  TextPattern& operator=(TextPattern&&) noexcept;
  ~TextPattern();

  // The first match that starts at or after `from`; false when there is none.
  bool find(std::string_view text, size_t from, TextSpan* match) const;
  // The byte that it matches, if it matches no other text.
  std::optional<char> byte() const;

 private:
  struct Compiled;
  TextPattern() = default;
  std::string literal_;
  std::unique_ptr<Compiled> compiled_;  // null for the other kinds
  bool (*is_)(uint32_t) = nullptr;      // null for the other kinds
};

// All matches from left to right, except for an empty match right after the previous one.
class TextMatches {
 public:
  TextMatches(const TextPattern& pattern, std::string_view text) : pattern_(pattern), text_(text) {}
  bool next(TextSpan* match);

 private:
  const TextPattern& pattern_;
  std::string_view text_;
  size_t from_ = 0;
  size_t last_end_ = std::string_view::npos;
};

// Limits how much the steps of a tokenizer file may add to a text, so that a file of a few bytes
// cannot turn a text into gigabytes. The limit is far above what real files add.
class AddedBytes {
 public:
  explicit AddedBytes(size_t text_bytes) : text_bytes_(text_bytes) {}
  // Throws Error (kConfig) when the total exceeds the limit.
  void add(size_t bytes);

 private:
  size_t text_bytes_;
  size_t added_ = 0;
};

// Returns the text with each match replaced by `content`.
std::string replace_matches(const TextPattern& pattern, std::string_view content,
                            std::string_view text, AddedBytes& added);

// Returns the pattern in PCRE2 syntax. Throws Error that names the construct that cannot be
// translated.
std::string translate_regex(std::string_view pattern);

}  // namespace strata::text
