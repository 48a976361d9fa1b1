// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/stop_signals.h"

#include <atomic>

#include "engine/base/clock.h"

namespace strata::cli {
namespace {

constexpr double kMomentS = 0.3;

std::atomic<int> first_signal = 0;
std::atomic<double> first_s = 0;
std::atomic<bool> was_warned = false;

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

bool is_new_request(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGXCPU)
    return !was_warned.exchange(true) && first_signal == 0;
  if (first_signal == 0) first_s = now_s();
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) return !was_warned;
  return now_s() - first_s > kMomentS;  // a session that ends sends several at once
}

}  // namespace strata::cli
