// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/data/data_read.h"
#include "engine/text/text_files.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

int64_t samples_in(const TokenSequence& tokens, const DataOptions& options) {
  if (tokens.count() == 0) return 0;
  const int64_t targets = tokens.count() - 1;
  return options.keeps_tail ? ceil_div(targets, options.length) : targets / options.length;
}

int64_t held_out_count(int64_t samples, const DataOptions& options, const std::string& path) {
  int64_t held_out = options.held_out_samples;
  if (options.held_out_fraction > 0) {
    held_out = std::max<int64_t>(
        1, std::llround(std::floor(options.held_out_fraction * static_cast<double>(samples))));
  }
  if (held_out >= samples) {
    throw bad_data(
        path, fmt::format("{} samples of {} tokens, of which {} are to be held out: no sample is "
                          "left to train on (give more data or hold out less)",
                          samples, options.length, held_out));
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

bool has_records(const std::string& directory) {
  return fs::exists(fs::path(directory) / "train.jsonl");
}

// Only some files of a directory are read.
void warn_of_files_left_out(const std::string& directory) {
  const fs::path path(directory);
  const auto left_out = text::left_out_of(
      directory, has_records(directory)
                     ? std::vector{(path / "train.jsonl").string(), (path / "valid.jsonl").string()}
                     : text::text_files_of(directory));
  if (left_out.empty()) return;
  log(LogLevel::kWarning,
      fmt::format(
          "data: {}: {} {} not read, such as \"{}\": in a directory, only .txt and .md files are "
          "read, or only train.jsonl and valid.jsonl (give other files by their own path)",
          directory, left_out.size(), left_out.size() == 1 ? "file is" : "files are",
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
                  path, last.end() - cut, data.record_count, cut->line, train.length()));
}

}  // namespace

void TokenSource::sample(int64_t index, int32_t* inputs, int32_t* targets) const {
  STRATA_CHECK(index >= 0 && index < count_);
  const int64_t begin = (first_ + index) * length_;
  const int64_t length = length_of(index);
  tokens_->read(begin, length, inputs);
  std::copy(inputs + 1, inputs + length, targets);
  tokens_->read(begin + length, 1, targets + length - 1);
  std::fill(inputs + length, inputs + length_, 0);
  std::fill(targets + length, targets + length_, -1);
  if (!tokens_->has_masks()) return;
  for (int64_t k = 0; k < length; ++k) {
    if (!tokens_->is_target(begin + k + 1)) targets[k] = -1;
  }
}

int64_t TokenSource::target_count(int64_t index) const {
  STRATA_CHECK(index >= 0 && index < count_);
  return tokens_->target_count((first_ + index) * length_ + 1, length_of(index));
}

void Dataset::check(const std::string& path) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (failure) {
    throw bad_data(path, failure.message() + " (give a file or directory that can be read)");
  }
  if (!fs::is_regular_file(status) && !fs::is_directory(status)) {
    throw bad_data(path, "it is neither a file nor a directory (give one of them)");
  }
  if (fs::is_directory(status) && ::access(path.c_str(), R_OK | X_OK) != 0) {
    throw bad_data(path, "this user may not look into the directory (chmod u+rx, or give another)");
  }
  if (fs::is_regular_file(status)) (void)text::FileReader(path);
  if (fs::is_directory(status) && !has_records(path)) (void)text::text_files_of(path);
}

Dataset Dataset::open(const std::string& path, const text::Tokenizer* tokenizer,
                      const DataOptions& options) {
  check_options(options);
  check(path);
  Dataset data;
  ReadOptions read = {.vocabulary = options.vocabulary,
                      .tail_tokens = options.length,
                      .room_bytes = options.room_bytes,
                      .chat_template = options.chat_template};
  std::string main_path = path;
  if (fs::is_directory(path) && has_records(path)) {
    main_path = (fs::path(path) / "train.jsonl").string();
    const std::string valid = (fs::path(path) / "valid.jsonl").string();
    if (fs::exists(valid)) {
      data.held_out_tokens_ = read_data(valid, tokenizer, read).tokens;
      if (read.room_bytes > 0) read.room_bytes -= data.held_out_tokens_->bytes();
    }
  }
  ReadData main = read_data(main_path, tokenizer, read);
  data.tokens_ = std::move(main.tokens);
  if (fs::is_directory(path)) warn_of_files_left_out(path);
  data.split(main_path, options);
  if (data.tokens_->has_masks()) {
    const int64_t used = samples_in(*data.tokens_, options) * options.length + 1;
    warn_of_masks(main_path, main, data.train_, used);
  }
  data.description_ =
      fmt::format("{}: {}; {} tokens, {} samples of {}{}", main_path, main.found,
                  data.tokens_->count(), data.train_.sample_count(), options.length,
                  data.held_out_.sample_count() > 0
                      ? fmt::format(", {} more held out", data.held_out_.sample_count())
                      : "");
  return data;
}

void Dataset::split(const std::string& path, const DataOptions& options) {
  const int64_t length = options.length;
  const int64_t samples = samples_in(*tokens_, options);
  if (tokens_->count() == 0) throw bad_data(path, "it is empty (give data with text)");
  if (samples == 0) {
    throw bad_data(path,
                   fmt::format("{} tokens, fewer than one sample of {} and its last target (give "
                               "more data or a shorter --sequence-length)",
                               tokens_->count(), length));
  }
  if (held_out_tokens_ != nullptr) {
    train_ = TokenSource(*tokens_, length, 0, samples);
    DataOptions whole = options;
    whole.keeps_tail = true;
    held_out_ = TokenSource(*held_out_tokens_, length, 0, samples_in(*held_out_tokens_, whole));
    require_targets(train_, path);
    require_targets(held_out_, (fs::path(path).parent_path() / "valid.jsonl").string());
    return;
  }
  const int64_t held_out = held_out_count(samples, options, path);
  train_ = TokenSource(*tokens_, length, 0, samples - held_out);
  held_out_ = TokenSource(*tokens_, length, samples - held_out, held_out);
  require_targets(train_, path);
  if (held_out > 0) require_targets(held_out_, path + ", the part held out");
}

}  // namespace strata::data
