// SPDX-License-Identifier: Apache-2.0
#include "engine/data/files_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/data/data_files.h"
#include "engine/data/record_stream.h"
#include "engine/text/text_files.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kThreadBytes = 2 * kMiB;        // its stack, and what its allocator keeps
constexpr size_t kFullBatchBytes = 256 << 10;     // of records
constexpr size_t kRecordBytesInBatch = 1 << 20;   // longer ones are read one at a time
constexpr int64_t kBlockBytesInBatch = 17 << 20;  // of a text; they have about 16 MiB
constexpr int64_t kBlockCopies = 2;               // while it is normalized and cut

// What tokenizing a word takes at once, in bytes a byte of it (measured), and the length of the
// longest, which white space or an escape of JSON ends.
constexpr int64_t kWordCopies = 28;

int64_t longest_word(std::string_view text) {
  size_t longest = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \t\r\n\\", at), text.size());
    longest = std::max(longest, end - at);
    at = end + 1;
  }
  return static_cast<int64_t>(longest);
}

// The most that one batch has of the files' texts; by their names, because only sizes matter here.
int64_t largest_block(const std::vector<std::string>& files) {
  int64_t bytes = 0;
  for (const std::string& path : files) {
    const fs::path extension = fs::path(path).extension();
    if (extension == ".jsonl" || extension == ".json") continue;
    bytes = std::max(bytes, std::min(kBlockBytesInBatch, bytes_of_files({path})));
  }
  return bytes;
}

// The most that the tokens take in memory: of a file only its last blocks, else all; a byte of text
// may be a token, with its mask and its share of a record's start.
int64_t most_token_bytes(int64_t text_bytes, const ReadData& data) {
  const LongArray& ids = data.tokens->ids();
  return ids.is_in_file() ? 8 * kMiB + ids.width() * 2 * kMiB
                          : 8 * kMiB + text_bytes * (ids.width() + 1);
}

}  // namespace

ReadPlan plan_reading(const std::vector<std::string>& files, const ReadOptions& options,
                      const ReadData& data) {
  const int64_t text_bytes = bytes_of_files(files);
  const int64_t block = largest_block(files);
  const bool is_long = block > static_cast<int64_t>(kRecordBytesInBatch);
  ReadPlan plan;
  plan.limits.text_bytes = std::max(kRecordBytesInBatch, static_cast<size_t>(block));
  plan.limits.ids = plan.limits.text_bytes / 2;
  plan.limits.lines = 4096;
  plan.limits.events = 32768;
  const int64_t copies =
      std::max(static_cast<int64_t>(kRecordBytesInBatch) * kLineCopies, block * kBlockCopies);
  plan.thread_bytes = text::TokenizerCache::kBytesMax + kThreadBytes + copies +
                      plan.limits.bytes() * (is_long ? 1 : 2);
  int64_t threads = std::min(options.threads.count_max, text_bytes / options.threads.text_bytes);
  if (options.room_bytes > 0) {
    const int64_t left =
        options.room_bytes - most_token_bytes(text_bytes, data) - plan.limits.bytes();
    threads = std::min(threads, std::max<int64_t>(0, left) / plan.thread_bytes);
  }
  plan.threads = threads < 2 ? 0 : static_cast<size_t>(threads);
  plan.batches = plan.threads * (is_long ? 1 : 2) + 1;
  return plan;
}

FilesReader::FilesReader(const text::Tokenizer& tokenizer, const ReadOptions& options,
                         ReadData& data, const std::vector<std::string>& files)
    : options_(options),
      data_(data),
      writer_(tokenizer, *data.tokens, data.starts.get(),
              {options.length, options.room_bytes, options.learns_end}),
      tokenizer_(tokenizer, options, false),
      progress_("data: " + data.tokens->name(), bytes_of_files(files)),
      plan_(plan_reading(files, options, data)) {
  if (plan_.threads == 0) return;
  std::vector<RecordTokenizer> tokenizers;
  for (size_t k = 0; k < plan_.threads; ++k) tokenizers.emplace_back(tokenizer, options, true);
  queue_ = std::make_unique<BatchQueue>(std::move(tokenizers), plan_.batches, plan_.limits);
  if (queue_->thread_count() == 0) queue_.reset();
}

void FilesReader::read(const std::string& path) {
  try {
    data_.files.push_back(path);
    if (kind_of_file(path) == FileKind::kText) return read_text(path);
    read_records(path);
  } catch (...) {
    take_all();  // what comes before it in the files fails first
    throw;
  }
}

void FilesReader::finish() {
  take_all();
  queue_.reset();
  std::vector<std::string> found;
  if (totals_.document_count > 0 || totals_.records.empty()) {
    found.push_back("text, " + counted(totals_.document_count, "document"));
  }
  for (const auto& [name, count] : totals_.records) {
    found.push_back(name + ", " + counted(count, "record"));
  }
  data_.found = fmt::format("{}{}", fmt::join(found, "; "),
                            data_.tokens->has_masks() ? " with prompts masked" : "");
  data_.split_count = writer_.split_count() - totals_.split_texts;
  data_.cut_count = writer_.cut_count();
  data_.cut_tokens = writer_.cut_tokens();
  data_.target_count = data_.tokens->count() - data_.tokens->masked_count();
  if (!data_.packing) return;
  const int64_t room_bytes = options_.room_bytes - data_.tokens->bytes() - data_.starts->bytes();
  pack_records(*data_.starts, data_.tokens->count(), options_.length, *data_.packing,
               packing_window(options_.room_bytes > 0 ? room_bytes : INT64_MAX));
}

