// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data_read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/config/json.h"
#include "engine/data/bad_records.h"
#include "engine/data/data_cache.h"
#include "engine/data/data_files.h"
#include "engine/data/data_key.h"
#include "engine/data/disk_full.h"
#include "engine/data/files_reader.h"
#include "engine/data/tokens_version.h"
#include "engine/text/tokenizer.h"

namespace strata::data {
int64_t ReadData::bytes() const {
  const int64_t buffers = kept_in.empty() ? 0 : kMiB;
  return tokens->bytes() + (starts ? starts->bytes() : 0) + (packing ? packing->bytes() : 0) +
         buffers;
}

int64_t ReadData::file_bytes() const {
  int64_t bytes = 0;
  const auto add = [&](const LongArray& array) {
    if (array.is_in_file()) bytes += array.count() * array.width();
  };
  add(tokens->ids());
  add(tokens->masks());
  if (starts) add(starts->array());
  if (packing) add(packing->order.array());
  if (packing) add(packing->row_starts.array());
  return bytes;
}

uint64_t ReadData::fingerprint() const {
  if (known_fingerprint) return *known_fingerprint;
  const uint64_t hash = tokens->fingerprint();
  return starts ? starts->array().checksum(hash, static_cast<uint64_t>(starts->size())) : hash;
}

namespace {

ReadData open_token_file(const std::string& name, const std::string& file,
                         const ReadOptions& options) {
  if (options.samples != config::SampleLayout::kStream) {
    throw bad_data(name, "a token file has no records (give --samples stream)");
  }
  ReadData data;
  data.files = {file};
  data.tokens = std::make_unique<TokenSequence>(TokenSequence::open_file(file, options.vocabulary));
  data.found = data.tokens->format();
  data.target_count = data.tokens->count();
  return data;
}

// Empty, and in memory.
ReadData make_data(const std::string& name, const ReadOptions& options) {
  ReadData data;
  data.tokens = std::make_unique<TokenSequence>(name, options.vocabulary);
  if (options.samples != config::SampleLayout::kStream) data.starts = std::make_unique<Numbers>();
  if (options.samples == config::SampleLayout::kPacked) data.packing = std::make_unique<Packing>();
  return data;
}

// This takes a minute for some GB.
void announce(const std::string& name, int64_t text_bytes, bool is_kept) {
  if (text_bytes <= kTextBytesInMemory) return;
  log(LogLevel::kInfo,
      fmt::format("data: {}: making tokens of {} of text{}", name, format_bytes(text_bytes),
                  is_kept ? ", which are kept for the next run" : ""));
}

void read_files(const std::vector<std::string>& files, const text::Tokenizer& tokenizer,
                const ReadOptions& options, ReadData& data) {
  try {
    FilesReader reader(tokenizer, options, data, files);
    for (const std::string& file : files) reader.read(file);
    reader.finish();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kConfig || options.rules.skips_bad) throw;
    const std::string others = bad_records_text(files, tokenizer, options);
    if (others.empty()) throw;
    throw Error(ErrorCode::kConfig, fmt::format("{}; {}", error.what(), others));
  }
}

// Everything that decides the tokens of these files. The names are all fields, so that a new one
// is not forgotten: room and threads decide nothing, and `columns` are those of the rules.
config::Json key_of(const std::vector<std::string>& files, const ReadOptions& options) {
  using config::Json;
  const auto& [vocabulary, length, room_bytes, chat_template, chat_date, samples, rules, learns_end,
               threads, columns, cache] = options;
  const auto& [by_rule, train_on, as_chats, skips_bad] = rules;
  Json key = Json::object();
  key.set("version", kTokensVersion);
  key.set("made_by", cache.made_by);
  key.set("files", key_of_files(files));
  key.set("vocabulary", vocabulary);
  key.set("length", length);
  key.set("samples", static_cast<int64_t>(samples));
  key.set("train_on", static_cast<int64_t>(train_on));
  key.set("learns_end", learns_end);
  key.set("as_chats", as_chats);
  if (skips_bad) key.set("skips_bad", true);
  key.set("columns", fmt::format("{}", fmt::join(columns, ",")));
  key.set("chat_template", chat_template);
  if (chat_template.ends_with(".jinja")) key.set("template", key_of_files({chat_template}));
  if (!chat_date.empty()) key.set("chat_date", chat_date);
  return key;
}

// Returns the tokens that the cache has, or else begins to write them, to `made`.
std::optional<ReadData> load_or_begin(DataCache& cache, const std::string& name,
                                      const std::vector<std::string>& files,
                                      const ReadOptions& options, ReadData& made) {
  auto found = cache.load(name, options.vocabulary);
  while (!found && !cache.is_locked()) {
    cache.lock(options.cache.patience_s);
    found = cache.load(name, options.vocabulary);
  }
  if (!found) cache.begin(made, bytes_of_files(files));
  return found;
}

// Fills what load_or_begin() has begun.
ReadData write_tokens(DataCache& cache, const config::Json& key, const std::string& name,
                      const std::vector<std::string>& files, const text::Tokenizer& tokenizer,
                      const ReadOptions& options, ReadData& made) {
  announce(name, bytes_of_files(files), true);
  read_files(files, tokenizer, options, made);
  if (key_of(files, options).dump() != key.dump()) {
    throw bad_data(name, "it was changed while it was read (start again when it is complete)");
  }
  cache.commit(made);
  auto found = cache.load(name, options.vocabulary);
  if (found) return std::move(*found);
  throw Error(ErrorCode::kCorrupt,
              fmt::format("read data: {}: the tokens that were written there are damaged (give "
                          "another disk by --data-cache DIR)",
                          cache.path()));
}

ReadData read_in_memory(const std::string& name, const std::vector<std::string>& files,
                        const text::Tokenizer& tokenizer, const ReadOptions& options) {
  announce(name, bytes_of_files(files), false);
  ReadData data = make_data(name, options);
  read_files(files, tokenizer, options, data);
  return data;
}

// Reads what is not kept on disk for this cause.
ReadData read_instead(const Error& cause, const std::string& name,
                      const std::vector<std::string>& files, const text::Tokenizer& tokenizer,
                      const ReadOptions& options) {
  log(LogLevel::kWarning,
      fmt::format("data: tokens cannot be kept on disk: {} (they are held in memory now; give "
                  "another directory by --data-cache DIR)",
                  cause.what()));
  try {
    return read_in_memory(name, files, tokenizer, options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDoesNotFit) throw;
    throw Error(
        ErrorCode::kDoesNotFit,
        fmt::format("{}; nor can they be held in memory: {} (free some space on that disk, or "
                    "give another by --data-cache DIR)",
                    cause.what(), error.what()));
  }
}

// Where nobody gave the directory, and it cannot be used or is on a full disk, tokens stay in
// memory.
ReadData read_texts(const std::string& name, const std::vector<std::string>& files,
                    const text::Tokenizer& tokenizer, const ReadOptions& options) {
  if (options.cache.directory.empty() || bytes_of_files(files) <= options.cache.memory_text_bytes) {
    return read_in_memory(name, files, tokenizer, options);
  }
  const config::Json key = key_of(files, options);
  ReadData made = make_data(name, options);
  std::unique_ptr<DataCache> cache;
  std::optional<ReadData> found;
  std::optional<Error> unusable;
  try {
    cache = std::make_unique<DataCache>(options.cache.directory, key);
    found = load_or_begin(*cache, name, files, options, made);
  } catch (const Error& error) {
    if (options.cache.is_given) throw;
    unusable = error;
  }
  try {
    if (!found && !unusable) {
      found = write_tokens(*cache, key, name, files, tokenizer, options, made);
    }
  } catch (const DiskFull& error) {
    if (options.cache.is_given) throw;
    unusable = error;
  }
  if (unusable) {
    made = {};
    cache.reset();  // removes what it has written
    return read_instead(*unusable, name, files, tokenizer, options);
  }
  found->files = files;
  return std::move(*found);
}

}  // namespace

ReadData read_data(const std::string& name, const std::vector<std::string>& files,
                   const text::Tokenizer* tokenizer, const ReadOptions& options) {
  if (files.size() == 1 && kind_of_file(files.front()) == FileKind::kTokens) {
    return open_token_file(name, files.front(), options);
  }
  if (tokenizer == nullptr) {
    throw bad_data(
        name,
        "text needs a tokenizer, and the model directory has no tokenizer.json or tokenizer.model "
        "(add one: Transformers' AutoTokenizer saves it with save_pretrained(); or give a token "
        "file)");
  }
  ReadData data = read_texts(name, files, *tokenizer, options);
  for (const std::string& warning : data.warnings) log(LogLevel::kWarning, warning);
  return data;
}

}  // namespace strata::data
