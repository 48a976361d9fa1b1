// SPDX-License-Identifier: Apache-2.0
// Rates of the cpu kernels beside a yardstick on the same machine in the same run:
//   products           against oneDNN's own threads on the whole product
//   AdamW, sum, add    against an in-place stream y += s*x by plain threads (12 bytes an element)
//   attention, norms   rate alone
//
// kernels_bench [--threads N] [--rounds N] [--json]
//
// Variants of a row alternate, each in a burst long enough that the other's idle threads have gone
// to sleep; the figures are medians over rounds.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/dtype.h"
#include "kernels/backend.h"
#include "kernels/cpu/product.h"
#include "kernels/parallel.h"

namespace {

using namespace strata;
using namespace strata::kernels;
using strata::kernels::cpu::LibraryProduct;

struct Options {
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  int rounds = 7;
  bool json = false;
};

struct Row {
  std::string name;
  std::string unit;
  double rate = 0.0;
  double yardstick = 0.0;  // 0: none
};

class Array {
 public:
  explicit Array(int64_t bytes) : data_(std::aligned_alloc(4096, rounded(bytes))) {
    float* values = floats();
    for (size_t i = 0; i < rounded(bytes) / 4; ++i) {
      values[i] = static_cast<float>((i * 2654435761u >> 16) & 1023u) / 1024.0f - 0.5f;
    }
  }
  ~Array() { std::free(data_); }
  Array(const Array&) = delete;
  float* floats() { return static_cast<float*>(data_); }
  uint16_t* halves() { return static_cast<uint16_t*>(data_); }
  Workspace lend(int64_t bytes) { return {static_cast<std::byte*>(data_), bytes}; }

 private:
  static size_t rounded(int64_t bytes) { return static_cast<size_t>((bytes + 8191) / 4096 * 4096); }
  void* data_;
};

// Median seconds of a call of each variant.
std::vector<double> measure(const std::vector<std::function<void()>>& variants, int rounds) {
  constexpr double kSettle_s = 0.004;
  constexpr double kBurst_s = 0.03;
  std::vector<std::vector<double>> seconds(variants.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < variants.size(); ++i) {
      for (const double begin = now_s(); now_s() - begin < kSettle_s;) variants[i]();
      const double begin = now_s();
      int calls = 0;
      do {
        variants[i]();
        ++calls;
      } while (now_s() - begin < kBurst_s);
      seconds[i].push_back((now_s() - begin) / calls);
    }
  }
  std::vector<double> medians;
  for (auto& one : seconds) {
    std::sort(one.begin(), one.end());
    medians.push_back(one[one.size() / 2]);
  }
  return medians;
}

struct Bench {
  Options options;
  Parallel parallel;
  std::vector<Row> rows;

  // All variants do `work`; the first is the yardstick when `yardstick`.
  void add(const std::vector<std::string>& names, const char* unit, double work, bool yardstick,
           const std::vector<std::function<void()>>& variants) {
    const auto seconds = measure(variants, options.rounds);
    for (size_t i = yardstick ? 1 : 0; i < variants.size(); ++i) {
      rows.push_back({names[i - (yardstick ? 1 : 0)], unit, work / seconds[i] * 1e-9,
                      yardstick ? work / seconds[0] * 1e-9 : 0.0});
      if (!options.json) print(rows.back());
    }
  }

  static void print(const Row& row) {
    if (row.yardstick > 0.0) {
      fmt::print("{:<44} {:>8.1f} {:<7} yardstick {:>8.1f}  ratio {:.2f}\n", row.name, row.rate,
                 row.unit, row.yardstick, row.rate / row.yardstick);
    } else {
      fmt::print("{:<44} {:>8.1f} {:<7}\n", row.name, row.rate, row.unit);
    }
    std::fflush(stdout);
  }
};

