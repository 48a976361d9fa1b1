// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "bindings/cli/command_options.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/launcher.h"
#include "engine/base/error.h"

namespace strata::cli {

int run_launch(const config::Options& options, const std::vector<std::string>& command) {
  if (command.empty()) {
    throw Error(ErrorCode::kUsage,
                "launch: no command is given (strata launch --ranks 2 -- train ...)");
  }
  if (command[0] != "train") {
    throw Error(ErrorCode::kUsage, "launch: " + command[0] +
                                       ": does not run with several ranks (strata launch --ranks 2 "
                                       "-- train ...)");
  }
  for (const std::string& arg : command) {
    if (arg != "--ranks" && !arg.starts_with("--ranks=")) continue;
    throw Error(ErrorCode::kUsage,
                "ranks: is given to the command that is launched (give it to "
                "strata launch, ahead of --)");
  }
  std::vector<std::string> args = command;
  args.push_back("--ranks");
  args.push_back(std::to_string(options.ranks));
  // Mistakes are reported once, before any process is started.
  config::DeepspeedReport report;
  const config::Options all =
      resolved_options(config::Command::kTrain, {args.begin() + 1, args.end()}, false, report);
  if (all.help) {
    std::fputs(config::help_text(config::Command::kTrain).c_str(), stdout);
    return 0;
  }
  return Launcher(std::move(args), static_cast<int>(options.ranks)).run();
}

}  // namespace strata::cli
