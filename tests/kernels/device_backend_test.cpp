// SPDX-License-Identifier: Apache-2.0
// A device as a backend on host memory (tests/support/device_backend.h) gives the bits of the
// backend that the device computes with: here of the emulated device, on a GPU of that device.
#include "tests/support/device_backend.h"

#include "kernels/emulated/device_emulated.h"
#include "tests/kernels/drawn_case.h"

namespace strata::kernels {
namespace {

class DeviceBackend : public testing::Test {
 protected:
  void SetUp() override { device_under_test() = &under_test_; }
  void TearDown() override { device_under_test() = nullptr; }

  const std::unique_ptr<Device> device_ = make_emulated_device(twin_backend(), {});
  DeviceUnderTest under_test_{*device_};
  const Backend backend_ = device_backend(*device_, ref_backend());
};

TEST_F(DeviceBackend, CopiesWhatAnOpReadsAndWrites) {
  const Floats x = random_floats(60, 1), w = random_floats(20, 2);
  Floats y = random_floats(3 * 7, 3), wanted = y;
  MatMulForward op = {.rows = 3,
                      .outputs = 1,
                      .inputs = 20,
                      .x = x.data(),
                      .w = w.data(),
                      .y = wanted.data(),
                      .y_stride = 7,
                      .accumulate = true};
  Scratch scratch(workspace_bytes(op, device_of(twin_backend(), 1)));
  op.workspace = scratch.lend();
  twin_backend().matmul_forward(op);
  op.y = y.data();
  backend_.matmul_forward(op);
  EXPECT_TRUE(same_bits(y, wanted));
}

TEST_F(DeviceBackend, BuffersThatOverlapStayOne) {
  Floats gu = random_floats(2 * 5 * 8, 1), wanted = gu;
  const Floats dh = random_floats(5 * 8, 2);
  const auto op_on = [&](Floats& both) {
    return GluBackward{.rows = 5,
                       .cols = 8,
                       .g = both.data(),
                       .u = both.data() + 8,
                       .stride = 16,
                       .dh = dh.data(),
                       .dg = both.data(),
                       .du = both.data() + 8,
                       .d_stride = 16};
  };
  twin_backend().glu_backward(op_on(wanted));
  backend_.glu_backward(op_on(gu));
  EXPECT_TRUE(same_bits(gu, wanted));
}

TEST_F(DeviceBackend, PointersOfAnArrayAreBuffersToo) {
  constexpr int kSources = 3;
  std::vector<Floats> x, wanted;
  for (uint64_t k = 0; k < kSources; ++k) x.push_back(random_floats(41, k + 1));
  wanted = x;
  const auto op_on = [](std::vector<Floats>& of) {
    OrderedSum op = {.count = 41, .sources = kSources, .y = of[1].data()};
    for (size_t k = 0; k < of.size(); ++k) op.x[k] = of[k].data();
    return op;
  };
  twin_backend().ordered_sum(op_on(wanted));
  backend_.ordered_sum(op_on(x));
  EXPECT_EQ(x, wanted);
}

}  // namespace
}  // namespace strata::kernels
