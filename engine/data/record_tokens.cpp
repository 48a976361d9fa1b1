// SPDX-License-Identifier: Apache-2.0
#include "engine/data/record_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/data/chat_words.h"
#include "engine/data/record_stream.h"
#include "engine/text/marked_text.h"
#include "engine/text/tokenizer.h"

namespace strata::data {

// Half of the memory for reading, of which each thread has its part.
int64_t rendering_bytes(const ReadOptions& options) {
  constexpr int64_t kLeast = 16 << 20;
  if (options.room_bytes == 0) return 0;
  const int64_t threads = std::max<int64_t>(1, options.threads.count_max);
  return std::max(kLeast, options.room_bytes / (2 * threads));
}

RecordTokenizer::RecordTokenizer(const text::Tokenizer& tokenizer, const ReadOptions& options,
                                 bool has_own_cache)
    : tokenizer_(tokenizer),
      options_(options),
      chats_(tokenizer.config(), options.chat_template, options.chat_date,
             rendering_bytes(options)),
      cache_(has_own_cache ? std::make_unique<text::TokenizerCache>() : nullptr) {}

void RecordTokenizer::record(std::string_view item, const std::string& path, int64_t line,
                             RecordKind kind, TokenSink& sink) {
  if (is_blank(item)) return;
  Read record;
  try {
    record = read(item, path, line, kind);
  } catch (const Error& error) {
    if (!is_skipped(error, options_.rules)) throw;
    return sink.refuse_record(error.what());
  }
  write(record, fmt::format("{}:{}", path, line), sink);
}

// Bad records that are skipped show here, before the sink has anything of them.
RecordTokenizer::Read RecordTokenizer::read(std::string_view item, const std::string& path,
                                            int64_t line, RecordKind kind) {
  constexpr size_t kKeptBytes = 1 << 20;
  const std::string where = fmt::format("{}:{}", path, line);
  config::Json json = options_.rules.columns.renamed(parse_record(item, path, line));
  Read record = {text_of_record(std::move(json), kind, where, options_.rules), {}};
  if (!options_.rules.skips_bad || !record.text.chat || !record.text.has_lesson) return record;
  size_t bytes = 0;
  chats_.render(*record.text.chat, where, [&](const templates::MaskedChat& one) {
    bytes += one.text.size();
    if (bytes <= kKeptBytes) record.chats.push_back(one);
  });
  if (bytes > kKeptBytes) record.chats.clear();
  return record;
}

void RecordTokenizer::write(const Read& record, const std::string& where, TokenSink& sink) {
  const RecordText& text = record.text;
  sink.begin_record(text.has_lesson);
  if (!text.has_lesson) return sink.end_record({});  // else an end would be learned alone
  if (!text.chat) {
    document(text.parts, where, sink);
    return sink.end_record({});
  }
  ChatTrouble trouble;
  ChatWords words(*text.chat);
  const auto take = [&](const templates::MaskedChat& one) {
    words.look_in(one.text);
    trouble.leaves_prompt = trouble.leaves_prompt || one.leaves_prompt;
    chat(one, sink);
  };
  for (const templates::MaskedChat& one : record.chats) take(one);
  if (record.chats.empty()) chats_.render(*text.chat, where, take);
  trouble.loses_words = words.are_lost();
  sink.end_record(trouble);
}

void RecordTokenizer::text(std::string_view block, bool continues, TokenSink& sink) {
  bool is_tokenizing = true;
  part(block, true, continues, sink, is_tokenizing);
}

// A rendered chat is one text, as it is for apply_chat_template().
void RecordTokenizer::chat(const templates::MaskedChat& chat, TokenSink& sink) {
  sink.begin_document(true);
  text::encode_marked(tokenizer_, chat.text, chat.targets,
                      {.add_special = false, .cache = cache_.get()},
                      [&](const std::vector<int32_t>& ids, bool is_target) {
                        sink.begin_part(is_target);
                        sink.ids(ids);
                      });
  sink.end_document();
}

// A prompt and its completion are two texts, since the model will get a prompt alone.
void RecordTokenizer::document(const std::vector<TextPart>& parts, const std::string& where,
                               TokenSink& sink) {
  sink.begin_document(false);
  bool is_tokenizing = true;
  try {
    for (const TextPart& one : parts)
      part(one.text, one.is_target, &one != &parts.front(), sink, is_tokenizing);
  } catch (const Error& error) {
    if (!is_tokenizing || error.code() != ErrorCode::kConfig) throw;
    throw Error(ErrorCode::kConfig, fmt::format("read data: {}: {}", where, error.what()));
  }
  sink.end_document();
}

// `is_tokenizing` is false while the sink takes ids.
void RecordTokenizer::part(std::string_view text, bool is_target, bool continues, TokenSink& sink,
                           bool& is_tokenizing) {
  sink.begin_part(is_target);
  tokenizer_.encode(text, {.add_special = false, .continues = continues, .cache = cache_.get()},
                    [&](const std::vector<int32_t>& ids) {
                      is_tokenizing = false;
                      sink.ids(ids);
                      is_tokenizing = true;
                    });
}

}  // namespace strata::data
