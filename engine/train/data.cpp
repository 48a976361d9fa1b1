// SPDX-License-Identifier: Apache-2.0
#include "engine/train/data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/config/json.h"
#include "engine/train/data_files.h"
#include "engine/train/data_records.h"
#include "engine/train/tokenizer.h"

namespace strata::train {
namespace {

namespace fs = std::filesystem;

enum class FileKind { kTokens, kRecords, kText };

Error bad_data(const std::string& path, const std::string& cause) {
  return Error(ErrorCode::kConfig, fmt::format("open data: {}: {}", path, cause));
}

char first_character(const std::string& path) {
  FileReader reader(path);
  char head[4096];
  const std::string_view text(head, reader.read(head, sizeof head));
  const size_t at = text.find_first_not_of(" \t\r\n");
  return at == std::string_view::npos ? '\0' : text[at];
}

FileKind kind_of_file(const std::string& path) {
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".bin" || TokenSequence::is_llmc_file(path)) return FileKind::kTokens;
  if (is_text(extension)) return FileKind::kText;
  if (const char* why = why_not_read(extension)) throw bad_data(path, why);
  const char first = first_character(path);
  const bool is_json = extension == ".jsonl" || extension == ".json";
  if (is_json && first == '[') {
    throw bad_data(path, "a JSON array (write one object a line)");
  }
  return is_json || first == '{' ? FileKind::kRecords : FileKind::kText;
}

// Appends documents to a sequence: prefix, text, suffix, EOS.
class DocumentWriter {
 public:
  DocumentWriter(const Tokenizer& tokenizer, TokenSequence& tokens)
      : tokenizer_(tokenizer), tokens_(tokens) {}

  void begin(bool is_target) {
    tokens_.append(tokenizer_.prefix_ids(), is_target);
    is_empty_ = true;
  }

  void add(std::string_view text, bool is_target) {
    ids_.clear();
    tokenizer_.encode(text, {.add_special = false, .continues = !is_empty_}, &ids_);
    tokens_.append(ids_, is_target);
    is_empty_ = false;
  }

  void end() {
    tokens_.append(tokenizer_.suffix_ids(), true);
    const std::optional<int32_t> eos = tokenizer_.eos_id();
    if (eos && !tokenizer_.appends(*eos)) tokens_.append({*eos}, true);
    ++count_;
  }

  int64_t count() const { return count_; }

 private:
  const Tokenizer& tokenizer_;
  TokenSequence& tokens_;
  std::vector<int32_t> ids_;
  bool is_empty_ = true;
  int64_t count_ = 0;
};

std::string read_text(const std::string& path, const Tokenizer& tokenizer, TokenSequence& tokens) {
  DocumentWriter writer(tokenizer, tokens);
  for (const std::string& file : text_files_of(path)) {
    bool is_begun = false;
    for_each_text_block(file, [&](std::string_view block) {
      if (!is_begun) writer.begin(true);
      is_begun = true;
      writer.add(block, true);
    });
    if (is_begun) writer.end();
  }
  return fmt::format("text, {} document{}", writer.count(), writer.count() == 1 ? "" : "s");
}

std::string read_records(const std::string& path, const Tokenizer& tokenizer,
                         TokenSequence& tokens) {
  DocumentWriter writer(tokenizer, tokens);
  std::optional<RecordKind> kind;
  for_each_record(path, [&](const config::Json& record, const std::string& where) {
    if (!kind) kind = kind_of_record(record, where);
    const std::vector<Segment> segments = segments_of_record(record, *kind, where);
    if (segments.empty()) return;
    if (is_chat(record, *kind)) check_chat_template(tokenizer.chat_template(), where);
    const bool has_prompt = *kind != RecordKind::kText;
    writer.begin(!has_prompt);
    for (const Segment& segment : segments) writer.add(segment.text, segment.is_target);
    writer.end();
  });
  if (!kind) throw bad_data(path, "no record in it");
  return fmt::format("JSON lines of {}, {} records{}", name_of(*kind), writer.count(),
                     tokens.has_masks() ? " with prompts masked" : "");
}

std::unique_ptr<TokenSequence> read_file(const std::string& path, const Tokenizer* tokenizer,
                                         int64_t vocabulary, std::string* found) {
  const bool is_directory = fs::is_directory(path);
  const FileKind kind = is_directory ? FileKind::kText : kind_of_file(path);
  if (kind == FileKind::kTokens) {
    auto tokens = std::make_unique<TokenSequence>(TokenSequence::open_file(path, vocabulary));
    *found = tokens->format();
    return tokens;
  }
  if (tokenizer == nullptr) {
    throw bad_data(
        path,
        "text needs a tokenizer, and the model directory has no tokenizer.json (add one: "
        "Transformers' AutoTokenizer saves it with save_pretrained(); or give a token "
        "file)");
  }
  auto tokens = std::make_unique<TokenSequence>(path, vocabulary);
  *found = kind == FileKind::kText ? read_text(path, *tokenizer, *tokens)
                                   : read_records(path, *tokenizer, *tokens);
  return tokens;
}

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
    throw bad_data(path,
                   fmt::format("{} samples of {} tokens, of which {} are to be held out: none is "
                               "left to train on (give more data or hold out less)",
                               samples, options.length, held_out));
  }
  return held_out;
}

