// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>

namespace strata::cli {

// The signals that ask a command to end in good order: Ctrl-C, SIGTERM, SIGHUP, which a closing
// terminal sends, and those by which schedulers warn.
inline constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

// Sets their handler. If SIGHUP is ignored (nohup), it stays ignored.
void on_stop_signals(void (*handler)(int signal));

// For such a handler: whether the signal is a new request. timeout(1) and others signal a process
// and then its group, so a signal within a moment is the same request. A scheduler that has
// warned sends SIGTERM next, which is the same request too.
bool is_new_request(int signal);

}  // namespace strata::cli
