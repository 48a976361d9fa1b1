// SPDX-License-Identifier: Apache-2.0
#include "engine/session/generation.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/plural.h"
#include "engine/session/generation_config.h"
#include "engine/session/inference_setup.h"
#include "engine/session/prompts.h"
#include "engine/text/stop_strings.h"

namespace strata::session {
namespace {

constexpr int64_t kTextsAtATime = 16;
constexpr int64_t kPassTokens[] = {512, 128, 32};  // the most of a pass; less takes less memory

}  // namespace

const char* name_of(TextEnd end) {
  constexpr const char* kNames[] = {"end", "length", "stop", "positions", "interrupted"};
  return kNames[static_cast<size_t>(end)];
}

// The characters of one text's tokens.
class Generation::Writer {
 public:
  Writer(const text::Tokenizer& tokenizer, const std::vector<std::string>& stop)
      : decoder_(tokenizer), stop_(stop) {}

  // The piece that may be shown now.
  std::string push(int32_t token) { return stop_.push(decoder_.push(token)); }
  std::string finish() {
    std::string piece = stop_.push(decoder_.finish());
    return piece + stop_.finish();
  }
  bool is_stopped() const { return stop_.is_found(); }

 private:
  text::StreamDecoder decoder_;
  text::StopStrings stop_;
};

Generation::Generation(const config::Options& given, train::WorkProgress progress)
    : options_(with_named_checkpoint(given)), progress_(std::move(progress)) {
  config::Options& options = options_;
  options.ranks = options.tensor_ranks = options.context_ranks = options.pipeline_ranks = 1;
  options.accumulate = 1;
  Failures failures;
  model_ = collect_model(options, failures);
  if (model_) {
    failures.collect([&] {
      if (options.is_given("sequence-length")) require_positions(options, model_->architecture());
    });
    failures.collect([&] { tokenizer_ = open_tokenizer(options, true); });
  }
  if (model_ && tokenizer_) failures.collect([&] { read_generation_config(); });
  if (tokenizer_) failures.collect([&] { take_special_stops(); });
  failures.collect([&] { read_prompts(); });
  failures.collect([&] { train::require_built(options); });
  collect_device(options, failures);
  collect_files(options, failures);
  collect_drives(options, failures);
  failures.throw_if_any("cannot start");
  make_ids();
  set_positions();
  if (!options.is_given("micro-batch")) options.micro_batch = kTextsAtATime;
  options.micro_batch = std::min<int64_t>(options.micro_batch, std::ssize(texts_));
  malloc_trim(0);  // returns the memory that reading the tokenizer needed
}

Generation::~Generation() = default;

void Generation::read_generation_config() {
  const GenerationConfig file = session::read_generation_config(options_, model_->config(),
                                                                model_->architecture().vocabulary);
  const std::string notes = apply_generation_config(file, tokenizer_->eos_id(), options_);
  if (!notes.empty()) log(LogLevel::kInfo, "generate: " + notes);
  end_ids_ = end_ids_of(file, tokenizer_->eos_id());
}

// Special tokens are no part of the text, so that one of them stops as a token.
void Generation::take_special_stops() {
  std::erase_if(options_.stop, [&](const std::string& stop) {
    const std::vector<int32_t> ids = tokenizer_->encode(stop, {.add_special = false});
    const auto special =
        std::ranges::find_if(ids, [&](int32_t id) { return tokenizer_->is_special(id); });
    if (special == ids.end()) return false;
    if (ids.size() > 1) {
      throw Error(
          ErrorCode::kUsage,
          fmt::format("stop: {}: it holds the special token {} and more, but special tokens "
                      "are no part of the text (give that token alone)",
                      stop, tokenizer_->piece_of(*special)));
    }
    stop_ids_.push_back(ids.front());
    return true;
  });
}

void Generation::read_prompts() {
  for (const std::string& text : options_.prompts) prompts_.push_back(prompt_of(text, options_));
  if (!options_.prompts_file.empty()) {
    prompts_ = session::read_prompts("prompts-file", options_.prompts_file, options_.chat, options_,
                                     train::host_budget_of(options_, inference_facts(options_)));
  }
  if (prompts_.empty()) prompts_.push_back(prompt_of("", options_));
  for (const Prompt& prompt : prompts_) prompt_bytes_ += held_bytes(prompt);
}

// An answer ends where the template would end it: at a token of its own, or at a text.
void Generation::make_ids() {
  PromptIds made = prompt_ids(prompts_, *tokenizer_, options_);
  if (made.answer_end_ids.size() == 1) {
    add_end_id(made.answer_end_ids.front(), end_ids_);
  } else if (!made.answer_end.empty()) {
    options_.stop.push_back(made.answer_end);
  }
  for (size_t i = 0; i < prompts_.size(); ++i) {
    texts_.push_back({std::move(prompts_[i].text)});
    growing_.push_back({.ids = std::move(made.ids[i]), .sequence = static_cast<int64_t>(i)});
    writers_.emplace_back(*tokenizer_, options_.stop);
  }
  prompts_.clear();
}

// A text has its prompt and all new tokens but the last, which no pass reads.
void Generation::set_positions() {
  const bool given = options_.is_given("sequence-length");
  const int64_t limit = given ? options_.sequence_length : model_->architecture().max_position;
  const char* of = given ? "--sequence-length" : "the model's positions,";
  int64_t longest = 0;
  for (size_t i = 0; i < growing_.size(); ++i) {
    const int64_t count = std::ssize(growing_[i].ids);
    longest = std::max(longest, count);
    if (count <= limit) continue;
    throw Error(ErrorCode::kConfig,
                fmt::format("prompt: {} of {}: {} are more than {} {} (shorten it)", i + 1,
                            growing_.size(), counted(count, "token"), of, limit));
  }
  const int64_t wanted = longest + options_.max_new_tokens - 1;
  positions_ = std::min(wanted, limit);
  if (wanted <= limit) return;
  log(LogLevel::kWarning,
      fmt::format("generate: a prompt of {} and {} new ones are more than {} {}: the text "
                  "ends there (shorten the prompt, or lower --max-new-tokens)",
                  counted(longest, "token"), options_.max_new_tokens, of, limit));
}

// longrope has other factors for texts within the original positions than for longer ones, so a
// text that grows beyond them begins again.
void Generation::run(const Events& events) {
  const model::Rope& rope = model_->architecture().rope;
  const bool has_two = rope.scaling == model::RopeScaling::kLongRope;
  if (has_two && positions_ > rope.original_max_position) {
    run_phase(rope.original_max_position, events);
  }
  run_phase(positions_, events);
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (growing_[i].is_over) continue;
    const bool is_full = std::ssize(growing_[i].ids) > positions_;
    texts_[i].end = is_full ? TextEnd::kPositions : TextEnd::kInterrupted;
    events.on_piece(i, writers_[i].finish());
    events.on_end(i);
  }
}

