// SPDX-License-Identifier: Apache-2.0
// The figures of a device with memory of its own: neither a first run that loads code nor the time
// of an op itself misleads them.
#include "engine/exec/device_probe.h"

#include <gtest/gtest.h>

#include <set>

#include "engine/base/units.h"
#include "kernels/emulated/device_emulated.h"
#include "tests/exec/fake_device.h"

namespace strata::exec {
namespace {

TEST(ProductSize, IsNotMisledByASlowFirstRunOfEachSize) {
  std::set<int64_t> loaded;
  const auto seconds_of = [&](int64_t size) {
    if (loaded.insert(size).second) return 1.0;
    return 1e-12 * static_cast<double>(size * size * size);
  };
  EXPECT_EQ(product_size(seconds_of, 1e-3), 1024);
  loaded.clear();
  EXPECT_EQ(product_size(seconds_of, 10), 4096) << "no size takes so long";
  loaded.clear();
  EXPECT_EQ(product_size(seconds_of, 1e-9), 128) << "the smallest takes longer";
}

// As a GPU is: the largest product takes 0.18 ms, and loading takes longer than all of them.
TEST(DeviceProbe, FiguresOfAFastDeviceThatLoadsSlowlyAreItsRates) {
  test::FakeDevice device(
      {.op_s = 5e-6, .product_flops_per_s = 750e12, .copy_bytes_per_s = 50e9, .load_s = 0.5});
  const DeviceFigures figures = probe_device(device, DType::kBF16, 0.05);
  EXPECT_NEAR(figures.product_flops_per_s, 750e12, 0.01 * 750e12);
  EXPECT_NEAR(figures.upload_bytes_per_s, 50e9, 0.01 * 50e9);
  EXPECT_NEAR(figures.download_bytes_per_s, 50e9, 0.01 * 50e9);
  EXPECT_NEAR(figures.memory_bytes_per_s, 100e9, 0.01 * 100e9);
  EXPECT_EQ(device.most_bytes(), 288 * kMiB);
}

// Its rules hold for what is measured with: addresses, ranges and order.
TEST(DeviceProbe, MeasuresTheEmulatedDevice) {
  for (const DType weights : {DType::kF32, DType::kBF16}) {
    const auto device = kernels::make_emulated_device(kernels::cpu_backend(), {.threads = 1});
    const DeviceFigures figures = probe_device(*device, weights, 0.05);
    for (const double rate : {figures.upload_bytes_per_s, figures.download_bytes_per_s,
                              figures.memory_bytes_per_s, figures.product_flops_per_s}) {
      EXPECT_GT(rate, 1e6);
      EXPECT_LT(rate, 1e16);
    }
    EXPECT_GT(figures.op_s, 1e-8);
    EXPECT_LT(figures.op_s, 0.1);
  }
}

}  // namespace
}  // namespace strata::exec
