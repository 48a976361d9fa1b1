// SPDX-License-Identifier: Apache-2.0
#include "engine/data/record_stream.h"

#include <fmt/format.h>

#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/json_stream.h"

namespace strata::data {
namespace {

constexpr int64_t kRecordBytesMax = 64 * kMiB;
constexpr size_t kReadBytes = 1 << 20;
constexpr std::string_view kOneRecord =
    "write one JSON object in each line, such as {\"text\": \"...\"}; plain text is named .txt";

Error bad_stream(const std::string& where, const std::string& cause) {
  return Error(ErrorCode::kConfig, fmt::format("read data: {}: {}", where, cause));
}

bool is_white(int character) {
  return character == ' ' || character == '\t' || character == '\r' || character == '\n';
}

// The characters of a file one after another, in little memory.
class Characters {
 public:
  explicit Characters(const std::string& path) : reader_(path) {}

  // -1 at the end.
  int take() {
    if (at_ == buffer_.size()) {
      buffer_.resize(kBytes);
      buffer_.resize(reader_.read(buffer_.data(), kBytes));
      at_ = 0;
    }
    return at_ < buffer_.size() ? static_cast<unsigned char>(buffer_[at_++]) : -1;
  }
  int take_value() {
    int next = take();
    while (is_white(next)) next = take();
    return next;
  }
  // The start of a string whose opening quote was taken, as it is written.
  std::string take_string() {
    std::string start;
    const auto keep = [&](int next) {
      if (next >= 0 && start.size() < kShownBytes) start += static_cast<char>(next);
    };
    for (int next = take(); next >= 0 && next != '"'; next = take()) {
      keep(next);
      if (next == '\\') keep(take());
    }
    return start;
  }

 private:
  static constexpr size_t kBytes = 64 << 10;
  static constexpr size_t kShownBytes = 256;

  text::FileReader reader_;
  std::string buffer_;
  size_t at_ = 0;
};

template <class Reader, class Use>
void read_items(Reader reader, const Use& use) {
  while (reader.next()) {
    if (!use(reader.text(), reader.number())) return;
  }
}

}  // namespace

ArrayReader::ArrayReader(const std::string& path, text::LineReader::Check check)
    : path_(path), reader_(path), check_(std::move(check)) {}

int ArrayReader::peek() {
  if (at_ == buffer_.size()) {
    buffer_.resize(kReadBytes);
    buffer_.resize(reader_.read(buffer_.data(), kReadBytes));
    at_ = 0;
    if (is_begun_ && !text_.empty()) check_(number_, static_cast<int64_t>(text_.size()));
  }
  return at_ < buffer_.size() ? static_cast<unsigned char>(buffer_[at_]) : -1;
}

int ArrayReader::take() {
  const int character = peek();
  if (character >= 0) ++at_;
  if (character == '\n') ++line_;
  return character;
}

int ArrayReader::peek_value() {
  while (is_white(peek())) take();
  return peek();
}

void ArrayReader::refuse(const std::string& cause) const {
  throw bad_stream(fmt::format("{}:{}", path_, line_), cause);
}

// Takes the text up to the comma or bracket behind the item.
void ArrayReader::read_value() {
  int depth = 0;
  bool is_string = false;
  for (int next = peek(); next >= 0; next = peek()) {
    if (!is_string && depth == 0 && (next == ',' || next == ']')) return;
    text_ += static_cast<char>(take());
    if (is_string && next == '\\' && peek() >= 0) {
      text_ += static_cast<char>(take());
    } else if (next == '"') {
      is_string = !is_string;
    } else if (!is_string) {
      depth += next == '{' || next == '[' ? 1 : next == '}' || next == ']' ? -1 : 0;
    }
  }
}

bool ArrayReader::next() {
  text_.clear();
  if (!is_begun_) {
    if (peek_value() != '[') refuse("it does not begin with [ (write a JSON array of records)");
    take();
    if (peek_value() == ']') {
      take();
      is_begun_ = true;
      return false;
    }
  } else if (peek_value() == ',') {
    take();
  } else {
    if (take() != ']') {
      refuse(
          fmt::format("the array does not end behind the record that begins in line {} (is a "
                      "bracket or a quote missing in it, or the file cut off? it ends with ])",
                      number_));
    }
    if (peek_value() >= 0) {
      refuse("something follows the array (write one array, or a record a line without it)");
    }
    return false;
  }
  is_begun_ = true;
  peek_value();
  number_ = line_;
  read_value();
  if (text_.empty()) refuse("an item of the array is empty (remove a comma, or add a record)");
  check_(number_, static_cast<int64_t>(text_.size()));
  return true;
}

bool holds_array(const std::string& path) {
  return text::first_character(path) == '[';
}

void for_each_item(const std::string& path, const text::LineReader::Check& check,
                   const std::function<bool(std::string_view, int64_t)>& use) {
  const auto within = [&](int64_t line, int64_t bytes) {
    check(line, bytes);
    if (bytes <= kRecordBytesMax) return;
    throw bad_stream(fmt::format("{}:{}", path, line),
                     fmt::format("the record has more than {} (cut it into several)",
                                 format_bytes(kRecordBytesMax)));
  };
  if (holds_array(path)) return read_items(ArrayReader(path, within), use);
  read_items(text::LineReader(path, within), use);
}

bool is_blank(std::string_view item) {
  return item.find_first_not_of(" \t\r") == std::string_view::npos;
}

config::Json parse_record(std::string_view item, const std::string& path, int64_t line) {
  return config::parse_json_at(line, item, path, {.bytes = kRecordBytesMax}, kOneRecord);
}

namespace {

std::string without_escapes(const std::string& name) {
  if (name.find('\\') == std::string::npos) return name;
  try {
    return config::Json::parse('"' + name + '"', "a name").string();
  } catch (const Error&) {
    return name;  // it was cut, or is no JSON
  }
}

}  // namespace

std::vector<std::string> first_members(const std::string& path) {
  Characters file(path);
  int next = file.take_value();
  if (next == '[') next = file.take_value();
  std::vector<std::string> names;
  if (next != '{') return names;
  bool is_name = true;  // the next string of the record itself is one
  for (int depth = 1; depth > 0 && (next = file.take_value()) >= 0;) {
    if (next == '"') {
      const std::string start = file.take_string();
      if (depth == 1 && is_name) names.push_back(without_escapes(start));
      is_name = false;
    } else {
      depth += next == '{' || next == '[' ? 1 : next == '}' || next == ']' ? -1 : 0;
      is_name = is_name || next == ',';
    }
  }
  return names;
}

}  // namespace strata::data
