// SPDX-License-Identifier: Apache-2.0
// Products of the cpu backend equal the plain loops within rounding, for every orientation, weight
// type, stride, edge and accumulation, with the same bits for any thread count.
#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <thread>

#include "tests/kernels/kernel_case.h"

namespace strata::kernels {
namespace {

struct MatMulShape {
  int64_t m, n, k;
};

// One and few rows, odd sizes, sizes beyond one tile in each dimension, the widening depth of 1024;
// and what panels cut: inputs in two parts, outputs in three, rows in two.
constexpr MatMulShape kMatMulShapes[] = {
    {1, 1, 1},       {1, 997, 40},   {7, 40, 997},    {7, 96, 64},   {128, 256, 96},
    {130, 70, 33},   {300, 530, 17}, {33, 100, 1100}, {5, 1100, 48}, {64, 320, 2048},
    {255, 52, 1104}, {41, 1100, 48}, {201, 70, 1040}};

// What differs by the width of weights alone: a tail, panels, tiles, and widening in parts.
constexpr MatMulShape kF16Shapes[] = {{7, 40, 997}, {128, 256, 96}, {300, 530, 17}, {5, 40, 2100}};

// Sums of up to 2100 products of values below 1 in f32, against f64.
constexpr float kMatMulTolerance = 3e-6f;

std::string name_of_case(const char* op, MatMulShape s, DType dtype, bool accumulate) {
  return fmt::format("{} {}x{}x{} {}{}", op, s.m, s.n, s.k, name_of(dtype),
                     accumulate ? " accumulate" : "");
}

// Rows of a wider buffer: 5 elements between rows that must stay as they were.
constexpr int64_t kGap = 5;

KernelCase forward_case(MatMulShape s, DType dtype, bool accumulate) {
  return {name_of_case("forward", s, dtype, accumulate), kMatMulTolerance,
          [=](const Backend& backend, int threads) {
            Floats x = random_floats(s.m * (s.k + kGap), 1);
            Typed w(dtype, random_floats(s.n * s.k, 2));
            Typed bias(dtype, random_floats(s.n, 3));
            Floats y = random_floats(s.m * (s.n + kGap), 4);
            MatMulForward op = {.dtype = dtype,
                                .rows = s.m,
                                .outputs = s.n,
                                .inputs = s.k,
                                .x = x.data(),
                                .x_stride = s.k + kGap,
                                .w = w.data(),
                                .bias = s.m % 2 == 1 ? bias.data() : nullptr,
                                .y = y.data(),
                                .y_stride = s.n + kGap,
                                .accumulate = accumulate};
            Scratch scratch(workspace_bytes(op, device_of(backend, threads)));
            op.workspace = scratch.lend();
            backend.matmul_forward(op);
            return std::vector<Floats>{y};
          }};
}

KernelCase input_case(MatMulShape s, DType dtype, bool accumulate) {
  return {name_of_case("input", s, dtype, accumulate), kMatMulTolerance,
          [=](const Backend& backend, int threads) {
            Floats dy = random_floats(s.m * (s.n + kGap), 1);
            Typed w(dtype, random_floats(s.n * s.k, 2));
            Floats dx = random_floats(s.m * (s.k + kGap), 4);
            MatMulInput op = {.dtype = dtype,
                              .rows = s.m,
                              .outputs = s.n,
                              .inputs = s.k,
                              .dy = dy.data(),
                              .dy_stride = s.n + kGap,
                              .w = w.data(),
                              .dx = dx.data(),
                              .dx_stride = s.k + kGap,
                              .accumulate = accumulate};
            Scratch scratch(workspace_bytes(op, device_of(backend, threads)));
            op.workspace = scratch.lend();
            backend.matmul_input(op);
            return std::vector<Floats>{dx};
          }};
}

KernelCase weight_case(MatMulShape s, bool accumulate) {
  return {name_of_case("weight", s, DType::kF32, accumulate), kMatMulTolerance,
          [=](const Backend& backend, int threads) {
            Floats dy = random_floats(s.m * (s.n + kGap), 1);
            Floats x = random_floats(s.m * (s.k + kGap), 2);
            Floats dw = random_floats(s.n * s.k, 4);
            Floats dbias = random_floats(s.n, 5);
            MatMulWeight op = {.rows = s.m,
                               .outputs = s.n,
                               .inputs = s.k,
                               .dy = dy.data(),
                               .dy_stride = s.n + kGap,
                               .x = x.data(),
                               .x_stride = s.k + kGap,
                               .dw = dw.data(),
                               .dbias = dbias.data(),
                               .accumulate = accumulate};
            Scratch scratch(workspace_bytes(op, device_of(backend, threads)));
            op.workspace = scratch.lend();
            backend.matmul_weight(op);
            return std::vector<Floats>{dw, dbias};
          }};
}

TEST(MatMul, AgreesWithRefAndRepeats) {
  std::vector<KernelCase> cases;
  for (const MatMulShape shape : kMatMulShapes) {
    for (const bool accumulate : {false, true}) {
      if (accumulate && shape.m % 2 == 0) continue;
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        cases.push_back(forward_case(shape, dtype, accumulate));
        cases.push_back(input_case(shape, dtype, accumulate));
      }
      cases.push_back(weight_case(shape, accumulate));
    }
  }
  for (const MatMulShape shape : kF16Shapes) {
    cases.push_back(forward_case(shape, DType::kF16, shape.m == 7));
    cases.push_back(input_case(shape, DType::kF16, shape.m == 7));
  }
  expect_agrees_and_repeats(cases);
}

// More shapes than a thread keeps ready, twice: what was displaced is made again, with the same
// bits.
TEST(MatMul, ManyShapesGiveTheSameBitsTheSecondTime) {
  std::vector<std::vector<Floats>> first;
  for (int round = 0; round < 2; ++round) {
    for (int64_t n = 1; n <= 300; ++n) {
      const KernelCase one = forward_case({3, n, 8}, DType::kF32, false);
      const auto found = run_with_threads(one, cpu_backend(), 1);
      if (round == 0) {
        first.push_back(found);
      } else {
        EXPECT_TRUE(same_bits(found[0], first[static_cast<size_t>(n - 1)][0])) << n;
      }
    }
  }
}

TEST(MatMul, ResultsOfConcurrentCallersAreTheirOwn) {
  const KernelCase one = forward_case({64, 320, 96}, DType::kBF16, false);
  const auto wanted = run_with_threads(one, cpu_backend(), 1);
  bool same[4] = {};
  std::vector<std::thread> callers;
  for (bool& result : same) {
    callers.emplace_back([&] {
      bool all = true;
      for (int i = 0; i < 10; ++i) {
        all = all && same_bits(run_with_threads(one, cpu_backend(), 2)[0], wanted[0]);
      }
      result = all;
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const bool result : same) EXPECT_TRUE(result);
}

int64_t thread_count_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// oneDNN is built on OpenMP here; its threads would be beyond what Parallel allows.
TEST(MatMul, OneThreadStartsNoOther) {
  const KernelCase one = forward_case({256, 515, 96}, DType::kF32, false);
  const int64_t before = thread_count_of_process();
  run_with_threads(one, cpu_backend(), 1);
  EXPECT_LE(thread_count_of_process(), before);
}

TEST(MatMulDeath, TooSmallAWorkspaceIsABug) {
  Floats x(4), w(4), y(4);
  const MatMulForward op = {
      .rows = 2, .outputs = 2, .inputs = 2, .x = x.data(), .w = w.data(), .y = y.data()};
  EXPECT_DEATH(cpu_backend().matmul_forward(op), "workspace");
}

}  // namespace
}  // namespace strata::kernels
