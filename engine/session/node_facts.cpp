// SPDX-License-Identifier: Apache-2.0
// What a rank finds on its machine, which ranks compare before a run.
#include <fmt/format.h>
#include <limits.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/config/limits.h"
#include "engine/exec/devices.h"
#include "engine/session/setup.h"
#include "engine/train/job.h"
#include "engine/train/run_plan.h"
#include "io/scratch_file.h"

namespace strata::session {

namespace {

// The least free memory of the GPUs that the ranks of this process use; 0 where they have none of
// their own.
int64_t free_bytes_of_device(const config::Options& options, const train::Job* job) {
  if (!config::is_gpu(options.device)) return 0;
  int64_t first = options.device_index, last = first;
  if (first < 0) {
    first = job == nullptr ? 0 : job->rank() % job->ranks_on_node();
    last = job == nullptr ? options.ranks - 1 : first;
  }
  const auto gpus = exec::require_gpu(options.plugin_path, last);
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t index = first; index <= last; ++index) {
    const int64_t free = exec::free_bytes_of_gpu(options.plugin_path, static_cast<int>(index));
    least = std::min(least, free);
    log(LogLevel::kInfo,
        fmt::format("device: {}:{}: {}; {} free",
                    config::row_of(config::kind_of(options.device)).name, index,
                    exec::text_of(gpus[static_cast<size_t>(index)]), format_bytes(free)));
  }
  return options.device == config::Device::kCuda ? least : 0;
}

// By what the device of a rank of this process can send those of others memory, where that matters;
// empty: it cannot.
std::string peers_of(const config::Options& options, const train::Job* job) {
  if (options.ranks == 1 || options.device_exchange == config::DeviceExchange::kHost) return "";
  if (options.device != config::Device::kCuda) return job == nullptr ? "this process" : "";
  std::string text;
  const bool has = exec::gpus_have_peers(options.plugin_path, text);
  // Ranks that share a GPU, and blocks of 8 bits, go through the host anyway.
  if (options.device_index < 0 && options.reduce_dtype != Payload::kMxInt8) {
    const char* by =
        has ? "device: GPUs of ranks exchange by " : "device: exchange through the host: ";
    log(LogLevel::kInfo, by + text);
  }
  return has ? text : "";
}

std::string processors_of_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return "";
  std::string text;
  for (int i = 0; i < CPU_SETSIZE; ++i) text += CPU_ISSET(i, &set) ? '1' : '0';
  return text.substr(0, text.rfind('1') + 1);
}

}  // namespace

train::NodeFacts read_node(const config::Options& options, const train::Job* job) {
  std::array<char, HOST_NAME_MAX + 1> host = {};
  gethostname(host.data(), host.size() - 1);
  train::RunFacts here;
  here.limits = config::read_limits();
  return {.host = host.data(),
          .processors = processors_of_process(),
          .limits = here.limits,
          .host_budget = train::host_budget_of(options, here),
          .host_is_share = options.host_memory == 0,
          .nvme_free_bytes = io::free_bytes_of(options.nvme),
          .device_free_bytes = free_bytes_of_device(options, job),
          .peers = peers_of(options, job)};
}

}  // namespace strata::session
