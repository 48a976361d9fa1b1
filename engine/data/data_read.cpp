// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data_read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/config/json.h"
#include "engine/data/chat_records.h"
#include "engine/data/data_cache.h"
#include "engine/data/data_files.h"
#include "engine/data/data_key.h"
#include "engine/data/document_writer.h"
#include "engine/data/record_stream.h"
#include "engine/text/text_files.h"
#include "engine/text/tokenizer.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

// The peak memory of parsing a line and turning it into text, in lengths of the line (measured).
constexpr int64_t kLineCopies = 5;

// Counts lines, and lists the numbers of the first few.
class Lines {
 public:
  void add(int64_t line) {
    constexpr int64_t kShown = 5;
    if (++count_ <= kShown) shown_ += fmt::format("{}{}", count_ == 1 ? "" : ", ", line);
  }
  int64_t count() const { return count_; }
  std::string text() const {
    return fmt::format("{} {}{}", plural(count_, "line"), shown_, count_ > 5 ? ", ..." : "");
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

// Reads the records of one file.
class RecordsReader {
 public:
  RecordsReader(const std::string& path, const text::Tokenizer& tokenizer,
                const ReadOptions& options, DocumentWriter& writer, ReadData& data)
      : path_(path),
        options_(options),
        writer_(writer),
        data_(data),
        chats_(tokenizer.config(), options.chat_template) {}

  // Returns what the records are called.
  std::string run() {
    for_each_record(
        path_, [this](int64_t line, int64_t bytes) { require_room(line, bytes); },
        [this](config::Json record, int64_t line, const std::string& where) {
          if (!kind_) options_.rules.columns.require(record, where);
          record = options_.rules.columns.renamed(std::move(record));
          if (!kind_) kind_ = kind_of_record(record, where, options_.rules);
          add(text_of_record(std::move(record), *kind_, where, options_.rules), line, where);
        });
    if (!kind_) throw bad_data(path_, "it has no record (write at least one line)");
    warn();
    data_.record_count += record_count_;
    return name_of(*kind_);
  }
  int64_t record_count() const { return record_count_; }

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
    const bool is_kept = record.chat ? add_chat(record, line, where) : add_document(record, line);
    if (record.has_lesson && !is_kept) beyond_.add(line);
  }

  bool add_document(const RecordText& record, int64_t line) {
    if (record.parts.empty()) return false;
    writer_.begin(kind_ == RecordKind::kText ||
                  options_.rules.train_on == config::TrainOn::kEverything);
    for (const TextPart& part : record.parts) {
      if (part.is_target && record.has_lesson) remember(line);
      writer_.add(part.text, part.is_target);
    }
    return take(writer_.end(), record);
  }

  bool add_chat(const RecordText& record, int64_t line, const std::string& where) {
    bool is_kept = false;
    for (const std::vector<TextPart>& parts : chats_.render(*record.chat, where)) {
      writer_.begin_chat();
      for (const TextPart& part : parts) {
        if (part.is_target && record.has_lesson) remember(line);
        writer_.add(part.text, part.is_target);
      }
      is_kept = take(writer_.end_chat(), record) || is_kept;
    }
    return is_kept;
  }

  // Keeps the first document with something to learn as the example.
  bool take(bool is_kept, const RecordText& record) {
    if (is_kept && record.has_lesson && data_.example_count == 0) {
      data_.example_first = writer_.start();
      data_.example_count = data_.tokens->count() - writer_.start();
    }
    return is_kept;
  }

  // Remembers a record whose first target is at the end of the sequence so far.
  void remember(int64_t line) {
    std::deque<RecordPlace>& last = data_.last_records;
    const int64_t at = data_.tokens->count();
    const size_t file = data_.files.size() - 1;
    if (last.empty() || last.back().line != line || last.back().file != file) {
      last.push_back({at, line, file});
    }
    while (!last.empty() && last.front().first_target + options_.length < at) last.pop_front();
  }

  [[noreturn]] void refuse_all() const {
    std::string idle;
    std::string beyond;
    if (idle_.count() > 0) {
      idle = fmt::format("{} with {} ({})", idle_.count(), name_of_idle(*kind_), idle_.text());
    }
    if (beyond_.count() > 0) {
      beyond = fmt::format("{} with nothing to learn in the first {} tokens ({})", beyond_.count(),
                           options_.length, beyond_.text());
    }
    throw bad_data(path_, fmt::format("there is nothing to learn, all {} are left out: {}{}{} ({})",
                                      counted(record_count_, "record"), idle,
                                      idle.empty() || beyond.empty() ? "" : ", ", beyond,
                                      beyond.empty() ? "complete them"
                                                     : "shorten the prompts, or raise "
                                                       "--sequence-length"));
  }

  void warn() {
    if (idle_.count() + beyond_.count() == record_count_) refuse_all();
    if (idle_.count() > 0) {
      data_.warnings.push_back(
          fmt::format("data: {}: {} of {} records have {} ({}): they teach nothing (complete or "
                      "remove them)",
                      path_, idle_.count(), record_count_, name_of_idle(*kind_), idle_.text()));
    }
    if (beyond_.count() > 0) {
      data_.warnings.push_back(
          fmt::format("data: {}: {} of {} records have nothing to learn in their first {} tokens "
                      "({}): they are left out (shorten the prompts, or raise --sequence-length)",
                      path_, beyond_.count(), record_count_, options_.length, beyond_.text()));
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
  Lines beyond_;  // with a lesson that no sample has
};

// Reads files into one sequence.
class FilesReader {
 public:
  FilesReader(const text::Tokenizer& tokenizer, const ReadOptions& options, ReadData& data)
      : tokenizer_(tokenizer),
        options_(options),
        data_(data),
        writer_(tokenizer, *data.tokens, data.starts.get(),
                {options.length, options.room_bytes, options.learns_end}) {}

  void read(const std::string& path) {
    data_.files.push_back(path);
    if (kind_of_file(path) == FileKind::kText) return read_text(path);
    RecordsReader reader(path, tokenizer_, options_, writer_, data_);
    const std::string kind = reader.run();
    const char* form = holds_array(path) ? "a JSON array of " : "JSON lines of ";
    records_[form + kind] += reader.record_count();
  }

  void finish() {
    std::vector<std::string> found;
    if (document_count_ > 0 || records_.empty()) {
      found.push_back("text, " + counted(document_count_, "document"));
    }
    for (const auto& [name, count] : records_) {
      found.push_back(name + ", " + counted(count, "record"));
    }
    data_.found = fmt::format("{}{}", fmt::join(found, "; "),
                              data_.tokens->has_masks() ? " with prompts masked" : "");
    data_.split_count = writer_.split_count() - split_texts_;
    data_.cut_count = writer_.cut_count();
    data_.cut_tokens = writer_.cut_tokens();
    data_.target_count = data_.tokens->count() - data_.tokens->masked_count();
    if (!data_.packing) return;
    pack_records(*data_.starts, data_.tokens->count(), options_.length, *data_.packing);
  }

 private:
  void read_text(const std::string& path) {
    if (options_.samples != config::SampleLayout::kStream) {
      throw bad_data(path,
                     "plain text has no records to make samples of (leave out --samples, or write "
                     "{\"text\": ...} lines to a .jsonl file)");
    }
    refuse_records_in_text(path);
    const int64_t split_before = writer_.split_count();
    bool is_begun = false;
    text::for_each_text_block(path, [&](std::string_view block) {
      if (!is_begun) writer_.begin(true);
      is_begun = true;
      writer_.add(block, true);
    });
    if (is_begun) writer_.end();
    document_count_ += is_begun ? 1 : 0;
    split_texts_ += writer_.split_count() - split_before;
  }

  const text::Tokenizer& tokenizer_;
  const ReadOptions& options_;
  ReadData& data_;
  DocumentWriter writer_;
  int64_t document_count_ = 0;
  int64_t split_texts_ = 0;                 // of the writer's split documents
  std::map<std::string, int64_t> records_;  // by their names
};

}  // namespace

int64_t ReadData::bytes() const {
  const int64_t buffers = kept_in.empty() ? 0 : kMiB;
  return tokens->bytes() + (starts ? starts->bytes() : 0) + (packing ? packing->bytes() : 0) +
         buffers;
}

int64_t ReadData::file_bytes() const {
  int64_t bytes = 0;
  const auto add = [&](const LongArray& array) {
    if (array.is_in_file()) bytes += array.count() * array.width();
  };
  add(tokens->ids());
  add(tokens->masks());
  if (starts) add(starts->array());
  if (packing) add(packing->order.array());
  if (packing) add(packing->row_starts.array());
  return bytes;
}

uint64_t ReadData::fingerprint() const {
  if (known_fingerprint) return *known_fingerprint;
  const uint64_t hash = tokens->fingerprint();
  return starts ? starts->array().checksum(hash, static_cast<uint64_t>(starts->size())) : hash;
}

namespace {

ReadData open_token_file(const std::string& name, const std::string& file,
                         const ReadOptions& options) {
  if (options.samples != config::SampleLayout::kStream) {
    throw bad_data(name, "a token file has no records (leave out --samples)");
  }
  ReadData data;
  data.files = {file};
  data.tokens = std::make_unique<TokenSequence>(TokenSequence::open_file(file, options.vocabulary));
  data.found = data.tokens->format();
  data.target_count = data.tokens->count();
  return data;
}

// Empty, and in memory.
ReadData make_data(const std::string& name, const ReadOptions& options) {
  ReadData data;
  data.tokens = std::make_unique<TokenSequence>(name, options.vocabulary);
  if (options.samples != config::SampleLayout::kStream) data.starts = std::make_unique<Numbers>();
  if (options.samples == config::SampleLayout::kPacked) data.packing = std::make_unique<Packing>();
  return data;
}

void read_files(const std::vector<std::string>& files, const text::Tokenizer& tokenizer,
                const ReadOptions& options, ReadData& data) {
  FilesReader reader(tokenizer, options, data);
  for (const std::string& file : files) reader.read(file);
  reader.finish();
}

// Everything that decides the tokens of these files.
config::Json key_of(const std::vector<std::string>& files, const ReadOptions& options) {
  constexpr int64_t kFormat = 1;
  using config::Json;
  Json key = Json::object();
  key.set("format", kFormat);
  key.set("made_by", options.cache.made_by);
  key.set("files", key_of_files(files));
  key.set("vocabulary", options.vocabulary);
  key.set("length", options.length);
  key.set("samples", static_cast<int64_t>(options.samples));
  key.set("train_on", static_cast<int64_t>(options.rules.train_on));
  key.set("learns_end", options.learns_end);
  key.set("columns", fmt::format("{}", fmt::join(options.columns, ",")));
  key.set("chat_template", options.chat_template);
  if (options.chat_template.ends_with(".jinja"))
    key.set("template", key_of_files({options.chat_template}));
  return key;
}

// Returns the tokens that the cache has, or else begins to write them, to `made`.
std::optional<ReadData> load_or_begin(DataCache& cache, const std::string& name,
                                      const std::vector<std::string>& files,
                                      const ReadOptions& options, ReadData& made) {
  auto found = cache.load(name, options.vocabulary);
  if (found) return found;
  cache.lock();
  found = cache.load(name, options.vocabulary);
  if (!found) cache.begin(made, bytes_of_files(files));
  return found;
}

// Fills what load_or_begin() has begun.
ReadData write_tokens(DataCache& cache, const config::Json& key, const std::string& name,
                      const std::vector<std::string>& files, const text::Tokenizer& tokenizer,
                      const ReadOptions& options, ReadData& made) {
  read_files(files, tokenizer, options, made);
  if (key_of(files, options).dump() != key.dump()) {
    throw bad_data(name, "it was changed while it was read (start again when it is complete)");
  }
  cache.commit(made);
  auto found = cache.load(name, options.vocabulary);
  if (found) return std::move(*found);
  throw Error(ErrorCode::kCorrupt,
              fmt::format("read data: {}: the tokens that were written there are damaged (give "
                          "another disk by --data-cache DIR)",
                          cache.path()));
}

ReadData read_in_memory(const std::string& name, const std::vector<std::string>& files,
                        const text::Tokenizer& tokenizer, const ReadOptions& options) {
  ReadData data = make_data(name, options);
  read_files(files, tokenizer, options, data);
  return data;
}

// Where nobody gave the directory and it cannot be used, tokens stay in memory.
ReadData read_texts(const std::string& name, const std::vector<std::string>& files,
                    const text::Tokenizer& tokenizer, const ReadOptions& options) {
  if (options.cache.directory.empty() || bytes_of_files(files) <= options.cache.memory_text_bytes) {
    return read_in_memory(name, files, tokenizer, options);
  }
  const config::Json key = key_of(files, options);
  ReadData made = make_data(name, options);
  std::unique_ptr<DataCache> cache;
  std::optional<ReadData> found;
  try {
    cache = std::make_unique<DataCache>(options.cache.directory, key);
    found = load_or_begin(*cache, name, files, options, made);
  } catch (const Error& error) {
    if (options.cache.is_given) throw;
    log(LogLevel::kWarning,
        fmt::format("data: tokens cannot be kept on disk: {} (they are held in memory now; give "
                    "another directory by --data-cache DIR)",
                    error.what()));
    return read_in_memory(name, files, tokenizer, options);
  }
  if (!found) found = write_tokens(*cache, key, name, files, tokenizer, options, made);
  found->files = files;
  return std::move(*found);
}

}  // namespace

ReadData read_data(const std::string& name, const std::vector<std::string>& files,
                   const text::Tokenizer* tokenizer, const ReadOptions& options) {
  if (files.size() == 1 && kind_of_file(files.front()) == FileKind::kTokens) {
    return open_token_file(name, files.front(), options);
  }
  if (tokenizer == nullptr) {
    throw bad_data(
        name,
        "text needs a tokenizer, and the model directory has no tokenizer.json or tokenizer.model "
        "(add one: Transformers' AutoTokenizer saves it with save_pretrained(); or give a token "
        "file)");
  }
  ReadData data = read_texts(name, files, *tokenizer, options);
  for (const std::string& warning : data.warnings) log(LogLevel::kWarning, warning);
  return data;
}

}  // namespace strata::data
