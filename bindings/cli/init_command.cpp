// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "bindings/cli/commands.h"
#include "bindings/cli/temporary_directory.h"
#include "engine/base/error.h"
#include "engine/base/failures.h"
#include "engine/base/units.h"
#include "engine/config/json.h"
#include "engine/data/data_paths.h"
#include "engine/data/data_texts.h"
#include "engine/model/architecture.h"
#include "engine/model_files/file.h"
#include "engine/model_files/model_writer.h"
#include "engine/text/bpe_trainer.h"

namespace strata::cli {
namespace {

constexpr int64_t kMaxPosition = 2048;

model::Architecture architecture_of(const config::Options& options, int64_t vocabulary) {
  model::Architecture at;
  at.model_type = "llama";
  at.hidden = options.hidden;
  at.layers = options.layers;
  at.heads = options.heads;
  at.kv_heads = options.kv_heads > 0 ? options.kv_heads : options.heads;
  at.head_size = at.hidden / at.heads;
  at.feed_forward =
      options.feed_forward > 0 ? options.feed_forward : round_up(ceil_div(at.hidden * 8, 3), 64);
  at.vocabulary = vocabulary;
  at.max_position = kMaxPosition;
  at.tied = options.tied;
  return at;
}

std::vector<model::NamedContents> files_in(const std::string& directory) {
  std::vector<model::NamedContents> all;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::ifstream file(entry.path(), std::ios::binary);
    all.push_back({entry.path().filename().string(),
                   {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}});
  }
  return all;
}

std::vector<data::DataItem> items_without_weights(const std::vector<std::string>& given) {
  std::vector<data::DataItem> items = data::data_items(given);
  for (const data::DataItem& item : items) {
    if (item.weight > 0) {
      throw data::bad_data(item.path,
                           "a tokenizer learns from all of its data (leave out the weight)");
    }
  }
  return items;
}

}  // namespace

// Checks everything and trains the tokenizer before it creates the model directory.
int run_init(const config::Options& options) {
  Failures failures;
  failures.collect([&] {
    model::require_may_replace(options.out, options.force);
    model::require_may_create(options.out, "model");
  });
  failures.collect(
      [&] { model::validate(architecture_of(options, options.vocab_size), "options"); });
  data::RecordRules rules;
  failures.collect([&] { rules.columns = data::RecordColumns::parse(options.columns); });
  rules.skips_bad = options.bad_records == config::BadRecords::kSkip;
  std::vector<data::DataItem> items;
  failures.collect([&] { items = items_without_weights(options.data); });
  failures.throw_if_any("cannot start");
  text::BpeTrainOptions tokenizer;
  tokenizer.vocabulary_size = options.vocab_size;
  const TemporaryDirectory trained("init");
  const auto give = [&](const std::function<void(std::string_view)>& take) {
    for (const data::DataItem& item : items) {
      for (const std::string& file : item.files) data::for_each_plain_text(file, rules, take);
    }
  };
  const int64_t vocabulary =
      text::train_tokenizer(options.data.front(), give, tokenizer, trained.path());
  const model::Architecture architecture = architecture_of(options, vocabulary);
  const DType dtype = weight_dtype(options.recipe);
  model::init_model(architecture, static_cast<uint64_t>(options.seed),
                    {.path = options.out, .dtype = dtype}, files_in(trained.path()));
  const model::ModelSpec spec = model::build_spec(architecture);
  if (options.json) {
    config::Json json = config::Json::object();
    json.set("model", options.out);
    json.set("parameters", spec.parameter_count());
    json.set("vocabulary_tokens", vocabulary);
    std::puts(json.dump().c_str());
    return 0;
  }
  std::printf(
      "%s: %s parameters with random weights, and a tokenizer of %lld tokens%s\n",
      options.out.c_str(), format_count(static_cast<double>(spec.parameter_count())).c_str(),
      static_cast<long long>(vocabulary),
      vocabulary < options.vocab_size ? ", as many as the text has repeated parts for" : "");
  return 0;
}

}  // namespace strata::cli
