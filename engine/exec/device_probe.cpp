// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/device_probe.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/units.h"
#include "engine/memory/arena.h"

namespace strata::exec {
namespace {

constexpr int64_t kHostBytes = 64 * kMiB;
constexpr int64_t kDeviceBytes = 288 * kMiB;
constexpr int64_t kProductSizeMin = 128;
constexpr int64_t kProductSizeMax = 4096;

// A queue, and memory on both sides.
class Bench {
 public:
  explicit Bench(kernels::Device& device)
      : device_(device),
        host_(kHostBytes),
        pinned_(device.pin(host_.data(), kHostBytes)),
        memory_(device.allocate(kDeviceBytes)),
        queue_(device.make_queue("probe", 4)) {}

  std::byte* host() const { return host_.data(); }
  std::byte* device() const { return memory_->data(); }

  // The device's seconds for one op.
  double once(const std::function<void(kernels::Queue&)>& issue) {
    const kernels::MemoryRange ranges[] = {{host(), kHostBytes, true},
                                           {device(), kDeviceBytes, true}};
    queue_->begin("probe", ranges);
    issue(*queue_);
    const int64_t count = queue_->end();
    while (queue_->completed() < count) queue_->sleep(count, 1.0);
    const kernels::Queue::Span span = queue_->span_of(count);
    return std::max(1e-9, span.end_s - span.begin_s);
  }

  // The median of rounds for `seconds`, at least three, after one that warms up.
  double seconds_of(const std::function<void(kernels::Queue&)>& issue, double seconds) {
    once(issue);
    std::vector<double> times;
    const double end_s = now_s() + seconds;
    while (times.size() < 3 || now_s() < end_s) times.push_back(once(issue));
    const auto middle = times.begin() + std::ssize(times) / 2;
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

  double copy_rate(std::byte* to, const std::byte* from, double seconds) {
    return static_cast<double>(kHostBytes) /
           seconds_of([&](auto& queue) { queue.copy(to, from, kHostBytes); }, seconds);
  }

  // Operations a second of the product of two square matrices, whose size is doubled until it takes
  // a while: small ones do not fill the device.
  double product_rate(DType weights, double seconds) {
    for (int64_t size = kProductSizeMin;; size *= 2) {
      const kernels::MatMulForward op = product_of(size, weights);
      const auto issue = [&](auto& queue) { device_.ops().matmul_forward(queue, op); };
      const bool is_large = size == kProductSizeMax || once(issue) > seconds / 20;
      const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size * size);
      if (is_large) return flops / seconds_of(issue, seconds);
    }
  }

 private:
  kernels::MatMulForward product_of(int64_t size, DType weights) const {
    const int64_t bytes = size * size * bytes_of(weights);
    const DType interior = device_.description().interior;
    kernels::MatMulForward op = {.dtype = weights, .rows = size, .outputs = size, .inputs = size};
    op.x = {device(), interior};
    op.w = device() + bytes;
    op.y = {device() + 2 * bytes, interior};
    op.workspace = {device() + 3 * bytes, workspace_bytes(op, device_.description())};
    return op;
  }

  kernels::Device& device_;
  const memory::Arena host_;
  const std::unique_ptr<kernels::PinnedMemory> pinned_;
  const std::unique_ptr<kernels::DeviceMemory> memory_;
  const std::unique_ptr<kernels::Queue> queue_;
};

}  // namespace

DeviceFigures probe_device(kernels::Device& device, DType weights, double seconds) {
  Bench bench(device);
  const double part_s = seconds / 4;
  DeviceFigures figures;
  figures.upload_bytes_per_s = bench.copy_rate(bench.device(), bench.host(), part_s);
  figures.download_bytes_per_s = bench.copy_rate(bench.host(), bench.device(), part_s);
  figures.memory_bytes_per_s =
      2 * bench.copy_rate(bench.device() + kHostBytes, bench.device(), part_s);
  figures.product_flops_per_s = bench.product_rate(weights, part_s);
  return figures;
}

void set_gpu(const ProbeOptions& options, double seconds, config::Machine& machine) {
  for (const DType weights : {DType::kF32, DType::kBF16}) {
    const auto device = options.open_gpu(weights);
    const DeviceFigures figures = probe_device(*device, weights, seconds / 2);
    const bool f32 = weights == DType::kF32;
    (f32 ? machine.matmul_flops_per_s : machine.matmul_bf16_flops_per_s) =
        figures.product_flops_per_s;
    machine.device_memory_bytes_per_s = figures.memory_bytes_per_s;
    machine.upload_bytes_per_s = figures.upload_bytes_per_s;
    machine.download_bytes_per_s = figures.download_bytes_per_s;
  }
  machine.device_bytes = options.gpu_bytes;
  machine.step_flops_per_s = machine.step_bf16_flops_per_s = 0;
}

}  // namespace strata::exec
