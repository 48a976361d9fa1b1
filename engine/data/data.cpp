// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "engine/base/blocking_call.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/plural.h"
#include "engine/data/data_files.h"
#include "engine/data/data_report.h"
#include "engine/text/tokenizer.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

int64_t held_out_count(int64_t samples, const DataOptions& options, const std::string& path) {
  int64_t held_out = options.held_out_samples;
  if (options.held_out_fraction > 0) {
    held_out = std::max<int64_t>(
        1, std::llround(std::floor(options.held_out_fraction * static_cast<double>(samples))));
  }
  if (held_out >= samples) {
    throw bad_data(
        path, fmt::format("no sample is left to train on: {} of {} would be held out, of {} each "
                          "(give more data or hold out less)",
                          held_out, counted(samples, "sample"), counted(options.length, "token")));
  }
  return held_out;
}

// Throws when no sample has a target, because a loss over no token would look like a loss of 0.
void require_targets(const TokenSource& samples, const std::string& path) {
  for (int64_t i = 0; i < samples.sample_count(); ++i) {
    if (samples.target_count(i) > 0) return;
  }
  throw bad_data(path,
                 "none of its samples has a target (is each record a prompt without a completion, "
                 "or the text a single token?)");
}

void check_options(const DataOptions& options) {
  STRATA_CHECK(options.length > 0 && options.vocabulary > 0);
  const bool is_fraction = options.held_out_fraction >= 0 && options.held_out_fraction < 1;
  const bool is_one = options.held_out_fraction == 0 || options.held_out_samples == 0;
  if (is_fraction && is_one && options.held_out_samples >= 0) return;
  throw Error(
      ErrorCode::kConfig,
      fmt::format("hold out data: fraction {} and count {}: out of range, or both given (give "
                  "a fraction from 0 to below 1, or a count from 0)",
                  options.held_out_fraction, options.held_out_samples));
}

// Only some files of a directory are read.
void warn_of_files_left_out(const DataItem& item) {
  const BlockingCall call("list", item.path);
  if (!fs::is_directory(item.path)) return;
  const auto left_out = files_left_out(item);
  if (left_out.empty()) return;
  log(LogLevel::kWarning,
      fmt::format(
          "data: {}: {} {} not read, such as \"{}\": in a directory, only .txt and .md files are "
          "read, or where there are none, .jsonl files that are not named for tests (give other "
          "files by their own path)",
          item.path, left_out.size(), left_out.size() == 1 ? "file is" : "files are",
          left_out.front()));
}

// Warns of whole samples without a target, and of completions after the last whole sample, in
// records whose prompts are masked.
void warn_of_masks(const std::string& path, const ReadData& data, const TokenSource& train,
                   int64_t first_unused) {
  const int64_t samples = train.sample_count();
  int64_t idle = 0;
  for (int64_t i = 0; i < samples; ++i) idle += train.target_count(i) == 0;
  if (idle > 0) {
    log(LogLevel::kWarning,
        fmt::format("data: {}: {} of {} samples of {} tokens have only prompts: nothing is learned "
                    "from them (shorten the prompts, or raise --sequence-length)",
                    path, idle, samples, train.length()));
  }
  const auto is_cut = [&](const RecordPlace& record) {
    return record.first_target >= first_unused;
  };
  const auto& last = data.last_records;
  const auto cut = std::find_if(last.begin(), last.end(), is_cut);
  if (cut == last.end()) return;
  log(LogLevel::kWarning,
      fmt::format("data: {}: the completions of the last {} of {} records, from line {} on, come "
                  "after the last whole sample of {} tokens: nothing is learned from them (lower "
                  "--sequence-length to use more of them)",
                  data.files[cut->file], last.end() - cut, data.record_count, cut->line,
                  train.length()));
}

std::vector<DataItem> held_out_items(const std::vector<DataItem>& items,
                                     const DataOptions& options) {
  std::vector<DataItem> held_out;
  const bool is_given = !options.held_out_data.empty();
  for (DataItem item : is_given ? data_items(options.held_out_data, true) : items) {
    if (!item.held_out.empty())
      item.files = std::move(item.held_out);
    else if (!is_given)
      continue;
    if (is_given && item.weight > 0) {
      log(LogLevel::kWarning,
          fmt::format("eval-data: {}: its weight has no effect: each token counts once (leave "
                      "the weights out)",
                      item.path));
    }
    item.weight = 0;
    held_out.push_back(std::move(item));
  }
  return held_out;
}

