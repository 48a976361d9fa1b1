// SPDX-License-Identifier: Apache-2.0
#include "engine/data/file_sinks.h"

#include <fmt/format.h>

#include <deque>

#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/data/record_stream.h"

namespace strata::data {
namespace {

constexpr int64_t kShown = 5;

}  // namespace

void LineNumbers::add(int64_t line) {
  ++count_;
  if (line == last_line_) return;  // of an array
  last_line_ = line;
  if (++line_count_ <= kShown) shown_ += fmt::format("{}{}", line_count_ == 1 ? "" : ", ", line);
}

std::string LineNumbers::text() const {
  return fmt::format("{} {}{}", plural(line_count_, "line"), shown_,
                     line_count_ > kShown ? ", ..." : "");
}

void ChatTroubles::add(const ChatTrouble& trouble, int64_t line) {
  if (trouble.loses_words) losing_.add(line);
  if (trouble.leaves_prompt) leaving_.add(line);
}

void ChatTroubles::warn(const std::string& path, int64_t records,
                        std::vector<std::string>& warnings) const {
  if (losing_.count() > 0) {
    warnings.push_back(fmt::format(
        "data: {}: {} of {} records {} tools, calls of tools or reasoning that the "
        "chat template does not write ({}): the model does not learn them (choose "
        "another template by --chat-template, or take them out)",
        path, losing_.count(), records, losing_.count() == 1 ? "has" : "have", losing_.text()));
  }
  if (leaving_.count() > 0) {
    warnings.push_back(
        fmt::format("data: {}: in {} of {} records ({}) an answer does not begin as the chat "
                    "template's generation prompt does, such as with reasoning: the model learns "
                    "to answer without it, but will be asked with it (give the answers their "
                    "reasoning, or by --chat-template a template that opens none)",
                    path, leaving_.count(), records, leaving_.text()));
  }
}

void RefusedRecords::add(int64_t line, const std::string& cause) {
  if (lines_.count() == 0) first_cause_ = cause;
  lines_.add(line);
}

void RefusedRecords::warn(const std::string& path, int64_t others,
                          std::vector<std::string>& warnings) const {
  const int64_t count = lines_.count();
  if (count == 0) return;
  if (others == 0) {
    const std::string all = count == 1 ? "its only record" : fmt::format("all {} records", count);
    throw bad_data(path, fmt::format("{} cannot be read{}: {} (mend {}, or give other data)", all,
                                     count == 1 ? "" : ", the first because of this", first_cause_,
                                     count == 1 ? "it" : "them"));
  }
  warnings.push_back(
      fmt::format("data: {}: {} of {} records cannot be read and {} left out ({}), the first "
                  "because of this: {} "
                  "(mend or remove {})",
                  path, count, others + count, count == 1 ? "is" : "are", lines_.text(),
                  first_cause_, count == 1 ? "it" : "them"));
}

RecordsSink::RecordsSink(const FileTarget& target, const std::string& path)
    : FileSink(target), path_(path), file_(target.data.files.size() - 1) {}

void RecordsSink::require_room(int64_t line, int64_t line_bytes) const {
  if (target_.options.room_bytes == 0) return;
  const int64_t left = target_.options.room_bytes - target_.data.tokens->bytes();
  if (line_bytes * kLineCopies <= left) return;
  throw Error(ErrorCode::kDoesNotFit,
              fmt::format("read data: {}:{}: the line has more than {}, the longest that can be "
                          "read in the {} that --host-memory leaves (cut the record into "
                          "several, or raise --host-memory)",
                          path_, line, format_bytes(left / kLineCopies), format_bytes(left)));
}

void RecordsSink::begin_line(int64_t line, int64_t bytes) {
  require_room(line, bytes);
  line_ = line;
}

void RecordsSink::begin_record(bool has_lesson) {
  ++record_count_;
  has_lesson_ = has_lesson;
  is_kept_ = has_target_ = false;
  if (!has_lesson) idle_.add(line_);
}

void RecordsSink::end_record(const ChatTrouble& trouble) {
  troubles_.add(trouble, line_);
  if (!has_lesson_ || is_kept_) return;
  beyond_.add(line_);
  unmarked_ += has_target_ ? 0 : 1;
}

void RecordsSink::begin_document(bool is_chat) {
  is_chat_ = is_chat;
  if (is_chat) return target_.writer.begin_chat();
  target_.writer.begin(kind_ == RecordKind::kText ||
                       target_.options.rules.train_on == config::TrainOn::kEverything);
}

void RecordsSink::begin_part(bool is_target) {
  is_target_ = is_target;
  has_target_ = has_target_ || is_target;
  if (is_target && has_lesson_) remember();
}

void RecordsSink::ids(const std::vector<int32_t>& ids) {
  target_.writer.add(ids, is_target_);
}

// Keeps the first document with something to learn as the example.
void RecordsSink::end_document() {
  DocumentWriter& writer = target_.writer;
  ReadData& data = target_.data;
  const bool is_kept = is_chat_ ? writer.end_chat() : writer.end();
  if (is_kept && has_lesson_ && data.example_count == 0) {
    data.example_first = writer.start();
    data.example_count = data.tokens->count() - writer.start();
  }
  is_kept_ = is_kept_ || is_kept;
}

// Remembers a record whose first target is at the end of the sequence so far.
void RecordsSink::remember() {
  std::deque<RecordPlace>& last = target_.data.last_records;
  const int64_t at = target_.data.tokens->count();
  if (last.empty() || last.back().line != line_ || last.back().file != file_) {
    last.push_back({at, line_, file_});
  }
  while (!last.empty() && last.front().first_target + target_.options.length < at) {
    last.pop_front();
  }
}

void RecordsSink::finish() {
  refused_.warn(path_, record_count_, target_.data.warnings);
  if (!kind_) throw bad_data(path_, "it has no record (write at least one line)");
  if (idle_.count() + beyond_.count() == record_count_) refuse_all();
  warn();
  target_.data.record_count += record_count_;
  const char* form = holds_array(path_) ? "a JSON array of " : "JSON lines of ";
  target_.totals.records[std::string(form) + name_of(*kind_)] += record_count_;
}

void RecordsSink::refuse_all() const {
  std::string idle;
  std::string beyond;
  if (idle_.count() > 0) {
    idle = fmt::format("{} with {} ({})", idle_.count(), name_of_idle(*kind_), idle_.text());
  }
  if (beyond_.count() > 0) {
    beyond = fmt::format("{} with nothing to learn in the first {} ({})", beyond_.count(),
                         counted(target_.options.length, "token"), beyond_.text());
  }
  throw bad_data(path_,
                 fmt::format("there is nothing to learn, {} left out: {}{}{} ({})",
                             record_count_ == 1 ? "its only record is"
                                                : fmt::format("all {} records are", record_count_),
                             idle, idle.empty() || beyond.empty() ? "" : ", ", beyond,
                             beyond.empty() ? "complete them" : advice_for_beyond()));
}

std::string RecordsSink::advice_for_beyond() const {
  if (unmarked_ == 0) return "shorten the prompts, or raise --sequence-length";
  return fmt::format(
      "the {{% generation %}} blocks of the chat template leave out the answers of {} "
      "of them: correct it, or choose another by --chat-template",
      unmarked_);
}

void RecordsSink::warn() const {
  std::vector<std::string>& warnings = target_.data.warnings;
  if (idle_.count() > 0) {
    warnings.push_back(
        fmt::format("data: {}: {} of {} records {} {} ({}): {} left out, with nothing to "
                    "learn (complete or remove {})",
                    path_, idle_.count(), record_count_, idle_.count() == 1 ? "has" : "have",
                    name_of_idle(*kind_), idle_.text(), idle_.count() == 1 ? "it is" : "they are",
                    idle_.count() == 1 ? "it" : "them"));
  }
  if (beyond_.count() > 0) {
    warnings.push_back(fmt::format(
        "data: {}: {} of {} records {} nothing to learn in the first {} ({}): {} left out "
        "({})",
        path_, beyond_.count(), record_count_, beyond_.count() == 1 ? "has" : "have",
        counted(target_.options.length, "token"), beyond_.text(),
        beyond_.count() == 1 ? "it is" : "they are", advice_for_beyond()));
  }
  troubles_.warn(path_, record_count_, warnings);
}

void TextSink::begin_part(bool) {
  if (is_begun_) return;
  is_begun_ = true;
  split_before_ = target_.writer.split_count();
  target_.writer.begin(true);
}

void TextSink::finish() {
  if (!is_begun_) return;
  target_.writer.end();
  ++target_.totals.document_count;
  target_.totals.split_texts += target_.writer.split_count() - split_before_;
}

}  // namespace strata::data
