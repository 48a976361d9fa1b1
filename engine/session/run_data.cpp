// SPDX-License-Identifier: Apache-2.0
#include "engine/session/run_data.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/data/data_files.h"
#include "engine/data/data_key.h"
#include "engine/session/setup.h"

namespace strata::session {
namespace {

// Options about records have no effect on plain text and token files. Wrong names are a mistake;
// the others may come from a configuration that several runs share.
void require_no_records_meant(const config::Options& options) {
  constexpr const char* kWhy =
      "has no effect: plain text and files of tokens have no records (leave it out)";
  if (options.is_given("columns")) {
    throw Error(ErrorCode::kUsage, fmt::format("--columns {}", kWhy));
  }
  for (const char* name : {"train-on", "as-chats", "chat-template", "bad-records"}) {
    if (options.is_given(name)) log(LogLevel::kWarning, fmt::format("--{} {}", name, kWhy));
  }
}

bool has_cache(const config::Options& options, const std::string& cache_directory) {
  return options.data_cache.empty() ? !cache_directory.empty() : options.data_cache != "off";
}

data::CacheOptions cache_of(const config::Options& options, const std::string& cache_directory) {
  if (!has_cache(options, cache_directory)) return {};
  const bool is_given = !options.data_cache.empty();
  return {.directory = is_given ? options.data_cache : cache_directory + "/data",
          .is_given = is_given,
          .made_by = data::key_of_tokenizer(options.model)};
}

data::DataOptions data_options(const config::Options& options,
                               const model::Architecture& architecture,
                               const text::Tokenizer* tokenizer, const DataUse& use) {
  data::DataOptions data;
  data.length = options.sequence_length;
  data.vocabulary = architecture.vocabulary;
  data.keeps_tail = use.keeps_tail;
  data.chat_template = options.chat_template;
  data.chat_date = options.chat_date;
  data.columns = options.columns;
  STRATA_CHECK(options.samples != config::SampleLayout::kAuto);
  data.samples = options.samples;
  data.train_on = options.train_on;
  data.train_on_end = options.train_on_end;
  data.as_chats = options.as_chats;
  data.skips_bad_records = options.bad_records == config::BadRecords::kSkip;
  data.threads.count_max = use.limits.threads;
  data.cache = cache_of(options, use.cache_directory);
  if (use.limits.room_bytes > 0) {
    const int64_t taken = tokenizer ? tokenizer->bytes() : 0;
    data.room_bytes = std::max<int64_t>(1, use.limits.room_bytes - taken);
  }
  if (use.holds_out && options.eval_data.empty()) data.held_out_fraction = options.eval_fraction;
  if (use.holds_out) data.held_out_data = options.eval_data;
  return data;
}

}  // namespace

config::SampleLayout samples_of(const config::Options& options) {
  if (options.samples != config::SampleLayout::kAuto) return options.samples;
  std::vector<std::string> files;
  for (const data::DataItem& item : data::data_items(options.data)) {
    files.insert(files.end(), item.files.begin(), item.files.end());
  }
  return data::natural_layout(files,
                              {.columns = data::RecordColumns::parse(options.columns),
                               .skips_bad = options.bad_records == config::BadRecords::kSkip});
}

std::unique_ptr<data::Dataset> open_data(const config::Options& options,
                                         const model::Architecture& architecture,
                                         const text::Tokenizer* tokenizer, const DataUse& use) {
  if (tokenizer && tokenizer->vocabulary_size() > architecture.vocabulary) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("tokenizer: {}: has {} tokens, the model's embedding only {} (is it another "
                    "model's tokenizer? where tokens were added, Transformers' "
                    "resize_token_embeddings() makes room for them)",
                    options.model, tokenizer->vocabulary_size(), architecture.vocabulary));
  }
  require_positions(options, architecture);
  if (use.holds_out && options.eval_fraction == 0 && options.eval_data.empty()) {
    throw Error(ErrorCode::kConfig,
                "eval-fraction: 0: nothing is held out to evaluate on (give a part such as 0.05)");
  }
  const data::DataOptions data = data_options(options, architecture, tokenizer, use);
  auto opened = std::make_unique<data::Dataset>(data::Dataset::open(options.data, tokenizer, data));
  if (!opened->has_records()) require_no_records_meant(options);
  if (!opened->is_mixture() || options.shuffle) return opened;
  throw Error(ErrorCode::kUsage,
              "shuffle: off: data with weights is drawn in a random order (leave out --shuffle "
              "off, or the weights)");
}

int64_t data_bytes_for_refusal(const config::Options& options,
                               const model::Architecture& architecture, const DataUse& use) {
  constexpr int64_t kReadInSeconds = 64 * kMiB;
  const data::DataOptions data = data_options(options, architecture, nullptr, use);
  const int64_t text_bytes = data::bytes_of(options.data) + data::bytes_of(data.held_out_data);
  const bool may_be_kept =
      !data.cache.directory.empty() && text_bytes > data.cache.memory_text_bytes;
  if (text_bytes > kReadInSeconds || may_be_kept) {
    return data::Dataset::most_bytes(options.data, data);
  }
  const auto tokenizer = open_tokenizer(options, false);
  return open_data(options, architecture, tokenizer.get(), {.holds_out = use.holds_out})->bytes();
}

}  // namespace strata::session
