// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data_read.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/config/json.h"
#include "engine/data/chat_records.h"
#include "engine/data/data_records.h"
#include "engine/text/text_files.h"
#include "engine/text/tokenizer.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

// The peak memory of parsing a line and turning it into text, in lengths of the line (measured).
constexpr int64_t kLineCopies = 5;

char first_character(const std::string& path) {
  text::FileReader reader(path);
  char head[4096];
  const std::string_view text(head, reader.read(head, sizeof head));
  const size_t at = text.find_first_not_of(" \t\r\n");
  return at == std::string_view::npos ? '\0' : text[at];
}

enum class FileKind { kTokens, kRecords, kText };

FileKind kind_of_file(const std::string& path) {
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".bin" || TokenSequence::is_llmc_file(path)) return FileKind::kTokens;
  if (text::is_text(extension)) return FileKind::kText;
  if (const char* why = text::why_not_read(extension)) throw bad_data(path, why);
  const char first = first_character(path);
  const bool is_json = extension == ".jsonl" || extension == ".json";
  if (is_json && first == '[') {
    throw bad_data(path, "a JSON array (write one object a line)");
  }
  return is_json || first == '{' ? FileKind::kRecords : FileKind::kText;
}

// Appends documents to a sequence: prefix, text, suffix, EOS. Of chats only the text.
class DocumentWriter {
 public:
  DocumentWriter(const text::Tokenizer& tokenizer, TokenSequence& tokens,
                 const ReadOptions& options)
      : tokenizer_(tokenizer), tokens_(tokens), room_bytes_(options.room_bytes) {}

  void begin(bool is_target) {
    tokens_.append(tokenizer_.prefix_ids(), is_target);
    is_empty_ = true;
  }

  // Appends a chat, whose template writes all markers.
  template <class Remember>
  void add_chat(const std::vector<TextPart>& parts, const Remember& remember) {
    is_empty_ = true;
    for (const TextPart& part : parts) {
      if (part.is_target) remember();
      add(part.text, part.is_target);
    }
  }
  void count_record() { ++count_; }

  void add(std::string_view text, bool is_target) {
    tokenizer_.encode(text, {.add_special = false, .continues = !is_empty_},
                      [&](const std::vector<int32_t>& ids) {
                        tokens_.append(ids, is_target);
                        require_room();
                      });
    is_empty_ = false;
  }

  void end() {
    tokens_.append(tokenizer_.suffix_ids(), true);
    const std::optional<int32_t> eos = tokenizer_.eos_id();
    if (eos && !tokenizer_.appends(*eos)) tokens_.append({*eos}, true);
    count_record();
  }

  int64_t count() const { return count_; }

 private:
  void require_room() const {
    if (room_bytes_ == 0 || tokens_.bytes() <= room_bytes_) return;
    throw Error(ErrorCode::kDoesNotFit,
                fmt::format("read data: {}: its tokens take more than the {} that --host-memory "
                            "leaves beside the program (raise --host-memory, or give the data as a "
                            "token file, which is not held in memory)",
                            tokens_.name(), format_bytes(room_bytes_)));
  }

  const text::Tokenizer& tokenizer_;
  TokenSequence& tokens_;
  const int64_t room_bytes_;
  bool is_empty_ = true;
  int64_t count_ = 0;
};

// Counts lines, and lists the numbers of the first few.
class Lines {
 public:
  void add(int64_t line) {
    constexpr int64_t kShown = 5;
    if (++count_ <= kShown) shown_ += fmt::format("{}{}", count_ == 1 ? "" : ", ", line);
  }
  int64_t count() const { return count_; }
  std::string text() const {
    return fmt::format("{} {}{}", count_ == 1 ? "line" : "lines", shown_,
                       count_ > 5 ? ", ..." : "");
  }

 private:
  int64_t count_ = 0;
  std::string shown_;
};

void refuse_records_in_text(const std::string& path) {
  if (!begins_with_record(path)) return;
  throw bad_data(path,
                 fmt::format("its first line is a JSON record, but {} files are read as plain text "
                             "(rename it to .jsonl; to train on the JSON itself, give it as the "
                             "text of a {{\"text\": ...}} record)",
                             fs::path(path).extension().string()));
}

void read_text(const std::string& path, DocumentWriter& writer, ReadData& data) {
  for (const std::string& file : text::text_files_of(path)) {
    refuse_records_in_text(file);
    bool is_begun = false;
    text::for_each_text_block(file, [&](std::string_view block) {
      if (!is_begun) writer.begin(true);
      is_begun = true;
      writer.add(block, true);
    });
    if (is_begun) writer.end();
  }
  data.found = fmt::format("text, {} document{}", writer.count(), writer.count() == 1 ? "" : "s");
}