void bench_products(Bench& bench, int64_t m, int64_t n, int64_t k) {
  Array x(m * k * 4), w(n * k * 4), y(m * n * 4), dw(n * k * 4), halves(n * k * 2);
  for (int64_t i = 0; i < n * k; ++i) halves.halves()[i] = to_bf16(w.floats()[i]);
  MatMulForward forward = {
      .rows = m, .outputs = n, .inputs = k, .x = x.floats(), .w = w.floats(), .y = y.floats()};
  MatMulInput input = {
      .rows = m, .outputs = n, .inputs = k, .dy = y.floats(), .w = w.floats(), .dx = x.floats()};
  MatMulWeight weight = {
      .rows = m, .outputs = n, .inputs = k, .dy = y.floats(), .x = x.floats(), .dw = dw.floats()};
  const int threads = bench.options.threads;
  const int64_t bytes =
      std::max({workspace_bytes(forward, threads), workspace_bytes(input, threads),
                workspace_bytes(weight, threads)});
  Array scratch(bytes);
  forward.workspace = input.workspace = weight.workspace = scratch.lend(bytes);
  MatMulForward forward_bf16 = forward;
  forward_bf16.dtype = DType::kBF16;
  forward_bf16.w = halves.halves();
  MatMulInput input_bf16 = input;
  input_bf16.dtype = DType::kBF16;
  input_bf16.w = halves.halves();
  const Backend& backend = cpu_backend();
  const double work =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const auto name = [&](const char* what) { return fmt::format("{} {}x{}x{}", what, m, n, k); };

  LibraryProduct plain_forward({.m = m,
                                .n = n,
                                .k = k,
                                .a = x.floats(),
                                .lda = k,
                                .b = w.floats(),
                                .ldb = k,
                                .b_transposed = true,
                                .c = y.floats(),
                                .ldc = n},
                               threads);
  bench.add({name("forward f32"), name("forward bf16")}, "GFLOP/s", work, true,
            {[&] { plain_forward.run(); },
             [&] { bench.parallel.run([&] { backend.matmul_forward(forward); }); },
             [&] { bench.parallel.run([&] { backend.matmul_forward(forward_bf16); }); }});
  LibraryProduct plain_input({.m = m,
                              .n = k,
                              .k = n,
                              .a = y.floats(),
                              .lda = n,
                              .b = w.floats(),
                              .ldb = k,
                              .c = x.floats(),
                              .ldc = k},
                             threads);
  bench.add({name("input f32"), name("input bf16")}, "GFLOP/s", work, true,
            {[&] { plain_input.run(); },
             [&] { bench.parallel.run([&] { backend.matmul_input(input); }); },
             [&] { bench.parallel.run([&] { backend.matmul_input(input_bf16); }); }});
  LibraryProduct plain_weight({.m = n,
                               .n = k,
                               .k = m,
                               .a = y.floats(),
                               .lda = n,
                               .a_transposed = true,
                               .b = x.floats(),
                               .ldb = k,
                               .c = dw.floats(),
                               .ldc = k},
                              threads);
  bench.add({name("weight")}, "GFLOP/s", work, true,
            {[&] { plain_weight.run(); },
             [&] { bench.parallel.run([&] { backend.matmul_weight(weight); }); }});
}

void bench_attention(Bench& bench, int64_t batch, int64_t length, int64_t kv_heads) {
  constexpr int64_t kHeads = 12, kSize = 64;
  const int64_t q = batch * length * kHeads * kSize;
  const int64_t kv = batch * length * kv_heads * kSize;
  Array in(3 * q * 4), grads(2 * q * 4 + 2 * kv * 4), keys(2 * kv * 4),
      lse(batch * kHeads * length * 4);
  AttentionForward forward = {.batch = batch,
                              .length = length,
                              .heads = kHeads,
                              .kv_heads = kv_heads,
                              .head_size = kSize,
                              .scale = 0.125f,
                              .q = in.floats(),
                              .k = keys.floats(),
                              .v = keys.floats() + kv,
                              .o = in.floats() + q,
                              .lse = lse.floats()};
  AttentionBackward backward = {.batch = batch,
                                .length = length,
                                .heads = kHeads,
                                .kv_heads = kv_heads,
                                .head_size = kSize,
                                .scale = 0.125f,
                                .q = forward.q,
                                .k = forward.k,
                                .v = forward.v,
                                .o = forward.o,
                                .lse = forward.lse,
                                .d_o = in.floats() + 2 * q,
                                .dq = grads.floats(),
                                .dk = grads.floats() + q,
                                .dv = grads.floats() + q + kv};
  const int64_t bytes = std::max(workspace_bytes(forward, bench.options.threads),
                                 workspace_bytes(backward, bench.options.threads));
  Array scratch(bytes);
  forward.workspace = backward.workspace = scratch.lend(bytes);
  const double work =
      2.0 * static_cast<double>(batch * kHeads * length) * static_cast<double>(length * kSize);
  const auto name = [&](const char* what) {
    return fmt::format("{} {}x{} K{}", what, batch, length, kv_heads);
  };
  bench.add({name("attention forward")}, "GFLOP/s", work, false,
            {[&] { bench.parallel.run([&] { cpu_backend().attention_forward(forward); }); }});
  bench.add({name("attention backward")}, "GFLOP/s", 2.5 * work, false,
            {[&] { bench.parallel.run([&] { cpu_backend().attention_backward(backward); }); }});
}

