// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace strata::cli {

// Sets the handler of the signals that ask a command to end in good order: SIGINT, SIGTERM, and
// SIGHUP, which comes when a terminal closes. Where SIGHUP is ignored (nohup) it stays so.
void on_stop_signals(void (*handler)(int signal));

}  // namespace strata::cli
