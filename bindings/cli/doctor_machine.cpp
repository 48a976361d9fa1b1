// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/doctor_machine.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "bindings/cli/job_starters.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/limits.h"

namespace strata::cli {
namespace {

using Status = DoctorLine::Status;
using Lines = std::vector<DoctorLine>;

std::string read_whole(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::string all = text.str();
  while (!all.empty() && all.back() == '\n') all.pop_back();
  return all;
}

void check_cores(const config::Limits& limits, Lines& lines) {
  const int64_t online = std::max<int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN));
  const std::string text = fmt::format("{} of {} may be used", limits.cores, online);
  if (limits.cores == 1 && online > 1) {
    lines.push_back(
        {Status::kWarn, "cores", text,
         "raise the affinity or the cgroup's CPU quota: I/O and arithmetic share this core"});
  } else {
    lines.push_back({Status::kOk, "cores", text, ""});
  }
}

void check_instructions(Lines& lines) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const std::array<std::pair<const char*, bool>, 3> sets = {
      {{"avx2", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
       {"avx512", __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")},
       {"avx512_bf16", __builtin_cpu_supports("avx512bf16") != 0}}};
  std::string text;
  for (const auto& [name, present] : sets) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, present ? "yes" : "no");
  }
  if (sets[0].second) {
    if (!sets[2].second) text += "; bf16 weights are widened to fp32 for products";
    lines.push_back({Status::kOk, "instruction sets", text, ""});
  } else {
    lines.push_back(
        {Status::kWarn, "instruction sets", text,
         "use a processor with AVX2; in a virtual machine pass the host's CPU model on"});
  }
#else
  lines.push_back({Status::kOk, "instruction sets", "not an x86 processor", ""});
#endif
}

void check_memory(const config::Limits& limits, Lines& lines) {
  lines.push_back({Status::kOk, "memory",
                   fmt::format("{} of {} available", format_bytes(limits.memory_available_bytes),
                               format_bytes(limits.memory_total_bytes)),
                   ""});
  if (limits.cgroup_limit_bytes) {
    lines.push_back(
        {Status::kOk, "cgroup memory limit",
         fmt::format("{}, of which {} are free ({})", format_bytes(*limits.cgroup_limit_bytes),
                     format_bytes(*limits.cgroup_free_bytes), limits.cgroup_path),
         ""});
  } else {
    lines.push_back({Status::kOk, "cgroup memory limit", "none", ""});
  }
  if (limits.address_space_bytes) {
    lines.push_back(
        {Status::kWarn, "address space limit",
         fmt::format("RLIMIT_AS is {}", format_bytes(*limits.address_space_bytes)),
         "ulimit -v unlimited; limit the memory with --host-memory or a cgroup instead"});
  }
  constexpr int64_t kLittle = 512 * kMiB;
  if (limits.usable_bytes() < kLittle) {
    lines.push_back(
        {Status::kWarn, "usable memory",
         fmt::format("{}, by the {}", format_bytes(limits.usable_bytes()), limits.usable_reason()),
         "free memory or raise the limit: strata plan says what a model needs"});
  }
}

// Whether the process may lock more memory than RLIMIT_MEMLOCK (CAP_IPC_LOCK).
bool may_lock_anything(const std::string& root) {
  constexpr int kIpcLockBit = 14;
  const std::string status = read_whole(root + "/proc/self/status");
  const size_t at = status.find("CapEff:\t");
  if (at == std::string::npos) return false;
  uint64_t capabilities = 0;
  const char* start = status.data() + at + 8;
  std::from_chars(start, status.data() + status.size(), capabilities, 16);
  return (capabilities >> kIpcLockBit & 1) != 0;
}

// Each lane of a run registers all of its host memory with io_uring.
void check_memory_lock(const config::Limits& limits, const std::string& root, Lines& lines) {
  if (!limits.memlock_bytes) {
    lines.push_back({Status::kOk, "memory lock limit", "unlimited", ""});
    return;
  }
  const std::string text = fmt::format("RLIMIT_MEMLOCK is {}", format_bytes(*limits.memlock_bytes));
  if (may_lock_anything(root)) {
    lines.push_back({Status::kOk, "memory lock limit", text + ", and does not bind this user", ""});
  } else {
    lines.push_back({Status::kWarn, "memory lock limit",
                     text + "; a run whose I/O lanes together have more memory leaves it "
                            "unregistered with io_uring, at more CPU time",
                     kMemoryLockFix});
  }
}

void check_io_uring_switch(const std::string& root, Lines& lines) {
  const std::string value = read_whole(root + "/proc/sys/kernel/io_uring_disabled");
  if (value == "2" || (value == "1" && geteuid() != 0)) {
    lines.push_back(
        {Status::kWarn, "io_uring switch",
         fmt::format("kernel.io_uring_disabled is {}; I/O falls back to threads", value),
         "sysctl kernel.io_uring_disabled=0"});
  } else {
    lines.push_back(
        {Status::kOk, "io_uring switch",
         value.empty() ? "this kernel has no such switch" : "the kernel allows io_uring", ""});
  }
}

void check_huge_pages(const std::string& root, Lines& lines) {
  const std::string value = read_whole(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  if (value.find("[never]") != std::string::npos) {
    lines.push_back({Status::kWarn, "transparent huge pages", "never",
                     "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  } else {
    lines.push_back({Status::kOk, "transparent huge pages", value.empty() ? "unknown" : value, ""});
  }
}

void check_clock(const std::string& root, Lines& lines) {
  const std::string folder = root + "/sys/devices/system/clocksource/clocksource0/";
  const std::string source = read_whole(folder + "current_clocksource");
  if (source == "hpet" || source == "acpi_pm" || source == "jiffies") {
    lines.push_back({Status::kWarn, "clock", source + " is slow to read",
                     "boot with clocksource=tsc if the processor's TSC is reliable"});
  } else {
    lines.push_back({Status::kOk, "clock", source.empty() ? "unknown" : source, ""});
  }
}

void check_open_files(Lines& lines) {
  constexpr rlim_t kEnough = 1024;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const std::string text = limit.rlim_cur == RLIM_INFINITY
                               ? std::string("unlimited")
                               : fmt::format("RLIMIT_NOFILE is {}", limit.rlim_cur);
  const bool few = limit.rlim_cur < kEnough;
  lines.push_back(
      {few ? Status::kWarn : Status::kOk, "open files limit", text, few ? "ulimit -n 4096" : ""});
}

void check_ranks(const Environment& environment, Lines& lines) {
  DoctorLine line = {Status::kOk, "ranks from the environment", "none: one process", ""};
  try {
    if (const auto place = started_rank(environment, getppid())) {
      line.text = fmt::format("{}: rank {} of {}, {} on a machine", place->starter, place->rank,
                              place->ranks, place->ranks_on_node);
    }
  } catch (const Error& error) {
    const std::string what = error.what();
    const size_t fix = what.rfind(" (");
    line.status = Status::kFail;
    line.text = what.substr(0, fix);
    if (fix != std::string::npos) line.fix = what.substr(fix + 2, what.size() - fix - 3);
  }
  lines.push_back(line);
}

}  // namespace

std::vector<DoctorLine> check_machine(const Environment& environment, const std::string& root) {
  Lines lines;
  const config::Limits limits = config::read_limits(root);
  check_cores(limits, lines);
  check_instructions(lines);
  check_memory(limits, lines);
  check_memory_lock(limits, root, lines);
  check_open_files(lines);
  check_io_uring_switch(root, lines);
  check_huge_pages(root, lines);
  check_clock(root, lines);
  check_ranks(environment, lines);
  return lines;
}

}  // namespace strata::cli
