// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "bindings/cli/cache_directory.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/standard_input.h"
#include "bindings/cli/stop_signals.h"
#include "engine/base/clock.h"
#include "engine/session/generation.h"
#include "engine/session/model_use.h"
#include "engine/train/metrics.h"

namespace strata::cli {

namespace {

// Shows progress on standard error, on a line that the caller keeps.
train::WorkProgress shown_on(train::WorkLine& line) {
  return [&line](std::string_view what, int64_t done, int64_t total) {
    std::fputs(line.at(what, done, total, now_s()).c_str(), stderr);
  };
}

}  // namespace

int run_eval(const config::Options& options) {
  train::WorkLine line(isatty(STDERR_FILENO) == 1);
  const train::Inference::Loss loss =
      session::evaluate_model(options, cache_directory(), shown_on(line));
  if (options.json) {
    config::Json json = config::Json::object();
    json.set("loss", loss.mean);
    json.set("perplexity", std::exp(loss.mean));
    json.set("tokens", loss.tokens);
    std::puts(json.dump().c_str());
  } else {
    std::printf("loss %.6f, perplexity %s, over %lld tokens\n", loss.mean,
                train::perplexity_text(loss.mean, 3).c_str(), static_cast<long long>(loss.tokens));
  }
  return 0;
}

namespace {

constexpr int64_t kPromptBytesMax = 64 << 20;

std::atomic<bool> stop_generating = false;

// The second request ends the process.
void on_stop_generating(int signal) {
  if (is_new_request(signal) && stop_generating.exchange(true) && signal != SIGHUP) _exit(130);
}

// Prints texts in their order: the first that is not over as it grows, those behind it when their
// turn comes.
class TextPrinter {
 public:
  TextPrinter(const std::vector<session::Generation::Text>& texts, const config::Options& options)
      : texts_(texts), as_json_(options.json), is_chat_(options.chat), states_(texts.size()) {}

  void add(size_t text, const std::string& piece) {
    states_[text].text += piece;
    print();
  }
  void end(size_t text) {
    states_[text].is_over = true;
    print();
  }

 private:
  struct State {
    std::string text;  // without the prompt
    size_t printed = 0;
    bool is_begun = false;
    bool is_over = false;
  };

  void print() {
    for (; turn_ < states_.size(); ++turn_) {
      State& state = states_[turn_];
      if (!as_json_) print_more(state);
      if (!state.is_over) break;
      if (as_json_) print_json(state);
      std::fputs("\n", stdout);
    }
    std::fflush(stdout);
  }

  void print_more(State& state) {
    if (!state.is_begun) {
      if (texts_.size() > 1) std::printf("--- %zu of %zu ---\n", turn_ + 1, texts_.size());
      const std::string& prompt = texts_[turn_].prompt;
      if (!is_chat_) std::fwrite(prompt.data(), 1, prompt.size(), stdout);
      state.is_begun = true;
    }
    std::fwrite(state.text.data() + state.printed, 1, state.text.size() - state.printed, stdout);
    state.printed = state.text.size();
  }

  void print_json(const State& state) const {
    const session::Generation::Text& text = texts_[turn_];
    config::Json json = config::Json::object();
    json.set("prompt", text.prompt);
    json.set("text", is_chat_ ? state.text : text.prompt + state.text);
    json.set("new_tokens", text.new_tokens);
    json.set("end", session::name_of(text.end));
    std::fputs(json.dump().c_str(), stdout);
  }

  const std::vector<session::Generation::Text>& texts_;
  const bool as_json_;
  const bool is_chat_;  // answers are shown alone
  std::vector<State> states_;
  size_t turn_ = 0;
};

}  // namespace

int run_generate(const config::Options& given) {
  config::Options options = given;
  if (options.prompts.empty() && options.prompts_file.empty() && has_piped_input()) {
    options.prompts = {read_standard_input(kPromptBytesMax)};
    std::string& prompt = options.prompts.front();
    if (prompt.ends_with('\n')) prompt.resize(prompt.size() - (prompt.ends_with("\r\n") ? 2 : 1));
  }
  train::WorkLine line(isatty(STDERR_FILENO) == 1);
  on_stop_signals(on_stop_generating);
  session::Generation generation(options, shown_on(line));
  TextPrinter printer(generation.texts(), options);
  generation.run(
      {.on_piece = [&](size_t text, const std::string& piece) { printer.add(text, piece); },
       .on_end = [&](size_t text) { printer.end(text); },
       .stop = &stop_generating});
  return 0;
}

int run_export(const config::Options& options) {
  const session::Exported exported = session::export_model(options);
  if (options.json) {
    config::Json json = config::Json::object();
    json.set("model", options.out);
    json.set("step", exported.step);
    json.set("notes", config::Json::Array(exported.notes.begin(), exported.notes.end()));
    std::puts(json.dump().c_str());
  } else {
    std::printf("%s: exported step %lld\n", options.out.c_str(),
                static_cast<long long>(exported.step));
  }
  return 0;
}

}  // namespace strata::cli
