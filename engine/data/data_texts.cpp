// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data_texts.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "engine/data/data_files.h"
#include "engine/data/data_paths.h"
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

}  // namespace

void for_each_record(const std::string& path, const RecordRules& rules, const UseRecord& use) {
  std::optional<RecordKind> kind;
  const auto use_item = [&](std::string_view item, int64_t line) {
    if (is_blank(item)) return true;
    const std::string where = fmt::format("{}:{}", path, line);
    if (!kind) kind = kind_of_first(parse_record(item, path, line), where, rules);
    use(item, line, *kind);
    return true;
  };
  for_each_item(
      path, [](int64_t, int64_t) {}, use_item);
  if (!kind) throw bad_data(path, "it has no record (write at least one line)");
}

void for_each_plain_text(const std::string& path, const RecordRules& rules, const UseText& use) {
  switch (kind_of_file(path)) {
    case FileKind::kTokens:
      throw bad_data(path, "it holds tokens, not text (give .txt, .md, .jsonl or .json files)");
    case FileKind::kText:
      refuse_records_in_text(path);
      return text::for_each_text_block(path, use);
    case FileKind::kRecords:
      return for_each_record(path, rules,
                             [&](std::string_view item, int64_t line, RecordKind kind) {
                               Json json = rules.columns.renamed(parse_record(item, path, line));
                               const std::string where = fmt::format("{}:{}", path, line);
                               use_record(text_of_record(std::move(json), kind, where, rules), use);
                             });
  }
}

}  // namespace strata::data
