// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "bindings/cli/commands.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/model/architecture.h"
#include "engine/model/model_writer.h"
#include "engine/train/bpe_trainer.h"

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
  if (at.hidden % at.heads != 0) {
    throw Error(ErrorCode::kConfig,
                fmt::format("hidden: {} is no multiple of --heads {}", at.hidden, at.heads));
  }
  at.head_size = at.hidden / at.heads;
  at.feed_forward =
      options.feed_forward > 0 ? options.feed_forward : round_up(ceil_div(at.hidden * 8, 3), 64);
  at.vocabulary = vocabulary;
  at.max_position = kMaxPosition;
  at.tied = options.tied;
  return at;
}

}  // namespace

// Everything is checked, and the tokenizer trained, before the directory appears.
int run_init(const config::Options& options) {
  if (std::filesystem::exists(options.out) && !options.force) {
    throw Error(ErrorCode::kConfig,
                "out: " + options.out + ": exists already (choose another, or add --force)");
  }
  model::validate(architecture_of(options, options.vocab_size), "options");
  train::BpeTrainOptions tokenizer;
  tokenizer.vocabulary_size = options.vocab_size;
  const std::string trained = options.out + ".tokenizer";
  std::filesystem::create_directories(trained);
  int64_t vocabulary = 0;
  try {
    vocabulary = train::train_tokenizer({options.data}, tokenizer, trained);
    const model::Architecture architecture = architecture_of(options, vocabulary);
    const DType dtype = options.recipe == config::Recipe::kFp32 ? DType::kF32 : DType::kBF16;
    model::init_model(architecture, static_cast<uint64_t>(options.seed),
                      {.path = options.out, .dtype = dtype});
    for (const auto& file : std::filesystem::directory_iterator(trained)) {
      std::filesystem::copy_file(file.path(), options.out / file.path().filename(),
                                 std::filesystem::copy_options::overwrite_existing);
    }
  } catch (...) {
    std::filesystem::remove_all(trained);
    throw;
  }
  std::filesystem::remove_all(trained);
  const model::ModelSpec spec = model::build_spec(architecture_of(options, vocabulary));
  std::printf("%s: %.2fM parameters with random weights, and a tokenizer of %lld tokens\n",
              options.out.c_str(), static_cast<double>(spec.parameter_count()) / 1e6,
              static_cast<long long>(vocabulary));
  return 0;
}

}  // namespace strata::cli
