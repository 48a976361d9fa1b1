// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

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
  [[noreturn]] void refuse(const char* cause) const;

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

// The first record of the file, if it has one of at most `most_bytes`. Throws Error as
// for_each_record() does.
std::optional<config::Json> first_record(const std::string& path, int64_t most_bytes);

// Calls use(record, line, where) for each line of the file that is not blank, or for each item when
// it holds an array. `check` is that of LineReader.
void for_each_record(
    const std::string& path, const text::LineReader::Check& check,
    const std::function<void(config::Json record, int64_t line, const std::string& where)>& use);

}  // namespace strata::data
