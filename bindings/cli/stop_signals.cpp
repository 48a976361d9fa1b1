// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/stop_signals.h"

#include <time.h>

#include <atomic>
#include <csignal>
#include <cstdint>

namespace strata::cli {
namespace {

constexpr int64_t kMomentNs = 300'000'000;

std::atomic<int> first_signal = 0;
std::atomic<int64_t> first_ns = 0;

int64_t now_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

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

bool is_new_request(int signal) {
  if (first_signal == 0) first_ns = now_ns();
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) return true;
  return signal != first_signal || now_ns() - first_ns > kMomentNs;
}

}  // namespace strata::cli
