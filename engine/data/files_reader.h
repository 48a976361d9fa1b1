// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/reading_progress.h"
#include "engine/data/batch_queue.h"
#include "engine/data/data_read.h"
#include "engine/data/document_writer.h"
#include "engine/data/file_sinks.h"
#include "engine/data/record_tokens.h"

namespace strata::data {

// How many threads make tokens beside the one that reads, and how much of a file each gets at once;
// 0: the thread that reads makes them.
struct ReadPlan {
  size_t threads = 0;
  size_t batches = 0;
  BatchLimits limits = {};
  int64_t thread_bytes = 0;  // of memory, with its share of the batches
};

// At most `options.threads.count_max`, no more than there is data for, and no more than
// `options.room_bytes` has memory for beside all tokens that are held in memory; from 2 on.
ReadPlan plan_reading(const std::vector<std::string>& files, const ReadOptions& options,
                      const ReadData& data);

// Reads files of text and of records into one sequence.
//
// Guarantees: tokens, counts, warnings and errors do not depend on the number of threads: of
// several mistakes, the first in the files is reported. Threads: one; it has others of its own,
// which are joined in finish() or when it is destroyed. Failure: as read_data().
class FilesReader {
 public:
  // `files` are what read() will be called with.
  FilesReader(const text::Tokenizer& tokenizer, const ReadOptions& options, ReadData& data,
              const std::vector<std::string>& files);

  void read(const std::string& path);
  void finish();

 private:
  void read_text(const std::string& path);
  void require_room_for_words(std::string_view text, const std::string& where) const;
  void read_block(std::string_view block, bool continues);
  void read_records(const std::string& path);
  void read_record(RecordsSink& sink, std::string_view item, int64_t line);
  void find_kind(RecordsSink& sink, std::string_view item, int64_t line);
  void make_room(int64_t line_bytes);

  TokenBatch& batch_with_room(std::string_view item, const RecordsSink* sink);
  void push();
  void take();
  void take_all();
  void end_file();

  const ReadOptions& options_;
  ReadData& data_;
  DocumentWriter writer_;
  FileTotals totals_;
  RecordTokenizer tokenizer_;
  ReadingProgress progress_;
  // The files that are begun and not finished: batches are of the first, lines read of the last.
  std::deque<std::unique_ptr<FileSink>> sinks_;
  bool is_filling_ = false;  // the queue's next batch has some lines
  ReadPlan plan_;
  std::unique_ptr<BatchQueue> queue_;  // null: without threads
};

}  // namespace strata::data
