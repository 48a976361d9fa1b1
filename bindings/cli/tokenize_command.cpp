// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/cli/commands.h"
#include "bindings/cli/standard_input.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/config/json.h"
#include "engine/data/data_files.h"
#include "engine/data/data_texts.h"
#include "engine/data/document_writer.h"
#include "engine/data/file_sinks.h"
#include "engine/data/record_stream.h"
#include "engine/data/record_tokens.h"
#include "engine/model_files/model_path.h"
#include "engine/text/text_files.h"
#include "engine/text/tokenizer.h"
#include "engine/train/run_directory.h"

namespace strata::cli {
namespace {

using config::Json;

constexpr int64_t kTextBytesMax = int64_t{1} << 30;

// Prints a text's tokens: a line of ids, a line for each token with --pieces, or an object with
// --json. With --decode the text that they stand for follows as a JSON string. Of records with
// prompts, --pieces and --json also show which tokens are learned.
class TokenPrinter {
 public:
  TokenPrinter(const config::Options& options, const text::Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer) {}

  const text::Tokenizer& tokenizer() const { return tokenizer_; }

  void print(std::string_view text) {
    const text::EncodeOptions how = {.add_special = options_.special};
    if (options_.count) {
      ++texts_;
      bytes_ += static_cast<int64_t>(text.size());
      tokenizer_.encode(text, how, [&](const std::vector<int32_t>& ids) {
        tokens_ += static_cast<int64_t>(ids.size());
      });
      return;
    }
    print(tokenizer_.encode(text, how), {});
  }

  // A text of a record, and for each token whether it is learned.
  void print_document(const std::vector<int32_t>& ids, const std::vector<bool>& learned,
                      int64_t bytes) {
    ++texts_;
    bytes_ += bytes;
    are_records_ = true;
    tokens_ += std::ssize(ids);
    if (!options_.count) print(ids, learned);
  }

  void finish() const {
    if (!options_.count) return;
    if (!options_.json) {
      print_line(fmt::format("{}, {}{}, {}", counted(texts_, "text"), counted(bytes_, "byte"),
                             are_records_ ? " of records" : "", counted(tokens_, "token")));
      return;
    }
    Json json = Json::object();
    json.set("texts", texts_);
    json.set("bytes", bytes_);
    json.set("tokens", tokens_);
    print_line(json.dump());
  }

 private:
  static void print_line(std::string line) {
    line += '\n';
    std::fwrite(line.data(), 1, line.size(), stdout);
  }

  // `learned` is empty where the texts have no prompts.
  void print(const std::vector<int32_t>& ids, const std::vector<bool>& learned) const {
    if (options_.json) return print_json(ids, learned);
    print_ids(ids, learned);
    if (options_.decode) print_line(Json(tokenizer_.decode(ids)).dump());
  }

  void print_ids(const std::vector<int32_t>& ids, const std::vector<bool>& learned) const {
    if (!options_.pieces) return print_line(fmt::format("{}", fmt::join(ids, " ")));
    for (size_t k = 0; k < ids.size(); ++k) {
      const char* mark = learned.empty() ? "" : learned[k] ? "\t+" : "\t-";
      print_line(fmt::format("{}\t{}{}", ids[k], Json(tokenizer_.piece_of(ids[k])).dump(), mark));
    }
  }

  void print_json(const std::vector<int32_t>& ids, const std::vector<bool>& learned) const {
    Json json = Json::object();
    json.set("ids", Json::Array(ids.begin(), ids.end()));
    if (!learned.empty()) json.set("learned", Json::Array(learned.begin(), learned.end()));
    if (options_.pieces) {
      Json pieces = Json::array();
      for (const int32_t id : ids) pieces.push_back(tokenizer_.piece_of(id));
      json.set("pieces", std::move(pieces));
    }
    if (options_.decode) json.set("text", tokenizer_.decode(ids));
    print_line(json.dump());
  }

  const config::Options& options_;
  const text::Tokenizer& tokenizer_;
  int64_t texts_ = 0;
  int64_t bytes_ = 0;
  bool are_records_ = false;  // whose lines are counted, not their texts
  int64_t tokens_ = 0;
};

Error bad_input(const std::string& where, const std::string& cause) {
  return Error(ErrorCode::kConfig, fmt::format("tokenize: {}: {}", where, cause));
}

// Prints what training makes of records: their texts with the tokenizer's ends, unless --special
// off leaves these out, or chats by the model's template.
class RecordPrinter final : public data::TokenSink {
 public:
  RecordPrinter(const config::Options& options, TokenPrinter& printer)
      : options_(options),
        printer_(printer),
        tokens_("record", printer.tokenizer().vocabulary_size()),
        writer_(printer.tokenizer(), tokens_, nullptr,
                {.length = INT64_MAX, .learns_end = options.train_on_end}) {}

