// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace strata::cli {

// Sets the handler of the signals that ask a command to end in good order: SIGINT, SIGTERM, and
// SIGHUP, which comes when a terminal closes. Where SIGHUP is ignored (nohup) it stays so.
void on_stop_signals(void (*handler)(int signal));

// For such a handler: whether the signal asks anew. timeout(1) and others signal a process and then
// its group: the same signal again within a moment is the same request.
bool is_new_request(int signal);

}  // namespace strata::cli
