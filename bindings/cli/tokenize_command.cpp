// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/cli/commands.h"
#include "bindings/cli/standard_input.h"
#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/config/json_stream.h"
#include "engine/model_files/model_path.h"
#include "engine/text/text_files.h"
#include "engine/text/tokenizer.h"
#include "engine/train/run_directory.h"

namespace strata::cli {
namespace {

using config::Json;

constexpr int64_t kTextBytesMax = int64_t{1} << 30;
constexpr int64_t kLineBytesMax = int64_t{1} << 26;

// Prints a text's tokens: a line of ids, a line for each token with --pieces, or an object with
// --json. With --decode the text that they stand for follows as a JSON string.
class TokenPrinter {
 public:
  TokenPrinter(const config::Options& options, const text::Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer) {}

  void print(std::string_view text) {
    const text::EncodeOptions how = {.add_special = options_.special};
    ++texts_;
    bytes_ += static_cast<int64_t>(text.size());
    if (options_.count) {
      tokenizer_.encode(text, how, [&](const std::vector<int32_t>& ids) {
        tokens_ += static_cast<int64_t>(ids.size());
      });
      return;
    }
    const std::vector<int32_t> ids = tokenizer_.encode(text, how);
    if (options_.json) {
      print_json(ids);
      return;
    }
    print_ids(ids);
    if (options_.decode) print_line(Json(tokenizer_.decode(ids)).dump());
  }

  void finish() const {
    if (!options_.count) return;
    if (!options_.json) {
      print_line(counted(texts_, "text") + ", " + counted(bytes_, "byte") + ", " +
                 counted(tokens_, "token"));
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

  void print_ids(const std::vector<int32_t>& ids) const {
    if (!options_.pieces) {
      print_line(fmt::format("{}", fmt::join(ids, " ")));
      return;
    }
    for (const int32_t id : ids) {
      print_line(fmt::format("{}\t{}", id, Json(tokenizer_.piece_of(id)).dump()));
    }
  }

  void print_json(const std::vector<int32_t>& ids) const {
    Json json = Json::object();
    json.set("ids", Json::Array(ids.begin(), ids.end()));
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
  int64_t tokens_ = 0;
};

Error bad_input(const std::string& where, const std::string& cause) {
  return Error(ErrorCode::kConfig, fmt::format("tokenize: {}: {}", where, cause));
}

void check_size(const std::string& where, int64_t bytes, int64_t most) {
  if (bytes <= most) return;
  throw bad_input(where, fmt::format("it has {}, more than {} (cut it into parts)",
                                     format_bytes(bytes), format_bytes(most)));
}

// The text of a line of a .jsonl file: {"text": "..."}, or the string itself.
std::string text_of_line(std::string_view line, const std::string& path, int64_t number) {
  const Json json = config::parse_json_at(number, line, path, {.bytes = kLineBytesMax});
  const Json* text = json.is_string() ? &json : json.find("text");
  if (text == nullptr || !text->is_string()) {
    throw bad_input(fmt::format("{}:{}", path, number),
                    "neither a string nor an object with \"text\" (write one of them)");
  }
  return text->string();
}

void print_records(const std::string& path, TokenPrinter& printer) {
  text::LineReader lines(path, [&](int64_t line, int64_t bytes) {
    check_size(fmt::format("{}:{}", path, line), bytes, kLineBytesMax);
  });
  while (lines.next()) {
    if (lines.text().empty()) continue;
    printer.print(text_of_line(lines.text(), path, lines.number()));
  }
}

void print_data(const std::string& path, TokenPrinter& printer) {
  for (const std::string& file : text::text_files_of(path)) {
    if (file.ends_with(".jsonl"))
      print_records(file, printer);
    else
      printer.print(text::read_text_file(file, kTextBytesMax));
  }
}

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
    for (const std::string& path : options.data) print_data(path, printer);
  printer.finish();
  return 0;
}

}  // namespace strata::cli
