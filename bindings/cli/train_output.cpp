// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/train_output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "engine/base/clock.h"
#include "engine/base/log.h"

namespace strata::cli {
namespace {

bool print_to(std::FILE* stream, const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stream) == text.size() &&
         std::fflush(stream) == 0;
}

int terminal_columns(int descriptor) {
  struct winsize size = {};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

void TrainOutput::print(const std::string& text) {
  if (lost_ || text.empty()) return;
  if (print_to(json_ ? stderr : stdout, text)) return;
  lost_ = true;
  log(LogLevel::kWarning,
      fmt::format("progress: standard {} is gone ({}); the run continues, and metrics.jsonl has "
                  "every step",
                  json_ ? "error" : "output", std::strerror(errno)));
}

void TrainOutput::conclude(const std::string& text, const config::Json& json) {
  const bool told =
      json_ ? print_to(stdout, json.dump(2) + "\n") : !lost_ && print_to(stdout, text);
  if (!told) print_to(stderr, text);
}

int TrainOutput::descriptor() const {
  return json_ ? STDERR_FILENO : STDOUT_FILENO;
}

Reporter::Reporter(TrainOutput& output, int64_t first_step, int64_t steps)
    : output_(output),
      progress_({.steps = steps,
                 .first_step = first_step,
                 .is_terminal = isatty(output.descriptor()) == 1,
                 .columns = terminal_columns(output.descriptor())}),
      work_(isatty(output.descriptor()) == 1) {}

void Reporter::step(const train::StepMetrics& step) {
  output_.print(progress_.step(step, now_s()));
}

void Reporter::evaluated(int64_t step, double loss) {
  output_.print(progress_.finish());
  output_.print(fmt::format("eval     step {}: held-out loss {:.4f}, perplexity {}\n", step, loss,
                            train::perplexity_text(loss, 2)));
}

void Reporter::work(std::string_view what, int64_t done, int64_t total) {
  const std::string text = work_.at(what, done, total, now_s());
  if (text.empty()) return;
  output_.print(progress_.finish());
  output_.print(text);
}

}  // namespace strata::cli
