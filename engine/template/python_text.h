// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/template/value.h"

namespace strata::templates {

// Strings as Python sees them: sequences of code points, held as well-formed UTF-8.

bool is_python_space(uint32_t code_point);
int64_t length_of(std::string_view text);
// The byte offset of a code point; the size of the text when there are fewer.
size_t offset_of(std::string_view text, int64_t index);

// The parts of a text that strip() removes from its sides: white space, or any of `characters`.
enum class Side { kLeft, kRight, kBoth };
std::string_view strip(std::string_view text, Side side);
std::string_view strip(std::string_view text, Side side, std::string_view characters);

// str.split() and rsplit(): at white space without a separator, which must not be empty. `most`
// cuts, or any number when it is negative.
std::vector<std::string_view> split_spaces(std::string_view text, int64_t most);
std::vector<std::string_view> rsplit_spaces(std::string_view text, int64_t most);
std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    int64_t most);
std::vector<std::string_view> rsplit(std::string_view text, std::string_view separator,
                                     int64_t most);
std::vector<std::string_view> split_lines(std::string_view text, bool keeps_ends);
// str.replace(); `most` replacements, or any number when it is negative.
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t most);
// str.islower() and isupper(): whether a text has a character of the wanted case and none of the
// other.
bool has_only_case(std::string_view text, bool (*is_wanted)(uint32_t), bool (*is_other)(uint32_t));

// markupsafe.escape().
std::string escape(std::string_view text);

// Python's repr() of a float, which is also what json.dumps() writes of a finite one.
std::string repr(double number);
std::string repr(std::string_view text);

// Receives text; the caller's limits apply there.
class TextSink {
 public:
  virtual void add(std::string_view text) = 0;

 protected:
  ~TextSink() = default;
};

// A value without a text of its own in Python, such as a method, whose text is an address.
struct NoText {
  std::string cause;
};

// Python's str() and repr() of a value. Throws NoText.
void write_text(const Value& value, TextSink& out);
void write_repr(const Value& value, TextSink& out);

struct JsonStyle {
  bool ensures_ascii = false;
  bool has_indent = false;
  std::string_view indent;
  std::string_view item_separator = ", ";
  std::string_view name_separator = ": ";
  bool sorts_names = false;
};
// Python's json.dumps(). Throws NoText for what it refuses.
void write_json(const Value& value, const JsonStyle& style, TextSink& out);

}  // namespace strata::templates
