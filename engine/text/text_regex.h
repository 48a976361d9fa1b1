// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace strata::text {

struct TextSpan {
  size_t begin;
  size_t end;
};

// A pattern to look for in well-formed UTF-8: a literal string, or a regular expression as
// tokenizer.json files write them (Oniguruma syntax).
//
// Constructs whose meaning differs between Oniguruma and PCRE2 are translated (`\s`, `\u1234`, `^`,
// `$`) or refused by name, so a pattern that is accepted matches what it matches in its own
// ecosystem. Threads: one at a time. Failure: construction and matching throw Error; a pattern that
// backtracks without end runs into a match limit.
class TextPattern {
 public:
  static TextPattern literal(std::string text);
  static TextPattern regex(std::string_view pattern);
  TextPattern(TextPattern&&) noexcept;
  TextPattern& operator=(TextPattern&&) noexcept;
  ~TextPattern();

  // The first match that starts at or after `from`; false when there is none.
  bool find(std::string_view text, size_t from, TextSpan* match) const;

 private:
  struct Compiled;
  TextPattern() = default;
  std::string literal_;
  std::unique_ptr<Compiled> compiled_;  // null for a literal
};

// All matches from left to right; an empty one right behind the previous match is not taken.
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

// How much the steps of a tokenizer file may add to a text: far more than any real one does, and
// what keeps a file of a few bytes from turning a text into gigabytes.
class AddedBytes {
 public:
  explicit AddedBytes(size_t text_bytes) : text_bytes_(text_bytes) {}
  // Throws Error (kConfig) where these are too many.
  void add(size_t bytes);

 private:
  size_t text_bytes_;
  size_t added_ = 0;
};

// The text with `content` for each match.
std::string replace_matches(const TextPattern& pattern, std::string_view content,
                            std::string_view text, AddedBytes& added);

// The pattern in PCRE2 syntax. Throws Error naming the construct that cannot be translated.
std::string translate_regex(std::string_view pattern);

}  // namespace strata::text
