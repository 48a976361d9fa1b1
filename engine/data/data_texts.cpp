// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data_texts.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/data/data_files.h"
#include "engine/data/data_paths.h"
#include "engine/data/file_sinks.h"
#include "engine/data/record_stream.h"
#include "engine/text/text_files.h"

namespace strata::data {
namespace {

using config::Json;
using UseText = std::function<void(std::string_view)>;

// A message's content is a text or a list of parts.
void use_content(const Json& content, const UseText& use) {
  if (content.is_string()) use(content.string());
  if (!content.is_array()) return;
  for (const Json& part : content.items()) {
    const Json* text = part.find("text");
    if (text != nullptr && text->is_string()) use(text->string());
  }
}

void use_record(const RecordText& record, const UseText& use) {
  for (const TextPart& part : record.parts) use(part.text);
  if (!record.chat) return;
  for (const Json& message : record.chat->messages.items()) {
    if (const Json* content = message.find("content")) use_content(*content, use);
  }
}

void use_records(const std::string& path, const RecordRules& rules, const UseText& use) {
  RefusedRecords refused;
  int64_t others = 0;
  const auto refuse = [&](int64_t line, const std::string& cause) { refused.add(line, cause); };
  const auto take = [&](std::string_view item, int64_t line, RecordKind kind) {
    const std::string where = fmt::format("{}:{}", path, line);
    RecordText record;
    try {
      Json json = rules.columns.renamed(parse_record(item, path, line));
      record = text_of_record(std::move(json), kind, where, rules);
    } catch (const Error& error) {
      if (!is_skipped(error, rules)) throw;
      return refuse(line, error.what());
    }
    ++others;
    use_record(record, use);
  };
  for_each_record(path, rules, take, refuse);
  std::vector<std::string> warnings;
  refused.warn(path, others, warnings);
  for (const std::string& warning : warnings) log(LogLevel::kWarning, warning);
}

}  // namespace

void for_each_record(const std::string& path, const RecordRules& rules, const UseRecord& use,
                     const RefuseRecord& refuse) {
  std::optional<RecordKind> kind;
  bool is_empty = true;
  const auto use_item = [&](std::string_view item, int64_t line) {
    if (is_blank(item)) return true;
    is_empty = false;
    const std::string where = fmt::format("{}:{}", path, line);
    try {
      if (!kind) kind = kind_of_first(parse_record(item, path, line), where, rules);
    } catch (const Error& error) {
      if (!is_skipped(error, rules)) throw;
      refuse(line, error.what());
    }
    if (kind) use(item, line, *kind);
    return true;
  };
  for_each_item(
      path, [](int64_t, int64_t) {}, use_item);
  if (is_empty) throw bad_data(path, "it has no record (write at least one line)");
}

void for_each_plain_text(const std::string& path, const RecordRules& rules, const UseText& use) {
  switch (kind_of_file(path)) {
    case FileKind::kTokens:
      throw bad_data(path, "it holds tokens, not text (give .txt, .md, .jsonl or .json files)");
    case FileKind::kText:
      refuse_records_in_text(path);
      return text::for_each_text_block(path, use);
    case FileKind::kRecords:
      return use_records(path, rules, use);
  }
}

}  // namespace strata::data
