// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::text {

// For an extension with its dot: whether such files are texts; and, for a kind of data that cannot
// be read, the reason and the advice (null for all others).
bool is_text(std::string_view extension);
const char* why_not_read(std::string_view extension);

// The .txt and .md files below a directory in order of their paths, except for files that runs
// wrote, and its files of records, .jsonl and .json.
std::vector<std::string> text_files_below(const std::string& directory);
std::vector<std::string> data_files_below(const std::string& directory);

// The first character of a file that is not white space; '\0' when its first 4 KiB have none.
char first_character(const std::string& path);

// Files below a directory that look like data but are not in `read`.
std::vector<std::string> left_out_of(const std::string& directory,
                                     const std::vector<std::string>& read);

// Calls `use` with the file's text in blocks of about 16 MiB. A block is cut before a line that
// does not start with white space, if there is one. Throws Error that names file and byte when the
// text is not UTF-8.
void for_each_text_block(const std::string& path, const std::function<void(std::string_view)>& use);

// Returns the whole file. Throws Error when it cannot be read or has more than `bytes_max` bytes.
std::string read_text_file(const std::string& path, int64_t bytes_max);

// Replaces the file atomically: a reader sees the old text or the new one.
void write_text_file(const std::string& path, std::string_view text);

// The byte order mark that some editors put before a text of UTF-8; it is no part of the text.
inline constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF";
inline void drop_utf8_mark(std::string& text) {
  if (text.starts_with(kUtf8Mark)) text.erase(0, kUtf8Mark.size());
}

// Reads a regular file from start to end, without a byte order mark. Failure: Error that names the
// file.
class FileReader {
 public:
  explicit FileReader(const std::string& path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  int64_t bytes() const { return bytes_; }
  int64_t begin_bytes() const { return begin_bytes_; }  // of the file, before what read() gives
  // Up to `count` bytes; fewer only at the end of the file.
  size_t read(char* buffer, size_t count);

 private:
  std::string path_;
  int file_ = -1;
  int64_t bytes_ = 0;
  int64_t begin_bytes_ = 0;
};

// Reads the lines of a file from start to end. Memory: the longest line.
class LineReader {
 public:
  // Called with the size of a line so far while the line is read; may throw.
  using Check = std::function<void(int64_t line, int64_t bytes)>;
  LineReader(const std::string& path, Check check) : reader_(path), check_(std::move(check)) {}

  // Reads the next line. Returns false after the last one.
  bool next();
  std::string_view text() const { return std::string_view(buffer_).substr(begin_, end_ - begin_); }
  int64_t number() const { return number_; }        // from 1
  bool has_end() const { return has_end_; }         // '\n', which only the last line may lack
  int64_t end_bytes() const { return end_bytes_; }  // of the file, including this line

 private:
  FileReader reader_;
  const Check check_;
  std::string buffer_;
  size_t begin_ = 0;  // of the line
  size_t end_ = 0;
  size_t next_ = 0;  // start of the next line
  int64_t number_ = 0;
  int64_t end_bytes_ = reader_.begin_bytes();
  bool has_end_ = true;
};

}  // namespace strata::text
