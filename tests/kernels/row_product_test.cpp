// SPDX-License-Identifier: Apache-2.0
// Products by_row equal the plain loops within rounding, and a row has the bits that it has alone,
// on every instruction set, for the host twin of the GPU's kernels, and on the GPU.
#include <fmt/format.h>

#include "tests/kernels/kernel_case.h"
#include "tests/kernels/tested_device.h"

namespace strata::kernels {
namespace {

struct RowShape {
  int64_t rows, outputs, inputs;
};

// Few rows and many, widths off the vector and off the block, sums of several parts.
constexpr RowShape kRowShapes[] = {{1, 1, 1},       {1, 997, 40}, {2, 64, 256},
                                   {5, 67, 1100},   {6, 130, 64}, {7, 40, 997},
                                   {13, 101, 2050}, {64, 70, 33}, {65, 48, 1040}};

struct RowProduct {
  RowShape shape;
  DType dtype;
  bool accumulate;
};

// Rows [first, first + count) of the product's operands.
Floats run_rows(const RowProduct& product, const Backend& backend, int threads, int64_t first,
                int64_t count) {
  const RowShape s = product.shape;
  const int64_t x_stride = s.inputs + 3, y_stride = s.outputs + 5;
  Floats x = random_floats(s.rows * x_stride, 1);
  Typed w(product.dtype, random_floats(s.outputs * s.inputs, 2));
  Typed bias(product.dtype, random_floats(s.outputs, 3));
  Floats y = random_floats(s.rows * y_stride, 4);
  MatMulForward op = {.dtype = product.dtype,
                      .rows = count,
                      .outputs = s.outputs,
                      .inputs = s.inputs,
                      .x = x.data() + first * x_stride,
                      .x_stride = x_stride,
                      .w = w.data(),
                      .bias = s.outputs % 2 == 1 ? bias.data() : nullptr,
                      .y = y.data() + first * y_stride,
                      .y_stride = y_stride,
                      .accumulate = product.accumulate,
                      .by_row = true};
  Scratch scratch(workspace_bytes(op, device_of(backend, threads)));
  op.workspace = scratch.lend();
  backend.matmul_forward(op);
  return {y.begin() + first * y_stride, y.begin() + (first + count) * y_stride};
}

std::vector<RowProduct> row_products() {
  std::vector<RowProduct> products;
  for (const RowShape& shape : kRowShapes) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const bool accumulate : {false, true}) products.push_back({shape, dtype, accumulate});
    }
  }
  for (const RowShape& shape : {kRowShapes[1], kRowShapes[3], kRowShapes[6]}) {
    products.push_back({shape, DType::kF16, shape.rows == 5});
  }
  return products;
}

std::string name_of(const RowProduct& product) {
  const RowShape& s = product.shape;
  return fmt::format("{}x{}x{} {}{}", s.rows, s.outputs, s.inputs, strata::name_of(product.dtype),
                     product.accumulate ? " accumulate" : "");
}

TEST(RowProduct, AgreesWithThePlainLoops) {
  std::vector<KernelCase> cases;
  for (const RowProduct& product : row_products()) {
    // Sums of up to 2050 products of values below 1 in f32, against f64.
    cases.push_back({name_of(product), 3e-6f, [product](const Backend& backend, int threads) {
                       return std::vector<Floats>{
                           run_rows(product, backend, threads, 0, product.shape.rows)};
                     }});
  }
  expect_agrees_and_repeats(cases);
}

void expect_bits_of_rows_alone(const Backend& backend, int threads) {
  for (const RowProduct& product : row_products()) {
    const RowShape& s = product.shape;
    const auto bits_of = [&](int64_t first, int64_t count) {
      const KernelCase one = {"", 0.0f, [&](const Backend& on, int of) {
                                return std::vector<Floats>{run_rows(product, on, of, first, count)};
                              }};
      return run_with_threads(one, backend, threads).front();
    };
    const Floats all = bits_of(0, s.rows);
    const int64_t stride = s.outputs + 5;
    for (const int64_t row : {int64_t{0}, s.rows / 2, s.rows - 1}) {
      const Floats alone = bits_of(row, 1);
      EXPECT_TRUE(same_bits(alone, {all.begin() + row * stride, all.begin() + (row + 1) * stride}))
          << name_of(product) << ", row " << row << " on " << backend.name;
    }
  }
}

TEST(RowProduct, ARowHasTheBitsThatItHasAlone) {
  for (const int64_t target : {int64_t{0}, int64_t{HWY_SSE4}, int64_t{HWY_AVX2}}) {
    const OnlyTarget only(target);
    expect_bits_of_rows_alone(cpu_backend(), 2);
  }
  expect_bits_of_rows_alone(twin_backend(), 1);
}

TEST(RowProduct, OnTheDeviceARowHasTheBitsThatItHasAlone) {
  const Backend* device = tested_device();
  if (device == nullptr) GTEST_SKIP() << "STRATA_TEST_PLUGIN names no folder of the plugin";
  expect_bits_of_rows_alone(*device, 1);
}

}  // namespace
}  // namespace strata::kernels
