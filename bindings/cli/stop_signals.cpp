// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/stop_signals.h"

#include <csignal>

namespace strata::cli {
namespace {

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP};

bool is_ignored(int signal) {
  struct sigaction now = {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

void on_stop_signals(void (*handler)(int signal)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  for (const int signal : kStopSignals) {
    if (signal == SIGHUP && is_ignored(signal)) continue;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace strata::cli
