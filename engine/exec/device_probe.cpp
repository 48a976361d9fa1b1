// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/device_probe.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/exec/compute_probe.h"
#include "engine/exec/probe_values.h"
#include "io/bench_statistics.h"

namespace strata::exec {
namespace {

constexpr int64_t kHostBytes = 64 * kMiB;
constexpr int64_t kDeviceBytes = 288 * kMiB;
constexpr int64_t kProductSizeMin = 128;
constexpr int64_t kProductSizeMax = 4096;
constexpr int64_t kOperandBytes = kProductSizeMax * kProductSizeMax * 4;
constexpr double kLongS = 2e-3;  // beside which the time of an op is little
constexpr double kRepeatsMax = 32;
constexpr int kDepth = 16;

// A queue, and memory on both sides.
class Bench {
 public:
  explicit Bench(kernels::Device& device)
      : device_(device),
        host_(device, kHostBytes),
        memory_(device.allocate(kDeviceBytes)),
        queue_(device.make_queue("probe", kDepth)),
        back_(device.make_queue("probe back", kDepth)) {}

  std::byte* host() const { return host_.data(); }
  std::byte* device() const { return memory_->data(); }

  // Fills the operands of products.
  void fill(DType weights) {
    const ProbeValues interior(device_, device_.description().interior);
    const ProbeValues others(device_, weights);
    const kernels::MemoryRange ranges[] = {whole(), interior.range(), others.range()};
    queue_->begin("probe", ranges);
    interior.fill(*queue_, device(), kOperandBytes);
    others.fill(*queue_, device() + kOperandBytes, kOperandBytes);
    await(queue_->end());
  }

  // The device's seconds for `times` issues in one op.
  double once(const std::function<void(kernels::Queue&)>& issue, int times = 1) {
    open();
    for (int i = 0; i < times; ++i) issue(*queue_);
    const int64_t count = queue_->end();
    await(count);
    const kernels::Queue::Span span = queue_->span_of(count);
    return std::max(1e-9, span.end_s - span.begin_s);
  }

  // The median of rounds for `seconds`, at least three, after two that warm up. Where one issue
  // takes little, a round is one op of several, so that the time that the op itself takes does not
  // count.
  double seconds_of(const std::function<void(kernels::Queue&)>& issue, double seconds) {
    once(issue);
    const double ratio = std::ceil(kLongS / once(issue));
    const int repeats = static_cast<int>(std::clamp(ratio, 1.0, kRepeatsMax));
    std::vector<double> times;
    const double end_s = now_s() + seconds;
    while (times.size() < 3 || now_s() < end_s) times.push_back(once(issue, repeats) / repeats);
    return io::median_of(times);
  }

  double copy_rate(std::byte* to, const std::byte* from, double seconds) {
    return static_cast<double>(kHostBytes) /
           seconds_of([&](auto& queue) { queue.copy(to, from, kHostBytes); }, seconds);
  }

  // Of copies in both directions at once, by the clock.
  double both_rate(double seconds) {
    constexpr int kCopies = 8;
    constexpr int64_t kHalf = kHostBytes / 2;
    const kernels::MemoryRange up[] = {{host(), kHalf, false}, {device(), kHalf, true}};
    const kernels::MemoryRange down[] = {{host() + kHalf, kHalf, true},
                                         {device() + kHalf, kHalf, false}};
    std::vector<double> times;
    const double end_s = now_s() + seconds;
    while (times.size() < 3 || now_s() < end_s) {
      const double begin_s = now_s();
      queue_->begin("probe", up);
      back_->begin("probe", down);
      for (int i = 0; i < kCopies; ++i) {
        queue_->copy(device(), host(), kHalf);
        back_->copy(host() + kHalf, device() + kHalf, kHalf);
      }
      const int64_t last = queue_->end(), last_back = back_->end();
      await(*queue_, last);
      await(*back_, last_back);
      times.push_back(now_s() - begin_s);
    }
    return 2.0 * kCopies * static_cast<double>(kHalf) / io::median_of(times);
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

  void open() {
    const kernels::MemoryRange ranges[] = {host_.range(), whole()};
    queue_->begin("probe", ranges);
  }

  void await(int64_t count) { await(*queue_, count); }
  static void await(kernels::Queue& queue, int64_t count) {
    while (queue.completed() < count) queue.sleep(count, 1.0);
  }

  void run_small(int ops) {
    const kernels::Fill op = {.count = 1, .y = {device(), DType::kF32}};
    int64_t count = 0;
    for (int i = 0; i < ops; ++i) {
      open();
      device_.ops().fill(*queue_, op);
      count = queue_->end();
      await(count - kDepth + 1);
    }
    await(count);
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
  const std::unique_ptr<kernels::DeviceMemory> memory_;
  const std::unique_ptr<kernels::Queue> queue_, back_;
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

LinkFigures probe_link(kernels::Device& device, double seconds) {
  Bench bench(device);
  const double part_s = seconds / 3;
  return {bench.copy_rate(bench.device(), bench.host(), part_s),
          bench.copy_rate(bench.host(), bench.device(), part_s), bench.both_rate(part_s)};
}

int64_t product_size(const std::function<double(int64_t size)>& seconds_of, double enough_s) {
  int64_t size = kProductSizeMin;
  for (; size < kProductSizeMax; size *= 2) {
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
