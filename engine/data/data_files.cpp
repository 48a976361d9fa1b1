// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/data/data_paths.h"
#include "engine/data/data_tokens.h"
#include "engine/data/record_stream.h"
#include "engine/text/text_files.h"

namespace strata::data {

FileKind kind_of_file(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".bin" || TokenSequence::is_llmc_file(path)) return FileKind::kTokens;
  if (text::is_text(extension)) return FileKind::kText;
  if (const char* why = text::why_not_read(extension)) throw bad_data(path, why);
  const bool is_json = extension == ".jsonl" || extension == ".json";
  return is_json || text::first_character(path) == '{' ? FileKind::kRecords : FileKind::kText;
}

void refuse_records_in_text(const std::string& path) {
  const Beginning beginning = beginning_of(path);
  if (beginning == Beginning::kText) return;
  if (beginning == Beginning::kJson) {
    return log(
        LogLevel::kWarning,
        fmt::format("data: {}: it begins with JSON, but {} files are read as plain text, its "
                    "names and marks too (rename it to .jsonl and give --columns, if its "
                    "values are what should be learned)",
                    path, std::filesystem::path(path).extension().string()));
  }
  throw bad_data(path,
                 fmt::format("its first line is a JSON record, but {} files are read as plain text "
                             "(rename it to .jsonl; to train on the JSON itself, give it as the "
                             "text of a {{\"text\": ...}} record)",
                             std::filesystem::path(path).extension().string()));
}

namespace {

// The kind of the first record that has one; of text, if none of the records before the first long
// one has.
RecordKind first_good_kind(const std::string& path, const RecordRules& rules) {
  constexpr int64_t kLong = 4 << 20;
  RecordKind found = RecordKind::kText;
  const auto look = [&](std::string_view item, int64_t line) {
    if (is_blank(item)) return true;
    try {
      found = kind_of_first(parse_record(item, path, line), path, rules);
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  const auto check_size = [&](int64_t, int64_t bytes) {
    if (bytes > kLong) throw Error(ErrorCode::kConfig, "");  // ends the reading
  };
  try {
    for_each_item(path, check_size, look);
  } catch (const Error&) {  // read_data() says what is wrong
  }
  return found;
}

}  // namespace

config::SampleLayout natural_layout(const std::vector<std::string>& files,
                                    const RecordRules& rules) {
  const auto has_prompts = [&](const std::string& path) {
    try {
      if (kind_of_file(path) != FileKind::kRecords) return false;
      config::Json record = config::Json::object();
      for (const std::string& name : first_members(path)) record.set(name, "");
      record = rules.columns.renamed(std::move(record));
      return kind_of_record(record, path, rules) != RecordKind::kText;
    } catch (const Error&) {
      return rules.skips_bad && first_good_kind(path, rules) != RecordKind::kText;
    }
  };
  return !files.empty() && std::ranges::all_of(files, has_prompts) ? config::SampleLayout::kPacked
                                                                   : config::SampleLayout::kStream;
}

}  // namespace strata::data
