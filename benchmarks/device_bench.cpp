// SPDX-License-Identifier: Apache-2.0
// Figures of a device: copies over the link and within its memory, the memory-bound kernels as
// shares of its copy bandwidth, products, attention, the ops of generation. Times are the device's
// own, the median of rounds after a warm-up; operands are random.
//
//   device_bench FOLDER [SCALE]   FOLDER: of the plugin; "emulated": the emulated device. SCALE
//                                 divides the sizes (1)
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/memory/arena.h"
#include "kernels/buffers.h"
#include "kernels/device_plugin.h"
#include "kernels/emulated/device_emulated.h"

namespace strata {
namespace {

using kernels::MemoryRange;

constexpr int kRounds = 15;

// Places the buffers of ops one after the other, and times ops.
class Bench {
 public:
  Bench(kernels::Device& device, int64_t scale)
      : device_(device),
        scale_(scale),
        bytes_(int64_t{8} * (1 << 30) / scale),
        memory_(device.allocate(bytes_)),
        queue_(device.make_queue("bench", kRounds + 2)) {}

  int64_t scaled(int64_t size) const { return std::max<int64_t>(8, size / scale_ / 8 * 8); }
  std::byte* base() const { return memory_->data(); }
  kernels::Device& device() const { return device_; }

  void restart() { used_ = 0; }
  std::byte* take(int64_t bytes) {
    std::byte* taken = base() + used_;
    used_ += (bytes + 255) / 256 * 256;
    if (used_ > bytes_) throw Error(ErrorCode::kDoesNotFit, "device_bench: raise SCALE");
    return taken;
  }
  kernels::Interior half(int64_t count) { return {take(2 * count), DType::kBF16}; }
  float* floats(int64_t count) { return reinterpret_cast<float*>(take(4 * count)); }
  template <typename Op>
  void lend(Op& op) {
    op.workspace = {nullptr, workspace_bytes(op, device_.description())};
    op.workspace.data = take(op.workspace.bytes);
  }

  // Fills everything with values that are finite as f32 and as bf16.
  void randomize() {
    std::vector<uint32_t> values(size_t{1} << 20);
    const Philox random(1);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto bits = static_cast<uint32_t>(random.u64(i));
      values[i] = (bits & 0x807f807fu) | 0x3e803e80u;  // two of +-0.25 to 0.5
    }
    const auto size = static_cast<int64_t>(values.size()) * 4;
    run([&](kernels::Queue& queue) {
      for (int64_t at = 0; at + size <= bytes_; at += size) {
        queue.copy(base() + at, values.data(), size);
      }
    });
  }

  // The median time of what `issue` issues.
  double seconds(const std::function<void(kernels::Queue&)>& issue) {
    run(issue);
    std::vector<double> times;
    const int64_t first = closed_ + 1;
    for (int i = 0; i < kRounds; ++i) open_and_close([&] { issue(*queue_); });
    drain();
    for (int64_t count = first; count <= closed_; ++count) {
      const kernels::Queue::Span span = queue_->span_of(count);
      times.push_back(span.end_s - span.begin_s);
    }
    std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
    return std::max(1e-9, times[kRounds / 2]);
  }

  // Issues one op and waits for it.
  void run(const std::function<void(kernels::Queue&)>& issue) {
    open_and_close([&] { issue(*queue_); });
    drain();
  }

 private:
  template <typename Body>
  void open_and_close(const Body& body) {
    const MemoryRange everything[] = {{base(), bytes_, true}, {nullptr, INT64_MAX, true}};
    queue_->begin("bench", everything);
    body();
    closed_ = queue_->end();
  }
  void drain() {
    while (queue_->completed() < closed_) queue_->sleep(closed_, 1.0);
  }

