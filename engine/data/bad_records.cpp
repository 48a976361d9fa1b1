// SPDX-License-Identifier: Apache-2.0
#include "engine/data/bad_records.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/data/chat_records.h"
#include "engine/data/data_files.h"
#include "engine/data/file_sinks.h"
#include "engine/data/record_stream.h"
#include "engine/data/record_tokens.h"
#include "engine/text/tokenizer.h"

namespace strata::data {
namespace {

constexpr int64_t kCountedMax = 20'000;
constexpr double kCountedForS = 2;

struct Counts {
  int64_t records = 0;
  LineNumbers bad;
  bool is_cut = false;   // there may be more
  bool can_skip = true;  // the mistakes are the records' own
};

// Throws Error for a record that is refused.
void check_record(std::string_view item, const std::string& path, int64_t line,
                  const RecordRules& rules, std::optional<RecordKind>& kind, ChatRecords& chats) {
  const std::string where = fmt::format("{}:{}", path, line);
  config::Json json = parse_record(item, path, line);
  if (!kind) kind = kind_of_first(json, where, rules);
  const RecordText record =
      text_of_record(rules.columns.renamed(std::move(json)), *kind, where, rules);
  if (record.chat && record.has_lesson)
    chats.render(*record.chat, where, [](const templates::MaskedChat&) {});
}

Counts count_bad(const std::string& path, const text::Tokenizer& tokenizer,
                 const ReadOptions& options) {
  ChatRecords chats(tokenizer.config(), options.chat_template, options.chat_date,
                    rendering_bytes(options));
  std::optional<RecordKind> kind;
  Counts counts;
  const double end_s = now_s() + kCountedForS;
  const auto count = [&](std::string_view item, int64_t line) {
    if (is_blank(item)) return true;
    try {
      check_record(item, path, line, options.rules, kind, chats);
    } catch (const Error& error) {
      counts.bad.add(line);
      counts.can_skip = counts.can_skip && is_skipped(error, {.skips_bad = true});
    }
    ++counts.records;
    counts.is_cut = counts.records == kCountedMax || now_s() > end_s;
    return !counts.is_cut;
  };
  const auto check_size = [&](int64_t, int64_t bytes) {
    if (options.room_bytes > 0 && bytes * kLineCopies > options.room_bytes)
      throw Error(ErrorCode::kConfig, "");  // ends the reading
  };
  try {
    for_each_item(path, check_size, count);
  } catch (const Error&) {  // no further record can be read
    counts.is_cut = true;
  }
  return counts;
}

}  // namespace

std::string bad_records_text(const std::vector<std::string>& files,
                             const text::Tokenizer& tokenizer, const ReadOptions& options) {
  for (const std::string& path : files) {
    if (kind_of_file(path) != FileKind::kRecords) continue;
    const Counts counts = count_bad(path, tokenizer, options);
    if (counts.bad.count() == 0) continue;
    const bool may_help = counts.can_skip && counts.bad.count() < counts.records;
    if (counts.bad.count() == 1) return may_help ? "--bad-records skip leaves it out" : "";
    return fmt::format("{} of {}{} records of {} are refused ({}{})", counts.bad.count(),
                       counts.is_cut ? "the first " : "", counts.records, path, counts.bad.text(),
                       may_help ? "; --bad-records skip leaves them out" : "");
  }
  return "";
}

}  // namespace strata::data
