// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/train_stop.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

#include "bindings/cli/stop_signals.h"

namespace strata::cli {
namespace {

StopRequest request;  // with `answers`, all that the signal handler uses
std::atomic<bool> answers_signals = true;

// The answers by train::RunPhase.
constexpr std::string_view kAnswers[] = {
    "the state is being loaded; then the run ends, a new one after a step and its checkpoint",
    "the run finishes what it has begun, two steps at most, writes a checkpoint and ends",
    "the evaluation ends at its next batch, then the run ends with a checkpoint",
    "the run ends when its checkpoint is written",
    "all steps are done and checkpointed; the run ends when the model is exported",
};

void write_error_text(std::string_view text) {
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, text.data(), text.size());
}

// A closing terminal sends several SIGHUP, which are one request.
void on_stop_signal(int signal) {
  if (!is_new_request(signal)) return;
  if (!request.stop.exchange(true)) {
    if (!answers_signals) return;
    write_error_text("\nstop requested: ");
    write_error_text(kAnswers[static_cast<size_t>(request.phase.load())]);
    write_error_text(" (a second Ctrl-C or SIGTERM ends it at once)\n");
  } else if (signal != SIGHUP) {
    _exit(130);
  }
}

}  // namespace

StopRequest& handle_stop_signals(bool answers) {
  answers_signals = answers;
  on_stop_signals(on_stop_signal);
  return request;
}

}  // namespace strata::cli