void FilesReader::read_text(const std::string& path) {
  if (options_.samples != config::SampleLayout::kStream) {
    throw bad_data(path,
                   "plain text has no records to make samples of (give --samples stream, or write "
                   "{\"text\": ...} lines to a .jsonl file)");
  }
  refuse_records_in_text(path);
  sinks_.push_back(std::make_unique<TextSink>(FileTarget{options_, writer_, data_, totals_}));
  bool continues = false;
  text::for_each_text_block(
      path, [&](std::string_view block) { read_block(block, std::exchange(continues, true)); });
  end_file();
}

void FilesReader::require_room_for_words(std::string_view text, const std::string& where) const {
  if (options_.room_bytes == 0 || text.size() <= kRecordBytesInBatch) return;
  const int64_t left = options_.room_bytes - data_.tokens->bytes();
  const int64_t word_bytes = longest_word(text);
  if (word_bytes * kWordCopies <= left) return;
  throw Error(ErrorCode::kDoesNotFit,
              fmt::format("read data: {}: {} of it have no white space, and tokenizing them takes "
                          "more than the {} that --host-memory leaves (take them out, or raise "
                          "--host-memory)",
                          where, format_bytes(word_bytes), format_bytes(left)));
}

void FilesReader::read_block(std::string_view block, bool continues) {
  progress_.add(std::ssize(block));
  require_room_for_words(block, data_.files.back());
  if (queue_ && block.size() <= plan_.limits.text_bytes) {
    batch_with_room(block, nullptr).add_block(block, continues);
    return push();
  }
  take_all();
  tokenizer_.text(block, continues, *sinks_.back());
}

void FilesReader::read_records(const std::string& path) {
  auto made = std::make_unique<RecordsSink>(FileTarget{options_, writer_, data_, totals_}, path);
  RecordsSink& sink = *made;
  sinks_.push_back(std::move(made));
  for_each_item(
      path,
      [&](int64_t line, int64_t bytes) {
        if (queue_ && bytes <= static_cast<int64_t>(kRecordBytesInBatch)) return;
        make_room(bytes);
        sink.require_room(line, bytes);
      },
      [&](std::string_view item, int64_t line) {
        progress_.add(std::ssize(item) + 1);
        read_record(sink, item, line);
        return true;
      });
  end_file();
}

void FilesReader::read_record(RecordsSink& sink, std::string_view item, int64_t line) {
  if (!sink.kind() && !is_blank(item)) {
    find_kind(sink, item, line);
    if (!sink.kind()) return;
  }
  if (queue_ && sink.kind() && item.size() <= kRecordBytesInBatch) {
    TokenBatch& batch = batch_with_room(item, &sink);
    batch.add(item, line);
    if (batch.text_bytes() >= kFullBatchBytes) push();
    return;
  }
  take_all();
  require_room_for_words(item, fmt::format("{}:{}", sink.path(), line));
  sink.begin_line(line, static_cast<int64_t>(item.size()));
  if (sink.kind()) tokenizer_.record(item, sink.path(), line, *sink.kind(), sink);
}

void FilesReader::find_kind(RecordsSink& sink, std::string_view item, int64_t line) {
  const std::string where = fmt::format("{}:{}", sink.path(), line);
  try {
    const config::Json record = parse_record(item, sink.path(), line);
    sink.set_kind(kind_of_first(record, where, options_.rules));
    const std::string others = other_kinds_of(record, *sink.kind(), options_.rules);
    if (!others.empty()) data_.warnings.push_back(fmt::format("data: {}: {}", where, others));
  } catch (const Error& error) {
    take_all();
    sink.begin_line(line, std::ssize(item));
    if (!is_skipped(error, options_.rules)) throw;
    sink.refuse_record(error.what());
  }
}

// Hands over all that was read, because what a long line may take depends on it; where threads
// leave too little memory, they end.
void FilesReader::make_room(int64_t line_bytes) {
  take_all();
  if (!queue_ || options_.room_bytes == 0) return;
  const int64_t left = options_.room_bytes - data_.tokens->bytes() -
                       static_cast<int64_t>(queue_->thread_count()) * plan_.thread_bytes;
  if (line_bytes * kLineCopies > left) queue_.reset();
}

// Records continue a batch of their file; a block of text is a batch of its own.
TokenBatch& FilesReader::batch_with_room(std::string_view item, const RecordsSink* sink) {
  if (is_filling_ && (sink == nullptr || !queue_->next().has_room(item))) push();
  if (is_filling_) return queue_->next();
  if (queue_->is_full()) take();
  TokenBatch& batch = queue_->next();
  is_filling_ = true;
  if (sink != nullptr)
    batch.begin(sink->path(), *sink->kind());
  else
    batch.begin_text();
  return batch;
}

void FilesReader::push() {
  if (!is_filling_) return;
  is_filling_ = false;
  queue_->push();
}

void FilesReader::take() {
  try {
    TokenBatch& batch = queue_->oldest();
    batch.hand_over(tokenizer_, *sinks_.front());
    if (batch.ends_file()) {
      sinks_.front()->finish();
      sinks_.pop_front();
    }
    queue_->pop();
  } catch (...) {
    queue_.reset();  // what comes behind it is not wanted
    throw;
  }
}

void FilesReader::take_all() {
  if (!queue_) return;
  push();
  while (queue_ && !queue_->is_empty()) take();
}

void FilesReader::end_file() {
  if (!queue_) {
    sinks_.back()->finish();
    sinks_.pop_back();
    return;
  }
  if (!is_filling_) batch_with_room("", nullptr);
  queue_->next().end_file();
  push();
}

}  // namespace strata::data
