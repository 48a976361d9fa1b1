// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/config/options.h"
#include "engine/model_files/model_directory.h"
#include "engine/session/prompts.h"
#include "engine/text/tokenizer.h"
#include "engine/train/text_generator.h"
#include "engine/train/work_progress.h"

namespace strata::session {

// Why a text ended: the model wrote one of its end tokens, it has --max-new-tokens, the model wrote
// a text of --stop, the model has no further positions, or the caller stopped all.
enum class TextEnd : uint8_t { kEnd, kLength, kStop, kPositions, kInterrupted };
const char* name_of(TextEnd end);

// Continues the texts of --prompt or --prompts-file, or with --chat answers them, several at a time
// (--micro-batch), with a cache of keys and values whose memory is planned. What the model's
// generation_config.json says replaces defaults of options. A text has the same tokens whatever
// other texts there are, and wherever weights lie. Threads: one. Failure: Error, for all mistakes
// in the options at once; a prompt that is longer than the model's positions is one.
class Generation {
 public:
  struct Text {
    std::string prompt;
    int64_t new_tokens = 0;
    TextEnd end = TextEnd::kInterrupted;
  };
  struct Events {
    // A piece of whole characters that follows a text's prompt, or with --chat belongs to its
    // answer, and earlier pieces.
    std::function<void(size_t text, const std::string& piece)> on_piece;
    std::function<void(size_t text)> on_end;  // of a text, in any order
    const std::atomic<bool>* stop = nullptr;  // set by a signal: ends all texts soon
  };

  // `progress` hears of loading the weights, before the first piece of text.
  explicit Generation(const config::Options& options, train::WorkProgress progress = {});
  ~Generation();

  const std::vector<Text>& texts() const { return texts_; }
  void run(const Events& events);

 private:
  class Writer;

  void read_generation_config();
  void take_special_stops();
  void read_prompts();
  void make_ids();
  void set_positions();
  void run_phase(int64_t positions, const Events& events);

  config::Options options_;
  train::WorkProgress progress_;  // of the first weights; later there is text before
  std::unique_ptr<model::ModelDirectory> model_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::vector<int32_t> end_ids_;   // ascending
  std::vector<int32_t> stop_ids_;  // of special tokens in --stop
  std::vector<Prompt> prompts_;    // until they are texts
  int64_t prompt_bytes_ = 0;       // that these and their texts take
  std::vector<Text> texts_;
  std::vector<train::GrowingText> growing_;
  std::vector<Writer> writers_;
  int64_t positions_ = 0;  // of the longest text
};

}  // namespace strata::session
