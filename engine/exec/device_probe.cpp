// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/device_probe.h"

#include <algorithm>
#include <array>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/exec/compute_probe.h"
#include "engine/exec/op_timer.h"
#include "engine/exec/probe_values.h"
#include "io/bench_statistics.h"

namespace strata::exec {
namespace {

constexpr int64_t kHostBytes = 64 * kMiB;
constexpr int64_t kDeviceBytes = 288 * kMiB;
constexpr int64_t kProductSizeMin = 128;
constexpr int64_t kProductSizeMax = 4096;
constexpr int64_t kOperandBytes = kProductSizeMax * kProductSizeMax * 4;

// A timer, and memory on both sides.
class Bench {
 public:
  explicit Bench(kernels::Device& device)
      : device_(device), host_(device, kHostBytes), memory_(device, kDeviceBytes), timer_(device) {}

  std::byte* host() const { return host_.data(); }
  std::byte* device() const { return memory_.data(); }

  // Fills the operands of products.
  void fill(DType weights) {
    const ProbeValues interior(device_, device_.description().interior);
    const ProbeValues others(device_, weights);
    const kernels::MemoryRange ranges[] = {whole(), interior.range(), others.range()};
    queue_.begin("probe", ranges);
    interior.fill(queue_, device(), kOperandBytes);
    others.fill(queue_, device() + kOperandBytes, kOperandBytes);
    await(queue_, queue_.end());
  }

  double once(const OpTimer::Issue& issue) { return timer_.once("probe", ranges(), issue); }
  double seconds_of(const OpTimer::Issue& issue, double seconds) {
    return timer_.median("probe", ranges(), issue, seconds);
  }

  double copy_rate(std::byte* to, const std::byte* from, double seconds) {
    return static_cast<double>(kHostBytes) /
           seconds_of([&](auto& queue) { queue.copy(to, from, kHostBytes); }, seconds);
  }

  // Operations a second of the product of two square matrices.
  double product_rate(DType weights, double seconds) {
    const auto issue_of = [&](int64_t size) {
      return [this, op = product_of(size, weights)](kernels::Queue& queue) {
        device_.ops().matmul_forward(queue, op);
      };
    };
    const int64_t size =
        product_size([&](int64_t one) { return once(issue_of(one)); }, seconds / 20);
    const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size * size);
    return flops / seconds_of(issue_of(size), seconds);
  }

  // As in a run, the queue has several ops in flight.
  double op_time(double seconds) {
    constexpr int kOps = 256;
    std::vector<double> times;
    const double end_s = now_s() + seconds;
    run_small(kOps);  // warms up
    while (times.size() < 3 || now_s() < end_s) {
      const double begin_s = now_s();
      run_small(kOps);
      times.push_back((now_s() - begin_s) / kOps);
    }
    return io::median_of(times);
  }

 private:
  kernels::MemoryRange whole() const { return {device(), kDeviceBytes, true}; }

  std::array<kernels::MemoryRange, 2> ranges() const { return {host_.range(), whole()}; }

  void run_small(int ops) {
    const kernels::Fill op = {.count = 1, .y = {device(), DType::kF32}};
    int64_t count = 0;
    for (int i = 0; i < ops; ++i) {
      queue_.begin("probe", ranges());
      device_.ops().fill(queue_, op);
      count = queue_.end();
      await(queue_, count - OpTimer::kDepth + 1);
    }
    await(queue_, count);
  }

  kernels::MatMulForward product_of(int64_t size, DType weights) const {
    const DType interior = device_.description().interior;
    kernels::MatMulForward op = {.dtype = weights, .rows = size, .outputs = size, .inputs = size};
    op.x = {device(), interior};
    op.w = device() + kOperandBytes;
    op.y = {device() + 2 * kOperandBytes, interior};
    op.workspace = {device() + 3 * kOperandBytes, workspace_bytes(op, device_.description())};
    return op;
  }

  kernels::Device& device_;
  const PinnedBlock host_;
  const DeviceBlock memory_;
  OpTimer timer_;
  kernels::Queue& queue_ = timer_.queue();
};

}  // namespace

DeviceFigures probe_device(kernels::Device& device, DType weights, double seconds) {
  Bench bench(device);
  const double part_s = seconds / 5;
  DeviceFigures figures;
  figures.upload_bytes_per_s = bench.copy_rate(bench.device(), bench.host(), part_s);
  figures.download_bytes_per_s = bench.copy_rate(bench.host(), bench.device(), part_s);
  figures.memory_bytes_per_s =
      2 * bench.copy_rate(bench.device() + kHostBytes, bench.device(), part_s);
  bench.fill(weights);
  figures.product_flops_per_s = bench.product_rate(weights, part_s);
  figures.op_s = bench.op_time(part_s / 4);
  return figures;
}

int64_t product_size(const std::function<double(int64_t size)>& seconds_of, double enough_s,
                     int64_t most) {
  int64_t size = kProductSizeMin;
  for (; size < most; size *= 2) {
    (void)seconds_of(size);
    if (seconds_of(size) > enough_s) break;
  }
  return size;
}

namespace {

// The rate of a block in which attention and elementwise ops run between products, as on the host,
// but large enough to fill a GPU; 0: not measured.
double block_rate(kernels::Device& device, Recipe recipe, double product_flops_per_s) {
  constexpr BlockProbe kBlock = {
      .hidden = 2048, .feed_forward = 5632, .heads = 16, .kv_heads = 8, .shape = {2, 2048}};
  constexpr double kSlowFlopsPerS = 1e12;  // it would take seconds
  if (product_flops_per_s < kSlowFlopsPerS) return 0;
  try {
    return probe_block(kBlock, recipe, device);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDoesNotFit) throw;
    return 0;
  }
}

}  // namespace

void set_gpu(const ProbeOptions& options, double seconds, config::Machine& machine) {
  for (const DType weights : {DType::kF32, DType::kBF16}) {
    const auto device = options.open_gpu(weights);
    const DeviceFigures figures = probe_device(*device, weights, seconds / 2);
    const bool f32 = weights == DType::kF32;
    (f32 ? machine.matmul_flops_per_s : machine.matmul_bf16_flops_per_s) =
        figures.product_flops_per_s;
    (f32 ? machine.step_flops_per_s : machine.step_bf16_flops_per_s) =
        block_rate(*device, f32 ? Recipe::kFp32 : Recipe::kBf16, figures.product_flops_per_s);
    machine.device_memory_bytes_per_s = figures.memory_bytes_per_s;
    machine.upload_bytes_per_s = figures.upload_bytes_per_s;
    machine.download_bytes_per_s = figures.download_bytes_per_s;
    machine.device_op_overhead_s = figures.op_s;
  }
  machine.device_bytes = options.gpu_bytes;
}

}  // namespace strata::exec