void stream(float* y, const float* x, int64_t count) {
  constexpr int64_t kRun = 1024;  // a constant trip count, so that the loop becomes vectors
  for (int64_t begin = 0; begin < count; begin += kRun) {
    float* to = y + begin;
    const float* from = x + begin;
#ifndef __clang__
#pragma GCC ivdep
#endif
    for (int64_t i = 0; i < kRun; ++i) to[i] += 1e-9f * from[i];
  }
}

void bench_memory(Bench& bench) {
  constexpr int64_t kCount = int64_t{16} << 20;
  Array planes(kCount * 4), exp_avg(kCount * 4), exp_avg_sq(kCount * 4), grad(kCount * 4);
  for (int64_t i = 0; i < kCount; ++i) exp_avg_sq.floats()[i] *= exp_avg_sq.floats()[i];
  const int threads = bench.options.threads;
  const auto streams = [&] {
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t) {
      const int64_t part = kCount / threads / 1024 * 1024;
      workers.emplace_back(
          [&, part, t] { stream(planes.floats() + t * part, exp_avg.floats() + t * part, part); });
    }
    for (std::thread& worker : workers) worker.join();
  };
  const double count = static_cast<double>(kCount);
  bench.add({"stream y += s*x"}, "GB/s", 12.0 * count, false, {streams});

  AdamW op = {.count = kCount,
              .master = planes.floats(),
              .exp_avg = exp_avg.floats(),
              .exp_avg_sq = exp_avg_sq.floats(),
              .grad = grad.floats(),
              .scalars = adamw_scalars({.lr = 1e-6}, 10, 1.0)};
  AdamW split = op;
  split.master = nullptr;
  split.hi = planes.halves();
  split.lo = planes.halves() + kCount;
  SquaresPartial partial;
  SumSquares squares = {.count = kCount, .x = grad.floats(), .out = &partial};
  Array scratch(workspace_bytes(squares, threads));
  squares.workspace = scratch.lend(workspace_bytes(squares, threads));
  const Backend& backend = cpu_backend();
  const struct {
    const char* name;
    double bytes;
    std::function<void()> call;
  } kernels[] = {{"adamw master", 28.0, [&] { backend.adamw(op); }},
                 {"adamw hi+lo", 28.0, [&] { backend.adamw(split); }},
                 {"sum of squares", 4.0, [&] { backend.sum_squares(squares); }}};
  for (const auto& kernel : kernels) {
    const auto seconds =
        measure({streams, [&] { bench.parallel.run(kernel.call); }}, bench.options.rounds);
    bench.rows.push_back({kernel.name, "GB/s", kernel.bytes * count / seconds[1] * 1e-9,
                          12.0 * count / seconds[0] * 1e-9});
    if (!bench.options.json) Bench::print(bench.rows.back());
  }
}

void print_json(const std::vector<Row>& rows) {
  fmt::print("[");
  for (size_t i = 0; i < rows.size(); ++i) {
    fmt::print(
        "{}\n  {{\"name\": \"{}\", \"unit\": \"{}\", \"rate\": {:.3f}, \"yardstick\": {:.3f}}}",
        i == 0 ? "" : ",", rows[i].name, rows[i].unit, rows[i].rate, rows[i].yardstick);
  }
  fmt::print("\n]\n");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      options.json = true;
    } else if (i + 1 < argc && std::strcmp(argv[i], "--threads") == 0) {
      options.threads = std::atoi(argv[++i]);
    } else if (i + 1 < argc && std::strcmp(argv[i], "--rounds") == 0) {
      options.rounds = std::atoi(argv[++i]);
    } else {
      options.rounds = 0;
    }
  }
  if (options.threads < 1 || options.rounds < 1) {
    fmt::print(stderr, "usage: kernels_bench [--threads N] [--rounds N] [--json]\n");
    return 2;
  }
  Bench bench{options, Parallel(options.threads), {}};
  bench_memory(bench);
  for (const int64_t length : {128, 512}) bench_attention(bench, length == 128 ? 1 : 2, length, 4);
  bench_products(bench, 1024, 1024, 1024);
  for (const int64_t m : {128, 512, 1024}) {
    for (const int64_t n : {256, 768, 2048}) bench_products(bench, m, n, 768);
    bench_products(bench, m, 768, 2048);
  }
  bench_products(bench, 256, 32000, 768);
  if (options.json) print_json(bench.rows);
  return 0;
}