  // Says of a file's records what training leaves out.
  void finish(const std::string& path) {
    if (left_out_ > 0) {
      log(LogLevel::kWarning,
          fmt::format("data: {}: {} of {} have nothing to learn, and training leaves them out "
                      "(complete or remove them)",
                      path, left_out_, counted(records_, "record")));
    }
    std::vector<std::string> warnings;
    refused_.warn(path, records_, warnings);
    troubles_.warn(path, records_, warnings);
    for (const std::string& warning : warnings) log(LogLevel::kWarning, warning);
    records_ = left_out_ = 0;
    refused_ = {};
    troubles_ = {};
  }

  // Whether the record that comes next is a text, all of which is learned.
  void set_text(bool is_text) { is_text_ = is_text; }

  void begin_line(int64_t line, int64_t bytes) override {
    line_ = line;
    bytes_ = bytes;
  }
  void refuse_record(const std::string& cause) override { refused_.add(line_, cause); }
  void begin_record(bool has_lesson) override {
    ++records_;
    left_out_ += !has_lesson;
  }
  void begin_document(bool is_chat) override {
    has_ends_ = options_.special && !is_chat;
    tokens_.clear();
    if (has_ends_)
      writer_.begin(is_text_ || options_.train_on == config::TrainOn::kEverything);
    else
      writer_.begin_chat();
  }
  void begin_part(bool is_target) override { is_target_ = is_target; }
  void ids(const std::vector<int32_t>& ids) override { writer_.add(ids, is_target_); }
  void end_document() override {
    if (has_ends_) writer_.end();
    std::vector<int32_t> ids(static_cast<size_t>(tokens_.count()));
    tokens_.read(0, tokens_.count(), ids.data());
    std::vector<bool> learned;
    for (int64_t k = 0; !is_text_ && k < tokens_.count(); ++k) {
      learned.push_back(tokens_.is_target(k));
    }
    printer_.print_document(ids, learned, std::exchange(bytes_, 0));
  }
  void end_record(const data::ChatTrouble& trouble) override { troubles_.add(trouble, line_); }

 private:
  const config::Options& options_;
  TokenPrinter& printer_;
  data::TokenSequence tokens_;  // of one document
  data::DocumentWriter writer_;
  data::RefusedRecords refused_;
  int64_t records_ = 0;   // of the file, without those
  int64_t left_out_ = 0;  // of these
  data::ChatTroubles troubles_;
  int64_t line_ = 0;
  bool is_text_ = false;
  bool has_ends_ = false;
  bool is_target_ = false;
  int64_t bytes_ = 0;
};

// What of the files is printed.
class DataPrinter {
 public:
  DataPrinter(const config::Options& options, TokenPrinter& printer)
      : printer_(printer), records_(options, printer) {
    read_.chat_template = options.chat_template;
    read_.chat_date = options.chat_date;
    read_.rules = {data::RecordColumns::parse(options.columns), options.train_on, options.as_chats,
                   options.bad_records == config::BadRecords::kSkip};
  }

  void print(const std::vector<std::string>& given) {
    for (const data::DataItem& item : data::data_items(given)) {
      for (const std::string& file : item.files) print_file(file);
    }
  }

 private:
  void print_file(const std::string& path) {
    switch (data::kind_of_file(path)) {
      case data::FileKind::kTokens:
        throw bad_input(path, "it holds tokens already (give files of text or records)");
      case data::FileKind::kText:
        return print_text(path);
      case data::FileKind::kRecords:
        break;
    }
    data::RecordTokenizer tokenizer(printer_.tokenizer(), read_, false);
    data::for_each_record(
        path, read_.rules,
        [&](std::string_view item, int64_t line, data::RecordKind kind) {
          records_.set_text(kind == data::RecordKind::kText);
          records_.begin_line(line, std::ssize(item));
          tokenizer.record(item, path, line, kind, records_);
        },
        [&](int64_t line, const std::string& cause) {
          records_.begin_line(line, 0);
          records_.refuse_record(cause);
        });
    records_.finish(path);
  }

  void print_text(const std::string& path) {
    const std::string text = text::read_text_file(path, kTextBytesMax);
    try {
      printer_.print(text);
    } catch (const Error& error) {
      throw bad_input(path, error.what());
    }
  }

  TokenPrinter& printer_;
  RecordPrinter records_;
  data::ReadOptions read_;
};

}  // namespace

// A directory with no more than a tokenizer will do.
int run_tokenize(const config::Options& options) {
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(options.model, ignored);
  if (!is_directory || train::RunDirectory::is_run(options.model)) {
    model::require_model_directory(options.model);
  }
  const text::Tokenizer tokenizer = text::Tokenizer::read(options.model);
  TokenPrinter printer(options, tokenizer);
  if (options.is_given("text"))
    printer.print(options.text);
  else if (options.data.empty() || options.data.front() == "-")
    printer.print(read_standard_input(kTextBytesMax));
  else
    DataPrinter(options, printer).print(options.data);
  printer.finish();
  return 0;
}

}  // namespace strata::cli