  kernels::Device& device_;
  const int64_t scale_, bytes_;
  std::unique_ptr<kernels::DeviceMemory> memory_;
  std::unique_ptr<kernels::Queue> queue_;
  int64_t used_ = 0, closed_ = 0;
};

void print(const char* name, double amount, double seconds, const char* unit, double of = 0) {
  fmt::print("{:<32} {:>10.3f} ms {:>10.1f} {}", name, 1e3 * seconds, 1e-9 * amount / seconds,
             unit);
  if (of > 0) fmt::print("   {:.2f} of a copy", amount / seconds / of);
  fmt::print("\n");
  std::fflush(stdout);
}

// Returns the bandwidth of a copy within the device: bytes read and written.
double measure_copies(Bench& bench) {
  const int64_t bytes = bench.scaled(int64_t{1} << 30);
  const memory::Arena host(bytes);
  const auto pinned = bench.device().pin(host.data(), bytes);
  const double up_s =
      bench.seconds([&](kernels::Queue& q) { q.copy(bench.base(), host.data(), bytes); });
  const double down_s =
      bench.seconds([&](kernels::Queue& q) { q.copy(host.data(), bench.base(), bytes); });
  const double copy_s =
      bench.seconds([&](kernels::Queue& q) { q.copy(bench.base() + bytes, bench.base(), bytes); });
  const char* kind = pinned == nullptr ? "not pinned" : "pinned";
  print(fmt::format("host to device, {}", kind).c_str(), static_cast<double>(bytes), up_s, "GB/s");
  print(fmt::format("device to host, {}", kind).c_str(), static_cast<double>(bytes), down_s,
        "GB/s");
  print("copy within the device", 2.0 * static_cast<double>(bytes), copy_s, "GB/s");
  return 2.0 * static_cast<double>(bytes) / copy_s;
}

void measure_rows(Bench& bench, const kernels::DeviceOps& ops, double copy) {
  const int64_t rows = bench.scaled(16384), cols = bench.scaled(4096), count = rows * cols;
  const auto amount = [&](double bytes) { return bytes * static_cast<double>(count); };
  {
    bench.restart();
    const kernels::AddResidual op = {.dtype = DType::kBF16,
                                     .count = count,
                                     .x = bench.half(count).data,
                                     .a = bench.half(count),
                                     .y = bench.half(count).data};
    print("add residual", amount(6), bench.seconds([&](auto& q) { ops.add_residual(q, op); }),
          "GB/s", copy);
  }
  {
    bench.restart();
    const kernels::RmsNormForward op = {.dtype = DType::kBF16,
                                        .rows = rows,
                                        .cols = cols,
                                        .x = bench.half(count).data,
                                        .w = bench.half(cols).data,
                                        .y = bench.half(count),
                                        .rstd = bench.floats(rows)};
    print("rms norm forward", amount(4),
          bench.seconds([&](auto& q) { ops.rms_norm_forward(q, op); }), "GB/s", copy);
    kernels::RmsNormBackward back = {.dtype = DType::kBF16,
                                     .rows = rows,
                                     .cols = cols,
                                     .x = op.x,
                                     .w = op.w,
                                     .rstd = op.rstd,
                                     .dy = bench.half(count),
                                     .dres = bench.half(count).data,
                                     .dx = bench.half(count).data,
                                     .dw = bench.floats(cols)};
    bench.lend(back);
    print("rms norm backward", amount(8),
          bench.seconds([&](auto& q) { ops.rms_norm_backward(q, back); }), "GB/s", copy);
  }
  {
    bench.restart();
    const kernels::GluForward op = {.rows = rows,
                                    .cols = cols,
                                    .g = bench.half(count),
                                    .u = bench.half(count),
                                    .h = bench.half(count)};
    print("glu forward", amount(6), bench.seconds([&](auto& q) { ops.glu_forward(q, op); }), "GB/s",
          copy);
  }
  {
    bench.restart();
    const kernels::AdamW op = {.count = count,
                               .hi = static_cast<uint16_t*>(bench.half(count).data),
                               .lo = static_cast<uint16_t*>(bench.half(count).data),
                               .exp_avg = bench.floats(count),
                               .exp_avg_sq = bench.floats(count),
                               .grad = bench.floats(count)};
    print("adamw", amount(28), bench.seconds([&](auto& q) { ops.adamw(q, op); }), "GB/s", copy);
  }
}

void measure_products(Bench& bench, const kernels::DeviceOps& ops) {
  for (const int64_t size : {bench.scaled(4096), bench.scaled(8192)}) {
    bench.restart();
    kernels::MatMulForward op = {.dtype = DType::kBF16,
                                 .rows = size,
                                 .outputs = size,
                                 .inputs = size,
                                 .x = bench.half(size * size),
                                 .w = bench.half(size * size).data,
                                 .y = bench.half(size * size)};
    bench.lend(op);
    const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size * size);
    print(fmt::format("product {0}x{0}x{0} bf16", size).c_str(), flops,
          bench.seconds([&](auto& q) { ops.matmul_forward(q, op); }), "GFLOP/s");
  }
}