// Files that become one sequence.
struct FilesOfPart {
  std::string name;
  double weight = 0;
  std::vector<std::string> files;
};

// Each token file, and each item of a mixture, is a part of its own; those of other items are one
// part each time that they follow one another.
std::vector<FilesOfPart> parts_of(const std::vector<DataItem>& items) {
  std::vector<FilesOfPart> parts;
  const auto joins = [&](const DataItem& item) {
    return item.weight == 0 && kind_of_file(item.files.front()) != FileKind::kTokens;
  };
  for (size_t first = 0; first < items.size();) {
    const DataItem& item = items[first];
    FilesOfPart part = {item.files.size() == 1 ? item.files.front() : item.path, item.weight,
                        item.files};
    size_t next = first + 1;
    if (joins(item)) {
      for (; next < items.size() && joins(items[next]); ++next) {
        part.files.insert(part.files.end(), items[next].files.begin(), items[next].files.end());
      }
      if (next > first + 1) part.name += fmt::format(" and {} more", next - first - 1);
    }
    parts.push_back(std::move(part));
    first = next;
  }
  return parts;
}

}  // namespace

// Reads and splits the data of one run.
class Dataset::Opener {
 public:
  Opener(const text::Tokenizer* tokenizer, const DataOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        read_{.vocabulary = options.vocabulary,
              .length = options.length,
              .room_bytes = options.room_bytes,
              .chat_template = options.chat_template,
              .chat_date = options.chat_date,
              .samples = options.samples,
              .rules = {RecordColumns::parse(options.columns), options.train_on, options.as_chats,
                        options.skips_bad_records},
              .learns_end = options.train_on_end,
              .threads = options.threads,
              .columns = options.columns,
              .cache = options.cache} {}

  Dataset open(const std::vector<std::string>& paths) {
    std::vector<DataItem> items = data_items(paths);
    data_.held_out_parts_ = read_items(held_out_items(items, options_), true);
    data_.parts_ = read_items(items, false);
    for (const DataItem& item : items) warn_of_files_left_out(item);
    split();
    for (size_t k = 0; k < data_.parts_.size(); ++k) warn(data_.parts_[k], data_.train_.parts()[k]);
    describe();
    return std::move(data_);
  }

 private:
  // Reads each of the sequences. Text that is held out is a stream, whatever is trained on.
  std::vector<Part> read_items(const std::vector<DataItem>& items, bool is_held_out) {
    const auto is_record_file = [](const std::string& file) {
      return kind_of_file(file) == FileKind::kRecords;
    };
    std::vector<Part> parts;
    for (FilesOfPart& each : parts_of(items)) {
      Part part = {std::move(each.name), each.weight, {}};
      ReadOptions read = read_;
      if (is_held_out && !std::ranges::all_of(each.files, is_record_file))
        read.samples = config::SampleLayout::kStream;
      part.data = read_data(part.name, each.files, tokenizer_, read);
      if (read_.room_bytes > 0) {
        read_.room_bytes = std::max<int64_t>(1, read_.room_bytes - part.data.bytes());
      }
      parts.push_back(std::move(part));
    }
    return parts;
  }

  TokenSource::Part all_of(const Part& part, bool keeps_tail) const {
    const Numbers* starts = part.data.starts.get();
    const Packing* packing = part.data.packing.get();
    return {.tokens = part.data.tokens.get(),
            .starts = starts,
            .count = packing != nullptr ? packing->row_count()
                                        : TokenSource::samples_in(*part.data.tokens, starts,
                                                                  options_.length, keeps_tail),
            .packing = packing,
            .weight = part.weight};
  }

  TokenSource::Part required(const Part& part) const {
    TokenSource::Part all = all_of(part, options_.keeps_tail);
    const int64_t tokens = part.data.tokens->count();
    if (tokens == 0) throw bad_data(part.name, "it is empty (give data with text)");
    if (all.count > 0) return all;
    throw bad_data(
        part.name,
        fmt::format("{}, fewer than one sample of {} and its last target (give more data or "
                    "a shorter --sequence-length)",
                    counted(tokens, "token"), options_.length));
  }

  void split() {
    std::vector<TokenSource::Part> train;
    std::vector<TokenSource::Part> held_out;
    const bool is_apart = !data_.held_out_parts_.empty();
    for (const Part& part : data_.parts_) {
      TokenSource::Part all = required(part);
      TokenSource::Part last = all;
      last.weight = 0;
      last.count = is_apart ? 0 : held_out_count(all.count, options_, part.name);
      all.count -= last.count;
      last.first = all.count;
      if (!is_apart && last.count > 0) held_out.push_back(last);
      train.push_back(all);
      require_targets(TokenSource(options_.length, {all}), part.name);
    }
    for (const Part& part : data_.held_out_parts_) {
      held_out.push_back(all_of(part, true));
      require_targets(TokenSource(options_.length, {held_out.back()}), part.name);
    }
    data_.train_ = TokenSource(options_.length, std::move(train));
    data_.held_out_ = TokenSource(options_.length, std::move(held_out));
    if (is_apart || data_.held_out_.sample_count() == 0) return;
    require_targets(data_.held_out_, data_.parts_.front().name + ", the part held out");
  }

  void warn(const Part& part, const TokenSource::Part& samples) const {
    if (!part.data.tokens->has_masks() || samples.starts != nullptr) return;
    const int64_t used = all_of(part, options_.keeps_tail).count * options_.length + 1;
    warn_of_masks(part.name, part.data, TokenSource(options_.length, {samples}), used);
  }

  void describe() {
    std::vector<ReportPart> parts;
    for (size_t k = 0; k < data_.parts_.size(); ++k) {
      parts.push_back({data_.parts_[k].name, &data_.parts_[k].data, data_.train_.draws_of(k)});
    }
    data_.description_ = data_report(parts, data_.train_, data_.held_out_, tokenizer_);
  }

  const text::Tokenizer* const tokenizer_;
  const DataOptions& options_;
  ReadOptions read_;
  Dataset data_;
};

Dataset Dataset::open(const std::vector<std::string>& paths, const text::Tokenizer* tokenizer,
                      const DataOptions& options) {
  check_options(options);
  return Opener(tokenizer, options).open(paths);
}

int64_t Dataset::most_bytes(const std::vector<std::string>& paths, const DataOptions& options) {
  const std::vector<DataItem> items = data_items(paths);
  int64_t bytes = 0;
  for (const auto& each : {items, held_out_items(items, options)}) {
    for (const FilesOfPart& part : parts_of(each)) {
      if (kind_of_file(part.files.front()) == FileKind::kTokens) continue;
      const int64_t text_bytes = bytes_of_files(part.files);
      const bool is_kept =
          !options.cache.directory.empty() && text_bytes > options.cache.memory_text_bytes;
      bytes +=
          is_kept ? least_bytes(options.vocabulary) : most_bytes(options.vocabulary, text_bytes);
    }
  }
  return bytes;
}

bool Dataset::has_records() const {
  const auto has = [](const Part& part) { return part.data.record_count > 0; };
  return std::any_of(parts_.begin(), parts_.end(), has) ||
         std::any_of(held_out_parts_.begin(), held_out_parts_.end(), has);
}

int64_t Dataset::token_count() const {
  int64_t count = 0;
  for (const Part& part : parts_) count += part.data.tokens->count();
  return count;
}

int64_t Dataset::cut_count() const {
  int64_t count = 0;
  for (const Part& part : parts_) count += part.data.cut_count;
  return count;
}

uint64_t Dataset::fingerprint() const {
  return with_draws(with_parts(with_parts(0, parts_), held_out_parts_));
}

uint64_t Dataset::train_fingerprint() const {
  return with_draws(with_parts(0, parts_));
}

uint64_t Dataset::held_out_fingerprint() const {
  return with_parts(0, held_out_parts_);
}

uint64_t Dataset::with_parts(uint64_t hash, const std::vector<Part>& parts) {
  for (const Part& part : parts) hash = hash * 31 + part.data.fingerprint();
  return hash;
}

uint64_t Dataset::with_draws(uint64_t hash) const {
  for (size_t k = 0; is_mixture() && k < parts_.size(); ++k) {
    hash = hash * 31 + static_cast<uint64_t>(train_.draws_of(k));
  }
  return hash;
}

int64_t Dataset::bytes() const {
  int64_t bytes = 0;
  for (const auto* parts : {&parts_, &held_out_parts_}) {
    for (const Part& part : *parts) bytes += part.data.bytes();
  }
  return bytes;
}

}  // namespace strata::data
