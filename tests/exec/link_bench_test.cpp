// SPDX-License-Identifier: Apache-2.0
// The link of a device: both directions alone and together, and the latency of a small copy.
#include "engine/exec/link_bench.h"

#include <gtest/gtest.h>

#include "engine/base/units.h"
#include "kernels/emulated/device_emulated.h"

namespace strata::exec {
namespace {

TEST(LinkBench, MeasuresBothDirectionsAloneAndTogether) {
  const auto device = kernels::make_emulated_device(kernels::cpu_backend(), {.threads = 1});
  const LinkFigures link = bench_link(*device, {.bytes = 64 * kMiB, .seconds = 0.05});
  EXPECT_TRUE(link.pinned);
  EXPECT_GT(link.upload_bytes_per_s, 1e6);
  EXPECT_GT(link.download_bytes_per_s, 1e6);
  EXPECT_GT(link.both_bytes_per_s, 0.3 * link.upload_bytes_per_s);
  EXPECT_FALSE(bench_link(*device, {.bytes = kMiB, .pinned = false, .seconds = 0.01}).pinned);
}

TEST(LinkBench, ASmallCopyTakesSomeTime) {
  const auto device = kernels::make_emulated_device(kernels::cpu_backend(), {.threads = 1});
  const LinkLatency latency = bench_latency(*device, 0.01);
  EXPECT_GT(latency.upload_s, 1e-8);
  EXPECT_LT(latency.upload_s, 1);
  EXPECT_GT(latency.download_s, 1e-8);
}

}  // namespace
}  // namespace strata::exec
