// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace strata::cli {

// Sets the handler of the signals that ask a command to end in good order: SIGINT, SIGTERM, SIGHUP,
// which a closing terminal sends, and SIGUSR1, by which a scheduler warns. If SIGHUP is ignored
// (nohup), it stays ignored.
void on_stop_signals(void (*handler)(int signal));

// For such a handler: whether the signal is a new request. timeout(1) and others signal a process
// and then its group, so the same signal within a moment is the same request. A scheduler that has
// warned sends SIGTERM next, which is the same request too.
bool is_new_request(int signal);

}  // namespace strata::cli
