// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/machine_probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <span>
#include <thread>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/config/limits.h"
#include "engine/exec/machine_probe_drives.h"
#include "engine/memory/arena.h"
#include "io/checksum.h"
#include "kernels/backend.h"
#include "kernels/parallel.h"

namespace strata::exec {
namespace {

// The median rate of `work` in units per second, from as many runs as fit in `seconds`, at least
// three. The first run is not counted: it finds caches and clocks cold.
template <typename Work>
double median_rate(double units, double seconds, const Work& work) {
  std::vector<double> rates;
  const double begin_s = now_s();
  while (rates.size() < 1000 && (rates.empty() || now_s() - begin_s < seconds)) {
    const double start_s = now_s();
    work();
    rates.push_back(units / std::max(1e-9, now_s() - start_s));
  }
  if (rates.size() > 3) rates.erase(rates.begin());
  std::nth_element(rates.begin(), rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2),
                   rates.end());
  return rates[rates.size() / 2];
}

// Consecutive typed parts of one arena.
class Parts {
 public:
  explicit Parts(const memory::Arena& arena) : arena_(arena) {}
  template <typename Element>
  Element* take(int64_t count) {
    const int64_t bytes = round_up(count * static_cast<int64_t>(sizeof(Element)), kPageBytes);
    auto* part = reinterpret_cast<Element*>(arena_.slot(offset_, bytes).data());
    offset_ += bytes;
    return part;
  }

