// SPDX-License-Identifier: Apache-2.0
// Products of each type through the CUDA device's host code, over a fake device: the library is
// told the types of its operands.
#include <gtest/gtest.h>

#include "engine/memory/arena.h"
#include "kernels/description.h"
#include "kernels/typed.h"
#include "tests/cuda/fake_gpu.h"
#include "tests/support/device_backend.h"

namespace strata {
namespace {

constexpr int64_t kRows = 3, kOutputs = 5, kInputs = 8;

// A matrix of integers from -3 to 3, whose products every type holds.
std::vector<std::byte> integers(DType type, int64_t count, int64_t step) {
  std::vector<std::byte> bytes(static_cast<size_t>(count * bytes_of(type)));
  for (int64_t i = 0; i < count; ++i) {
    kernels::store(type, bytes.data(), i, static_cast<float>(i * step % 7 - 3));
  }
  return bytes;
}

TEST(CudaProducts, OfEachTypeAreTheSums) {
  const struct {
    DType weights, interior;
  } kPairs[] = {{DType::kF32, DType::kF32},
                {DType::kBF16, DType::kBF16},
                {DType::kF16, DType::kF16},
                {DType::kBF16, DType::kF32},
                {DType::kF16, DType::kF32}};
  test::FakeGpu::configure("pageable=1");
  const std::unique_ptr<kernels::Device> device = test::FakeGpu::make(DType::kF32);
  kernels::DeviceUnderTest under_test(*device);
  for (const auto& [weights, interior] : kPairs) {
    std::vector<std::byte> x = integers(interior, kRows * kInputs, 2);
    std::vector<std::byte> y = integers(interior, kRows * kOutputs, 1);
    std::vector<std::byte> w = integers(weights, kOutputs * kInputs, 3);
    kernels::MatMulForward op = {.dtype = weights,
                                 .rows = kRows,
                                 .outputs = kOutputs,
                                 .inputs = kInputs,
                                 .x = {x.data(), interior},
                                 .w = w.data(),
                                 .y = {y.data(), interior}};
    const int64_t bytes = kernels::workspace_bytes(op, kernels::describe_cuda(interior));
    const memory::Arena workspace(bytes);
    op.workspace = {workspace.data(), bytes};
    under_test.run<&kernels::DeviceOps::matmul_forward>(op);
    for (int64_t at = 0; at < kRows * kOutputs; ++at) {
      float sum = 0.0f;
      for (int64_t i = 0; i < kInputs; ++i) {
        sum += kernels::load(interior, x.data(), at / kOutputs * kInputs + i) *
               kernels::load(weights, w.data(), at % kOutputs * kInputs + i);
      }
      EXPECT_EQ(kernels::load(interior, y.data(), at), sum)
          << name_of(weights) << " in " << name_of(interior) << ", element " << at;
    }
  }
}

}  // namespace
}  // namespace strata
