// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/command_options.h"

#include <cstdio>
#include <cstdlib>

#include "bindings/cli/process_sinks.h"
#include "engine/base/environment.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/session/resume.h"

namespace strata::cli {

config::Options resolved_options(config::Command command, const std::vector<std::string>& args,
                                 bool prints, config::DeepspeedReport& report) {
  strata::Environment environment(process_sinks(Sinks().hang_after_s));
  const strata::Environment::Scope scope(&environment);
  try {
    const bool trains = command == config::Command::kTrain;
    const auto of_run = [&](const config::Options& given) {
      return trains ? session::options_of_run(given) : session::model_of_run(command, given);
    };
    config::Options options = config::resolve_command_line(command, args, &report, of_run);
    if (const char* path = std::getenv("STRATA_PLUGIN_PATH")) options.plugin_path = path;
    if (!prints) return options;
    if (!report.wants_json) std::fputs(report.table.c_str(), stderr);
    for (const std::string& warning : options.warnings) log(LogLevel::kWarning, warning);
    return options;
  } catch (const Error&) {
    if (report.is_refusal && report.wants_json) {
      config::Json answer = config::Json::object();
      answer.set("deepspeed", report.lines);
      std::puts(answer.dump().c_str());
    } else if (report.is_refusal) {
      std::fputs(report.table.c_str(), stderr);
    }
    throw;
  }
}

}  // namespace strata::cli
