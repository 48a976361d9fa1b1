// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/data_read.h"
#include "engine/data/document_writer.h"
#include "engine/data/record_tokens.h"

namespace strata::data {

// The peak memory of parsing a line and turning it into text, in lengths of the line (measured).
inline constexpr int64_t kLineCopies = 5;

// What the files of one sequence have.
struct FileTotals {
  std::map<std::string, int64_t> records;  // by their names
  int64_t document_count = 0;              // files of text
  int64_t split_texts = 0;                 // of the writer's split documents
};

// What the sinks of all files write to.
struct FileTarget {
  const ReadOptions& options;
  DocumentWriter& writer;
  ReadData& data;
  FileTotals& totals;
};

// Puts the tokens of one file behind those of the files before it.
class FileSink : public TokenSink {
 public:
  explicit FileSink(const FileTarget& target) : target_(target) {}
  // After the last line or block. Throws Error where the file teaches nothing.
  virtual void finish() = 0;

 protected:
  const FileTarget target_;
};

// Counts records, and lists the numbers of the first few lines that have them.
class LineNumbers {
 public:
  void add(int64_t line);
  int64_t count() const { return count_; }
  std::string text() const;

 private:
  int64_t count_ = 0;
  int64_t line_count_ = 0;
  int64_t last_line_ = 0;
  std::string shown_;
};

// What the chats of a file have of troubles.
class ChatTroubles {
 public:
  void add(const ChatTrouble& trouble, int64_t line);
  // Adds a warning for each trouble that one of the file's records has.
  void warn(const std::string& path, int64_t records, std::vector<std::string>& warnings) const;

 private:
  LineNumbers losing_;
  LineNumbers leaving_;
};

// The records of a file that cannot be read and are left out.
class RefusedRecords {
 public:
  void add(int64_t line, const std::string& cause);
  // Adds a warning, if there are some; `others` are the records that are not left out. Throws Error
  // where there is no other.
  void warn(const std::string& path, int64_t others, std::vector<std::string>& warnings) const;

 private:
  LineNumbers lines_;
  std::string first_cause_;
};

// A file of records.
class RecordsSink final : public FileSink {
 public:
  // The file is the last of ReadData::files.
  RecordsSink(const FileTarget& target, const std::string& path);

  const std::string& path() const { return path_; }
  // Decided by the first record of the file.
  const std::optional<RecordKind>& kind() const { return kind_; }
  void set_kind(RecordKind kind) { kind_ = kind; }
  // Throws Error (kDoesNotFit) where a line of this size cannot be read beside the tokens.
  void require_room(int64_t line, int64_t line_bytes) const;

  void begin_line(int64_t line, int64_t bytes) override;
  void refuse_record(const std::string& cause) override { refused_.add(line_, cause); }
  void begin_record(bool has_lesson) override;
  void begin_document(bool is_chat) override;
  void begin_part(bool is_target) override;
  void ids(const std::vector<int32_t>& ids) override;
  void end_document() override;
  void end_record(const ChatTrouble& trouble) override;
  void finish() override;

 private:
  void remember();
  [[noreturn]] void refuse_all() const;
  std::string advice_for_beyond() const;
  void warn() const;

  const std::string path_;
  const size_t file_;  // in ReadData::files
  std::optional<RecordKind> kind_;
  int64_t record_count_ = 0;  // without those that are refused
  RefusedRecords refused_;
  LineNumbers idle_;
  LineNumbers beyond_;    // with a lesson that no sample has
  int64_t unmarked_ = 0;  // of these: the template's blocks leave it out
  ChatTroubles troubles_;

  // Of the record that is written.
  int64_t line_ = 0;
  bool has_lesson_ = false;
  bool is_kept_ = false;
  bool has_target_ = false;
  bool is_chat_ = false;
  bool is_target_ = false;
};

// A file of text.
class TextSink final : public FileSink {
 public:
  using FileSink::FileSink;

  void begin_line(int64_t, int64_t) override {}
  void refuse_record(const std::string&) override {}
  void begin_record(bool) override {}
  void begin_document(bool) override {}
  void begin_part(bool is_target) override;
  void ids(const std::vector<int32_t>& ids) override { target_.writer.add(ids, true); }
  void end_document() override {}
  void end_record(const ChatTrouble&) override {}
  void finish() override;

 private:
  bool is_begun_ = false;
  int64_t split_before_ = 0;
};

}  // namespace strata::data