// Causal; 32 query heads over 8.
void measure_attention(Bench& bench, const kernels::DeviceOps& ops, int64_t batch, int64_t length,
                       int64_t size) {
  bench.restart();
  const int64_t heads = 32, kv_heads = 8, rows = batch * length;
  kernels::AttentionForward op = {.batch = batch,
                                  .length = length,
                                  .heads = heads,
                                  .kv_heads = kv_heads,
                                  .head_size = size,
                                  .scale = 0.09f,
                                  .q = bench.half(rows * heads * size),
                                  .k = bench.half(rows * kv_heads * size),
                                  .v = bench.half(rows * kv_heads * size),
                                  .o = bench.half(rows * heads * size),
                                  .lse = bench.floats(rows * heads)};
  kernels::AttentionBackward back = {.batch = batch,
                                     .length = length,
                                     .heads = heads,
                                     .kv_heads = kv_heads,
                                     .head_size = size,
                                     .scale = op.scale,
                                     .q = op.q,
                                     .k = op.k,
                                     .v = op.v,
                                     .o = op.o,
                                     .lse = op.lse,
                                     .d_o = bench.half(rows * heads * size),
                                     .dq = bench.half(rows * heads * size),
                                     .dk = bench.half(rows * kv_heads * size),
                                     .dv = bench.half(rows * kv_heads * size)};
  bench.lend(op);
  bench.lend(back);
  const double flops = 2.0 * static_cast<double>(batch * heads * size) *
                       static_cast<double>(length) * static_cast<double>(length);
  print(fmt::format("attention {}x{}x{}", batch, length, size).c_str(), flops,
        bench.seconds([&](auto& q) { ops.attention_forward(q, op); }), "GFLOP/s");
  print(fmt::format("attention backward {}x{}x{}", batch, length, size).c_str(), 2.5 * flops,
        bench.seconds([&](auto& q) { ops.attention_backward(q, back); }), "GFLOP/s");
}

// Products by row, of few tokens and of a prompt; one new token of each text over a long cache;
// 32 query heads over 8.
void measure_generation(Bench& bench, const kernels::DeviceOps& ops, double copy) {
  const int64_t inputs = bench.scaled(4096), outputs = bench.scaled(16384);
  const double weights = static_cast<double>(inputs * outputs);
  for (const int64_t rows : {int64_t{1}, int64_t{8}, int64_t{16}, bench.scaled(1024)}) {
    bench.restart();
    const kernels::MatMulForward op = {.dtype = DType::kBF16,
                                       .rows = rows,
                                       .outputs = outputs,
                                       .inputs = inputs,
                                       .x = bench.half(rows * inputs),
                                       .w = bench.half(outputs * inputs).data,
                                       .y = bench.half(rows * outputs),
                                       .by_row = true};
    const double seconds = bench.seconds([&](auto& q) { ops.matmul_forward(q, op); });
    const auto name = fmt::format("product by row, {} rows", rows);
    rows <= 16 ? print(name.c_str(), 2 * weights, seconds, "GB/s", copy)
               : print(name.c_str(), 2 * weights * static_cast<double>(rows), seconds, "GFLOP/s");
  }
  const int64_t length = bench.scaled(8192), size = 128, heads = 32, kv_heads = 8;
  for (const int64_t texts : {1, 16}) {
    bench.restart();
    std::vector<int32_t> row,
        position(static_cast<size_t>(texts), static_cast<int32_t>(length - 1));
    for (int32_t i = 0; i < texts; ++i) row.push_back(i);
    auto* rows = reinterpret_cast<int32_t*>(bench.take(4 * texts));
    auto* positions = reinterpret_cast<int32_t*>(bench.take(4 * texts));
    bench.run([&](auto& q) {
      q.copy(rows, row.data(), 4 * texts);
      q.copy(positions, position.data(), 4 * texts);
    });
    kernels::CachedAttention op = {.tokens = texts,
                                   .heads = heads,
                                   .kv_heads = kv_heads,
                                   .head_size = size,
                                   .rows = texts,
                                   .positions = (length + 63) / 64 * 64,
                                   .scale = 0.09f,
                                   .row = rows,
                                   .position = positions,
                                   .q = bench.half(texts * heads * size),
                                   .k = bench.half(texts * kv_heads * size),
                                   .v = bench.half(texts * kv_heads * size),
                                   .o = bench.half(texts * heads * size)};
    op.cache = {bench.take(cache_bytes(op, DType::kBF16)), DType::kBF16};
    bench.lend(op);
    print(fmt::format("attention over a cache, {} x {}", texts, length).c_str(),
          static_cast<double>(4 * texts * length * kv_heads * size),
          bench.seconds([&](auto& q) { ops.cached_attention(q, op); }), "GB/s", copy);
  }
}

