// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::text {

// Of extensions with their dot: whether files of that kind are texts, and why those of a kind that
// is not data are not read, with what to do; null for all others.
bool is_text(std::string_view extension);
const char* why_not_read(std::string_view extension);

// The text files that a path stands for: the file itself, or the .txt and .md files below a
// directory in order of their paths; what runs wrote there does not count as data. Throws Error
// when there is none.
std::vector<std::string> text_files_of(const std::string& path);

// Other files below a directory that look like data, but for those named: they are not read.
std::vector<std::string> left_out_of(const std::string& directory,
                                     const std::vector<std::string>& read);

// Calls `use` with the file's text in blocks of about 16 MiB, each cut in front of a line that
// starts with no white space where there is one. Throws Error naming file and byte for what is not
// UTF-8.
void for_each_text_block(const std::string& path, const std::function<void(std::string_view)>& use);

// The whole file; Error when it cannot be read or has more than `bytes_max`.
std::string read_text_file(const std::string& path, int64_t bytes_max);

// Replaces the file: a reader sees the old text or the new one.
void write_text_file(const std::string& path, std::string_view text);

// A regular file that is read from start to end. Failure: Error naming the file.
class FileReader {
 public:
  explicit FileReader(const std::string& path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  int64_t bytes() const { return bytes_; }
  // Up to `count` bytes; fewer only at the end of the file.
  size_t read(char* buffer, size_t count);

 private:
  std::string path_;
  int file_ = -1;
  int64_t bytes_ = 0;
};

// The lines of a file from start to end, in memory for the longest of them.
class LineReader {
 public:
  // `check` is called with the bytes of a line while it grows in memory, and may throw.
  using Check = std::function<void(int64_t line, int64_t bytes)>;
  LineReader(const std::string& path, Check check) : reader_(path), check_(std::move(check)) {}

  // False behind the last line.
  bool next();
  std::string_view text() const { return std::string_view(buffer_).substr(begin_, end_ - begin_); }
  int64_t number() const { return number_; }        // from 1
  bool has_end() const { return has_end_; }         // a '\n', which only the last may lack
  int64_t end_bytes() const { return end_bytes_; }  // of the file, up to and with the line

 private:
  FileReader reader_;
  const Check check_;
  std::string buffer_;
  size_t begin_ = 0;  // of the line
  size_t end_ = 0;
  size_t next_ = 0;  // where the line behind it begins
  int64_t number_ = 0;
  int64_t end_bytes_ = 0;
  bool has_end_ = true;
};

}  // namespace strata::text
