// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/command_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "bindings/cli/job_environment.h"
#include "bindings/cli/process_sinks.h"
#include "engine/base/environment.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/exec/devices.h"
#include "engine/session/resume.h"

namespace strata::cli {
namespace {

// The value of --io-deadline, which counts while the other options are read, too: some of them are
// in files. What is wrong with it is said later.
double deadline_in(const std::vector<std::string>& args) {
  constexpr std::string_view kName = "--io-deadline";
  double deadline_s = Sinks().hang_after_s;
  for (size_t i = 0; i < args.size(); ++i) {
    std::string_view value;
    if (args[i] == kName && i + 1 < args.size()) value = args[i + 1];
    if (args[i].starts_with(std::string(kName) + "="))
      value = std::string_view(args[i]).substr(kName.size() + 1);
    int64_t given = 0;
    const auto end = value.data() + value.size();
    const auto read = std::from_chars(value.data(), end, given);
    if (read.ec == std::errc() && read.ptr == end && given > 0)
      deadline_s = static_cast<double>(given);
  }
  return deadline_s;
}

// What --device auto is. A GPU where one works and has some memory free, and nothing says that
// it is not meant. Ranks decide each for itself, so they are told, and figures of a file are of its
// device. The libraries of GPUs are not loaded on a machine without a driver, because that takes a
// while.
config::Device find_gpu(const config::Options& options, const std::string& plugin_path) {
  constexpr int64_t kLeastFree = kGiB;
  const std::optional<StartedRank> started = rank_of_environment();
  const bool has_ranks = options.ranks > 1 || (started && started->ranks > 1);
  if (!options.machine.empty() || (started && started->rank > 0)) return config::Device::kAuto;
  const auto has = [](const char* path) { return access(path, F_OK) == 0; };
  const bool has_driver = has("/dev/nvidiactl") || has("/dev/dxg" /* WSL */) || has("/dev/nvmap");
  if (plugin_path.empty() && !has_driver) return config::Device::kAuto;
  std::string why;
  try {
    const std::vector<kernels::DeviceFacts> gpus = exec::list_gpus(plugin_path, why);
    if (!gpus.empty() && has_ranks) {
      why = "of several ranks each would need one (give --device cuda)";
    } else if (!gpus.empty()) {
      const int64_t free = exec::free_bytes_of_gpu(plugin_path, 0);
      if (free >= kLeastFree) {
        // Memory of its own is asked for by --device-memory.
        const bool is_one_tier = gpus[0].unified && options.device_memory == 0;
        return is_one_tier ? config::Device::kUnified : config::Device::kCuda;
      }
      why = fmt::format("{} of its memory are free", format_bytes(free));
    }
  } catch (const Error& error) {
    why = error.what();
  }
  log(LogLevel::kWarning, fmt::format("device: auto is the CPU and not the GPU: {}", why));
  return config::Device::kAuto;
}

}  // namespace

config::Options resolved_options(config::Command command, const std::vector<std::string>& args,
                                 bool prints, config::DeepspeedReport& report) {
  strata::Environment environment(process_sinks(deadline_in(args)));
  const strata::Environment::Scope scope(&environment);
  try {
    const bool trains = command == config::Command::kTrain;
    const auto of_run = [&](const config::Options& given) {
      return trains ? session::options_of_run(given) : session::model_of_run(command, given);
    };
    const char* path = std::getenv("STRATA_PLUGIN_PATH");
    const std::string plugin_path = path == nullptr ? "" : path;
    const auto gpu = [&](const config::Options& so_far) { return find_gpu(so_far, plugin_path); };
    config::Options options = config::resolve_command_line(command, args, &report, of_run, gpu);
    options.plugin_path = plugin_path;
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
