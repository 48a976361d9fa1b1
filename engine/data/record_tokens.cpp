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
namespace {

// Half of the memory for reading, of which each thread has its part.
int64_t rendering_bytes(const ReadOptions& options) {
  constexpr int64_t kLeast = 16 << 20;
  if (options.room_bytes == 0) return 0;
  const int64_t threads = std::max<int64_t>(1, options.threads.count_max);
  return std::max(kLeast, options.room_bytes / (2 * threads));
}

}  // namespace

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
  RecordText record;
  try {
    record = read(item, path, line, kind);
  } catch (const Error& error) {
    if (!options_.rules.skips_bad || error.code() != ErrorCode::kConfig) throw;
    return sink.refuse_record(error.what());
  }
  write(record, fmt::format("{}:{}", path, line), sink);
}

// Bad records that are skipped show here, before the sink has anything of them.
RecordText RecordTokenizer::read(std::string_view item, const std::string& path, int64_t line,
                                 RecordKind kind) {
  const std::string where = fmt::format("{}:{}", path, line);
  config::Json json = options_.rules.columns.renamed(parse_record(item, path, line));
  RecordText record = text_of_record(std::move(json), kind, where, options_.rules);
  if (options_.rules.skips_bad && record.chat && record.has_lesson) {
    chats_.render(*record.chat, where, [](const templates::MaskedChat&) {});
  }
  return record;
}

void RecordTokenizer::write(const RecordText& record, const std::string& where, TokenSink& sink) {
  sink.begin_record(record.has_lesson);
  if (!record.has_lesson) return sink.end_record({});  // else an end would be learned alone
  ChatTrouble trouble;
  if (record.chat) {
    ChatWords words(*record.chat);
    chats_.render(*record.chat, where, [&](const templates::MaskedChat& one) {
      words.look_in(one.text);
      trouble.leaves_prompt = trouble.leaves_prompt || one.leaves_prompt;
      chat(one, sink);
    });
    trouble.loses_words = words.are_lost();
  } else {
    document(record.parts, sink);
  }
  sink.end_record(trouble);
}

void RecordTokenizer::text(std::string_view block, bool continues, TokenSink& sink) {
  part(block, true, continues, sink);
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
void RecordTokenizer::document(const std::vector<TextPart>& parts, TokenSink& sink) {
  sink.begin_document(false);
  for (const TextPart& one : parts) part(one.text, one.is_target, &one != &parts.front(), sink);
  sink.end_document();
}

void RecordTokenizer::part(std::string_view text, bool is_target, bool continues, TokenSink& sink) {
  sink.begin_part(is_target);
  tokenizer_.encode(text, {.add_special = false, .continues = continues, .cache = cache_.get()},
                    [&](const std::vector<int32_t>& ids) { sink.ids(ids); });
}

}  // namespace strata::data