class RecordsReader {
 public:
  RecordsReader(const std::string& path, const text::Tokenizer& tokenizer,
                const ReadOptions& options, DocumentWriter& writer, ReadData& data)
      : path_(path),
        options_(options),
        writer_(writer),
        data_(data),
        chats_(tokenizer.config(), options.chat_template) {}

  void run() {
    for_each_record(
        path_, [this](int64_t line, int64_t bytes) { require_room(line, bytes); },
        [this](config::Json record, int64_t line, const std::string& where) {
          if (!kind_) kind_ = kind_of_record(record, where);
          add(text_of_record(std::move(record), *kind_, where), line, where);
        });
    if (!kind_) throw bad_data(path_, "it has no record (write at least one line)");
    data_.found = fmt::format("JSON lines of {}, {} records{}", name_of(*kind_), writer_.count(),
                              data_.tokens->has_masks() ? " with prompts masked" : "");
    warn();
  }

 private:
  void require_room(int64_t line, int64_t line_bytes) const {
    if (options_.room_bytes == 0) return;
    const int64_t left = options_.room_bytes - data_.tokens->bytes();
    if (line_bytes * kLineCopies <= left) return;
    throw Error(ErrorCode::kDoesNotFit,
                fmt::format("read data: {}:{}: the line has more than {}, the longest that can be "
                            "read in the {} that --host-memory leaves (cut the record into "
                            "several, or raise --host-memory)",
                            path_, line, format_bytes(left / kLineCopies), format_bytes(left)));
  }

  void add(const RecordText& record, int64_t line, const std::string& where) {
    ++record_count_;
    if (!record.has_lesson) idle_.add(line);
    if (record.chat) return add_chat(record, line, where);
    if (record.parts.empty()) return;
    writer_.begin(kind_ == RecordKind::kText);
    for (const TextPart& part : record.parts) {
      if (part.is_target && record.has_lesson) remember(line);
      writer_.add(part.text, part.is_target);
    }
    writer_.end();
  }

  void add_chat(const RecordText& record, int64_t line, const std::string& where) {
    for (const std::vector<TextPart>& parts : chats_.render(*record.chat, where)) {
      writer_.add_chat(parts, [&] {
        if (record.has_lesson) remember(line);
      });
    }
    writer_.count_record();
  }

  // Remembers a record whose first target is at the end of the sequence so far.
  void remember(int64_t line) {
    std::deque<RecordPlace>& last = data_.last_records;
    const int64_t at = data_.tokens->count();
    if (last.empty() || last.back().line != line) last.push_back({at, line});
    while (!last.empty() && last.front().first_target + options_.tail_tokens < at) {
      last.pop_front();
    }
  }

  void warn() const {
    if (idle_.count() == record_count_) {
      throw bad_data(
          path_,
          fmt::format("there is nothing to learn: all of its records have {}: {} (complete them)",
                      name_of_idle(*kind_), idle_.text()));
    }
    if (idle_.count() > 0) {
      log(LogLevel::kWarning,
          fmt::format("data: {}: {} of {} records have {} ({}): they teach nothing (complete or "
                      "remove them)",
                      path_, idle_.count(), record_count_, name_of_idle(*kind_), idle_.text()));
    }
  }

  const std::string& path_;
  const ReadOptions& options_;
  DocumentWriter& writer_;
  ReadData& data_;
  std::optional<RecordKind> kind_;
  int64_t record_count_ = 0;
  ChatRecords chats_;
  Lines idle_;
};

}  // namespace

Error bad_data(const std::string& path, const std::string& cause) {
  return Error(ErrorCode::kConfig, fmt::format("open data: {}: {}", path, cause));
}

ReadData read_data(const std::string& path, const text::Tokenizer* tokenizer,
                   const ReadOptions& options) {
  const FileKind kind = fs::is_directory(path) ? FileKind::kText : kind_of_file(path);
  ReadData data;
  if (kind == FileKind::kTokens) {
    data.tokens =
        std::make_unique<TokenSequence>(TokenSequence::open_file(path, options.vocabulary));
    data.found = data.tokens->format();
    return data;
  }
  if (tokenizer == nullptr) {
    throw bad_data(path,
                   "text needs a tokenizer, and the model directory has no tokenizer.json or "
                   "tokenizer.model (add one: "
                   "Transformers' AutoTokenizer saves it with save_pretrained(); or give a token "
                   "file)");
  }
  data.tokens = std::make_unique<TokenSequence>(path, options.vocabulary);
  DocumentWriter writer(*tokenizer, *data.tokens, options);
  if (kind == FileKind::kText) {
    read_text(path, writer, data);
  } else {
    RecordsReader(path, *tokenizer, options, writer, data).run();
  }
  data.record_count = writer.count();
  return data;
}

}  // namespace strata::data