// A loss over nothing would pass for one of 0.
void require_targets(const TokenSource& samples, const std::string& path) {
  for (int64_t i = 0; i < samples.sample_count(); ++i) {
    if (samples.target_count(i) > 0) return;
  }
  throw bad_data(path,
                 "no token of it is a target (is each record a prompt without a completion, "
                 "or the text a single token?)");
}

void check_options(const DataOptions& options) {
  STRATA_CHECK(options.length > 0 && options.vocabulary > 0);
  const bool is_fraction = options.held_out_fraction >= 0 && options.held_out_fraction < 1;
  const bool is_one = options.held_out_fraction == 0 || options.held_out_samples == 0;
  if (is_fraction && is_one && options.held_out_samples >= 0) return;
  throw Error(
      ErrorCode::kConfig,
      fmt::format("hold out data: fraction {} and count {}: one of them, a fraction from 0 to "
                  "below 1 or a count from 0",
                  options.held_out_fraction, options.held_out_samples));
}

bool has_records(const std::string& directory) {
  return fs::exists(fs::path(directory) / "train.jsonl");
}

// A directory is not all that is in it.
void say_what_is_left_out(const std::string& directory) {
  const fs::path path(directory);
  const auto left_out = left_out_of(
      directory, has_records(directory)
                     ? std::vector{(path / "train.jsonl").string(), (path / "valid.jsonl").string()}
                     : text_files_of(directory));
  if (left_out.empty()) return;
  log(LogLevel::kWarning,
      fmt::format("data: {}: {} {} not read, \"{}\" the first: of a directory .txt and .md files "
                  "are, or train.jsonl and valid.jsonl alone (name other files themselves)",
                  directory, left_out.size(), left_out.size() == 1 ? "file is" : "files are",
                  left_out.front()));
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
  if (failure) throw bad_data(path, failure.message());
  if (!fs::is_regular_file(status) && !fs::is_directory(status)) {
    throw bad_data(path, "neither a file nor a directory");
  }
  if (fs::is_directory(status) && ::access(path.c_str(), R_OK | X_OK) != 0) {
    throw bad_data(path, "this user may not look into the directory (chmod u+rx, or give another)");
  }
  if (fs::is_regular_file(status)) (void)FileReader(path);
  if (fs::is_directory(status) && !has_records(path)) (void)text_files_of(path);
}

Dataset Dataset::open(const std::string& path, const Tokenizer* tokenizer,
                      const DataOptions& options) {
  check_options(options);
  check(path);
  Dataset data;
  std::string found;
  std::string main_path = path;
  if (fs::is_directory(path) && has_records(path)) {
    main_path = (fs::path(path) / "train.jsonl").string();
    const std::string valid = (fs::path(path) / "valid.jsonl").string();
    if (fs::exists(valid)) {
      data.held_out_tokens_ = read_file(valid, tokenizer, options.vocabulary, &found);
    }
  }
  data.tokens_ = read_file(main_path, tokenizer, options.vocabulary, &found);
  if (fs::is_directory(path)) say_what_is_left_out(path);
  data.split(main_path, options);
  data.description_ =
      fmt::format("{}: {}; {} tokens, {} samples of {}{}", main_path, found, data.tokens_->count(),
                  data.train_.sample_count(), options.length,
                  data.held_out_.sample_count() > 0
                      ? fmt::format(", {} more held out", data.held_out_.sample_count())
                      : "");
  return data;
}

void Dataset::split(const std::string& path, const DataOptions& options) {
  const int64_t length = options.length;
  const int64_t samples = samples_in(*tokens_, options);
  if (tokens_->count() == 0) throw bad_data(path, "empty (there is nothing to train on)");
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

}  // namespace strata::train
