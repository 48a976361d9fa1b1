// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/json.h"
#include "engine/text/text_files.h"

namespace strata::data {

// Reads the items of a file that holds one JSON array, from start to end, as texts. Memory: the
// longest item. Failure: Error (kConfig) that names the file and line when the array does not end,
// or something follows it.
class ArrayReader {
 public:
  // `check` is called with the number of the item's line and its size so far while it is read; may
  // throw.
  ArrayReader(const std::string& path, text::LineReader::Check check);

  // Reads the next item. Returns false after the last one.
  bool next();
  std::string_view text() const { return text_; }
  int64_t number() const { return number_; }  // of the item's first line, from 1

 private:
  int peek();  // the next character; -1 at the end
  int peek_value();
  int take();
  void read_value();
  [[noreturn]] void refuse(const std::string& cause) const;

  const std::string path_;
  text::FileReader reader_;
  const text::LineReader::Check check_;
  std::string buffer_;
  size_t at_ = 0;
  int64_t line_ = 1;
  std::string text_;
  int64_t number_ = 0;
  bool is_begun_ = false;
};

// Whether a file's first character begins a JSON array.
bool holds_array(const std::string& path);

// Calls `use` with the text of each line of the file, or of each item when it holds an array, and
// the number of its first line, until `use` returns false. `check` is that of LineReader. A text of
// more than 64 MiB is an error.
void for_each_item(const std::string& path, const text::LineReader::Check& check,
                   const std::function<bool(std::string_view text, int64_t line)>& use);

// Whether an item is a line without a record.
bool is_blank(std::string_view item);

// The record of an item that is not blank and begins in a line of the file.
config::Json parse_record(std::string_view item, const std::string& path, int64_t line);

// The names of the members of the file's first record, however long it is; as they are spelt, and
// as far as the text is JSON. Memory: the names.
std::vector<std::string> first_members(const std::string& path);

}  // namespace strata::data