void measure_others(Bench& bench, const kernels::DeviceOps& ops) {
  bench.restart();
  const int64_t count = bench.scaled(int64_t{1} << 28);
  kernels::SumSquares squares = {.count = count,
                                 .x = bench.floats(count),
                                 .out = reinterpret_cast<kernels::SquaresPartial*>(
                                     bench.take(sizeof(kernels::SquaresPartial)))};
  bench.lend(squares);
  print("sum of squares", 4.0 * static_cast<double>(count),
        bench.seconds([&](auto& q) { ops.sum_squares(q, squares); }), "GB/s");
  bench.restart();
  const int64_t rows = bench.scaled(8192), cols = bench.scaled(2048), vocabulary = 32000;
  std::vector<int32_t> tokens(static_cast<size_t>(rows));
  const Philox random(2);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(random.u64(i) % vocabulary);
  }
  auto* on_device = reinterpret_cast<int32_t*>(bench.take(4 * rows));
  const kernels::EmbeddingBackward embedding = {.dtype = DType::kBF16,
                                                .rows = rows,
                                                .cols = cols,
                                                .vocabulary = vocabulary,
                                                .tokens = on_device,
                                                .dy = bench.half(rows * cols).data,
                                                .dw = bench.floats(vocabulary * cols),
                                                .accumulate = true};
  bench.run([&](auto& q) { q.copy(on_device, tokens.data(), 4 * rows); });
  print("embedding backward", static_cast<double>(rows * cols) * 10,
        bench.seconds([&](auto& q) { ops.embedding_backward(q, embedding); }), "GB/s");
}

std::unique_ptr<kernels::Device> device_of(const std::string& folder) {
  if (folder == "emulated") {
    return kernels::make_emulated_device(kernels::ref_backend(), {.interior = DType::kBF16});
  }
  std::string why;
  const kernels::DevicePlugin* plugin =
      kernels::load_device_plugin(kernels::kCudaPlugin, {folder}, why);
  if (plugin == nullptr) throw Error(ErrorCode::kDevice, why);
  const auto devices = plugin->devices(why);
  if (devices.empty()) throw Error(ErrorCode::kDevice, why);
  fmt::print("{}, {:.1f} GB, {} processors, {}\n", devices[0].name,
             1e-9 * static_cast<double>(devices[0].memory_bytes), devices[0].processors,
             devices[0].software);
  return plugin->make({.interior = DType::kBF16});
}

int measure(const std::string& folder, int64_t scale) {
  const auto device = device_of(folder);
  Bench bench(*device, scale);
  bench.randomize();
  const double copy = measure_copies(bench);
  measure_rows(bench, device->ops(), copy);
  measure_others(bench, device->ops());
  measure_products(bench, device->ops());
  for (const int64_t size : {64, 128}) {
    measure_attention(bench, device->ops(), 1, bench.scaled(4096), size);
    measure_attention(bench, device->ops(), 8, bench.scaled(2048), size);
  }
  measure_generation(bench, device->ops(), copy);
  return 0;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fputs("usage: device_bench FOLDER-OF-THE-PLUGIN [SCALE]\n", stderr);
    return 2;
  }
  try {
    return strata::measure(argv[1], argc > 2 ? std::max(1L, std::atol(argv[2])) : 1);
  } catch (const strata::Error& error) {
    std::fprintf(stderr, "device_bench: %s\n", error.what());
    return error.exit_code();
  }
}