namespace {

// The plan with the most tokens a pass that fits.
train::RunPlan plan_passes(const config::Options& options, const model::ModelDirectory& model,
                           int64_t prompt_tokens, int64_t held_bytes) {
  train::RunFacts facts = inference_facts(options);
  for (size_t i = 0;; ++i) {
    facts.shape = model::BatchShape{
        .length = std::max(options.micro_batch, std::min(kPassTokens[i], prompt_tokens)),
        .cache_rows = options.micro_batch,
        .cache_positions = options.sequence_length};
    try {
      return inference_plan(options, model, facts, held_bytes);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDoesNotFit || i + 1 == std::size(kPassTokens)) throw;
    }
  }
}

}  // namespace

void Generation::run_phase(int64_t positions, const Events& events) {
  int64_t prompt_tokens = 0;
  for (const train::GrowingText& text : growing_) {
    const bool runs = !text.is_over && std::ssize(text.ids) <= positions;
    if (runs) prompt_tokens += std::ssize(text.ids);
  }
  if (prompt_tokens == 0 || (events.stop != nullptr && events.stop->load())) return;
  options_.sequence_length = positions;
  const train::RunPlan plan =
      plan_passes(options_, *model_, prompt_tokens, tokenizer_->bytes() + prompt_bytes_);
  train::Inference inference(plan, options_, *model_, options_.resume_checkpoint,
                             std::exchange(progress_, nullptr));
  train::TextGenerator generator(plan.ranks.front(), inference,
                                 {.temperature = options_.temperature,
                                  .top_k = options_.top_k,
                                  .top_p = options_.top_p,
                                  .seed = static_cast<uint64_t>(options_.seed)});
  const auto end = [&](size_t i, TextEnd why) {
    texts_[i].end = why;
    events.on_piece(i, writers_[i].finish());
    events.on_end(i);
    return false;
  };
  const auto take = [&](size_t i, int32_t token) {
    if (std::ranges::binary_search(end_ids_, token)) return end(i, TextEnd::kEnd);
    if (std::ranges::count(stop_ids_, token) > 0) return end(i, TextEnd::kStop);
    ++texts_[i].new_tokens;
    events.on_piece(i, writers_[i].push(token));
    if (writers_[i].is_stopped()) return end(i, TextEnd::kStop);
    if (texts_[i].new_tokens == options_.max_new_tokens) end(i, TextEnd::kLength);
    return true;
  };
  const auto should_stop = [&] { return events.stop != nullptr && events.stop->load(); };
  generator.run(growing_, options_.max_new_tokens, {.on_token = take, .should_stop = should_stop});
}

}  // namespace strata::session