 private:
  const memory::Arena& arena_;
  int64_t offset_ = 0;
};

// The three products of a linear layer, as a training step does them.
double matmul_rate(const ProbeOptions& options, const memory::Arena& arena, int64_t rows,
                   double seconds) {
  constexpr int64_t kOutputs = 2048;
  constexpr int64_t kInputs = 768;
  Parts parts(arena);
  float* x = parts.take<float>(rows * kInputs);
  float* y = parts.take<float>(rows * kOutputs);
  float* dx = parts.take<float>(rows * kInputs);
  float* w = parts.take<float>(kOutputs * kInputs);
  float* dw = parts.take<float>(kOutputs * kInputs);
  std::memset(arena.data(), 0, static_cast<size_t>(arena.bytes()));
  for (int64_t at = 0; at < rows * kInputs; ++at) x[at] = static_cast<float>(at % 7) - 3.0f;

  kernels::MatMulForward forward = {.dtype = options.weights,
                                    .rows = rows,
                                    .outputs = kOutputs,
                                    .inputs = kInputs,
                                    .x = x,
                                    .w = w,
                                    .y = y};
  kernels::MatMulInput input = {.dtype = options.weights,
                                .rows = rows,
                                .outputs = kOutputs,
                                .inputs = kInputs,
                                .dy = y,
                                .w = w,
                                .dx = dx};
  kernels::MatMulWeight weight = {
      .rows = rows, .outputs = kOutputs, .inputs = kInputs, .dy = y, .x = x, .dw = dw};
  const int64_t workspace_bytes = std::max({kernels::workspace_bytes(forward, options.threads),
                                            kernels::workspace_bytes(input, options.threads),
                                            kernels::workspace_bytes(weight, options.threads)});
  const memory::Arena scratch(workspace_bytes);
  forward.workspace = input.workspace = weight.workspace = {scratch.data(), scratch.bytes()};

  const kernels::Parallel parallel(options.threads);
  const kernels::Backend& backend = kernels::cpu_backend();
  return median_rate(6.0 * static_cast<double>(rows * kOutputs * kInputs), seconds, [&] {
    parallel.run([&] {
      backend.matmul_forward(forward);
      backend.matmul_input(input);
      backend.matmul_weight(weight);
    });
  });
}

// A middling number of rows, or few of them where the kernels are too slow for that.
double matmul_rate(const ProbeOptions& options, const memory::Arena& arena, double seconds) {
  constexpr int64_t kFewRows = 16;
  constexpr int64_t kRows = 512;
  const double start_s = now_s();
  const double few_rate = matmul_rate(options, arena, kFewRows, 0);
  const double predicted_s = (now_s() - start_s) * (kRows / kFewRows);
  return predicted_s > seconds * 8 ? few_rate : matmul_rate(options, arena, kRows, seconds);
}

// a = b + s * c with every thread on its own part, as STREAM's triad counts it.
double memory_rate(const ProbeOptions& options, const memory::Arena& arena, double seconds) {
  const int64_t count = arena.bytes() / 3 / 4096 * 1024;
  Parts parts(arena);
  float* a = parts.take<float>(count);
  const float* b = parts.take<float>(count);
  const float* c = parts.take<float>(count);
  const int64_t part = ceil_div(count, options.threads);
  const auto triad = [=](int index) {
    const int64_t end = std::min(count, (index + 1) * part);
    for (int64_t at = index * part; at < end; ++at) a[at] = b[at] + 0.5f * c[at];
  };
  return median_rate(12.0 * static_cast<double>(count), seconds, [&] {
    std::vector<std::jthread> others;
    for (int index = 1; index < options.threads; ++index) others.emplace_back(triad, index);
    triad(0);
  });
}

double optimizer_rate(const ProbeOptions& options, const memory::Arena& arena, double seconds) {
  constexpr int64_t kBytesHeld = 16;  // hi, lo, two moments and the gradient
  constexpr double kBytesMoved = 28;  // 16 read, 12 written
  const int64_t count = arena.bytes() / kBytesHeld / 4096 * 4096 - 4096;
  Parts parts(arena);
  kernels::AdamW op;
  op.count = count;
  op.hi = parts.take<uint16_t>(count);
  op.lo = parts.take<uint16_t>(count);
  op.exp_avg = parts.take<float>(count);
  op.exp_avg_sq = parts.take<float>(count);
  op.grad = parts.take<float>(count);
  std::memset(arena.data(), 0, static_cast<size_t>(arena.bytes()));
  op.scalars = kernels::adamw_scalars({.lr = 1e-4}, 1, 1.0);
  const kernels::Parallel parallel(options.threads);
  const kernels::Backend& backend = kernels::cpu_backend();
  return median_rate(kBytesMoved * static_cast<double>(count), seconds,
                     [&] { parallel.run([&] { backend.adamw(op); }); });
}

double checksum_rate(const memory::Arena& arena, double seconds) {
  constexpr int64_t kBlockBytes = 64 * kKiB;
  const int64_t blocks = arena.bytes() / kBlockBytes;
  uint64_t sum = 0;
  const double rate = median_rate(static_cast<double>(blocks * kBlockBytes), seconds, [&] {
    for (int64_t block = 0; block < blocks; ++block) {
      const uint64_t address = static_cast<uint64_t>(block * kBlockBytes);
      sum ^= io::checksum_block(arena.data() + address, kBlockBytes, 1, address);
    }
  });
  // The checksums are used, so that no compiler can leave them out.
  return sum == 1 ? rate + 1 : rate;
}

double copy_rate(const memory::Arena& arena, double seconds) {
  const size_t half = static_cast<size_t>(arena.bytes() / 2);
  return median_rate(static_cast<double>(half), seconds,
                     [&] { std::memcpy(arena.data(), arena.data() + half, half); });
}

void read_anew(const ProbeOptions& options, config::Machine& machine) {
  const config::Limits limits = config::read_limits();
  machine.cores = limits.cores;
  machine.host_bytes = limits.usable_bytes();
  machine.device_bytes = options.emulated_device_bytes;
}

std::string host_name() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace

config::Machine probe_machine(const ProbeOptions& options) {
  config::Machine machine;
  machine.name = host_name();
  read_anew(options, machine);
  if (!options.nvme.empty()) probe_drives(options, options.seconds / 2, machine);
  {
    const memory::Arena arena(std::max<int64_t>(32 * kMiB, options.bytes_max));
    const double share_s = options.seconds / 8;
    machine.matmul_flops_per_s = matmul_rate(options, arena, share_s);
    machine.memory_bytes_per_s = memory_rate(options, arena, share_s);
    machine.optimizer_bytes_per_s = optimizer_rate(options, arena, share_s);
    machine.checksum_bytes_per_s = checksum_rate(arena, share_s / 2);
    if (options.emulated_device_bytes > 0) {
      machine.device = config::DeviceKind::kEmulated;
      machine.device_memory_bytes_per_s = machine.memory_bytes_per_s;
      machine.upload_bytes_per_s = copy_rate(arena, share_s / 4);
      machine.download_bytes_per_s = machine.upload_bytes_per_s;
    }
  }
  return machine;
}

config::Machine cached_machine(const ProbeOptions& options, const std::string& directory,
                               const std::string& version) {
  std::string nvme = fmt::format("{} {} {} {}", options.threads, name_of(options.weights),
                                 static_cast<int>(options.io), options.emulated_device_bytes > 0);
  for (const std::string& path : options.nvme) nvme += "\n" + path;
  const std::string path = config::machine_cache_path(
      directory, {.host = host_name(), .nvme = nvme, .version = version});
  if (std::filesystem::exists(path)) {
    try {
      config::Machine machine = config::read_machine(path);
      read_anew(options, machine);
      return machine;
    } catch (const Error& error) {
      log(LogLevel::kWarning, fmt::format("measuring the machine again: {}", error.what()));
    }
  }
  const config::Machine machine = probe_machine(options);
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  try {
    config::write_machine(path, machine);
  } catch (const Error& error) {
    log(LogLevel::kWarning, fmt::format("the machine profile is not kept: {}", error.what()));
  }
  return machine;
}

}  // namespace strata::exec
