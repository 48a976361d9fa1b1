// SPDX-License-Identifier: Apache-2.0
// Devices: an op of the host is over when it is issued; the emulated device computes what its
// backend computes, later, and refuses every use of memory that its op did not declare or that no
// wait orders.
#include "kernels/device.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "kernels/emulated/device_emulated.h"

namespace strata::kernels {
namespace {

constexpr int64_t kDeviceRows = 3, kOutputs = 5, kInputs = 4;

// What a call throws; "" where it throws nothing.
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    return error.what();
  }
  return "";
}

void expect_said(const std::string& error, const char* words) {
  EXPECT_NE(error.find(words), std::string::npos) << "wanted \"" << words << "\", got: " << error;
}

// y = x w^T in device memory, and a result in host memory.
class EmulatedDevice : public testing::Test {
 protected:
  void SetUp() override { make({}); }
  void make(const EmulatedOptions& options) {
    memory_.reset();
    device_ = make_emulated_device(ref_backend(), options);
    memory_ = device_->allocate(1 << 16);
    base_ = memory_->data();
  }

  float* x() const { return reinterpret_cast<float*>(base_); }
  float* w() const { return reinterpret_cast<float*>(base_ + 4096); }
  float* y() const { return reinterpret_cast<float*>(base_ + 8192); }
  static constexpr int64_t kXBytes = kDeviceRows * kInputs * 4, kWBytes = kOutputs * kInputs * 4,
                           kYBytes = kDeviceRows * kOutputs * 4;

  MatMulForward product() const {
    return {
        .rows = kDeviceRows, .outputs = kOutputs, .inputs = kInputs, .x = x(), .w = w(), .y = y()};
  }
  std::vector<MemoryRange> ranges() const {
    return {{x(), kXBytes, false}, {w(), kWBytes, false}, {y(), kYBytes, true}};
  }
  void issue(Queue& queue, const MatMulForward& op, const std::vector<MemoryRange>& declared) {
    queue.begin("product", declared);
    device_->ops().matmul_forward(queue, op);
    queue.end();
  }
  void copy(Queue& queue, void* to, const void* from, int64_t bytes) {
    const std::vector<MemoryRange> declared = {{from, bytes, false}, {to, bytes, true}};
    queue.begin("copy", declared);
    queue.copy(to, from, bytes);
    queue.end();
  }
  static void drain(Queue& queue, int64_t count) {
    while (queue.completed() < count) queue.sleep(count, 1);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceMemory> memory_;
  std::byte* base_ = nullptr;
};

TEST(HostDevice, AnOpIsOverWhenItIsIssued) {
  const auto device = make_host_device(ref_backend(), 1);
  const auto queue = device->make_queue("compute", 1);
  std::vector<float> y(3, 0.0f);
  queue->begin("fill", {});
  device->ops().fill(*queue, {.count = 3, .value = 2.0f, .y = y.data()});
  EXPECT_EQ(queue->end(), 1);
  EXPECT_EQ(queue->completed(), 1);
  EXPECT_EQ(y, std::vector<float>(3, 2.0f));
}

TEST_F(EmulatedDevice, ComputesWhatItsBackendComputesAcrossThreeQueues) {
  make({.delay_s_max = 2e-3, .delay_seed = 7});
  std::vector<float> xs(kDeviceRows * kInputs), ws(kOutputs * kInputs),
      wanted(kDeviceRows * kOutputs);
  for (size_t i = 0; i < xs.size(); ++i) xs[i] = static_cast<float>(i) - 5;
  for (size_t i = 0; i < ws.size(); ++i) ws[i] = static_cast<float>(i % 7) / 8;
  MatMulForward plain = product();
  plain.x = xs.data();
  plain.w = ws.data();
  plain.y = wanted.data();
  ref_backend().matmul_forward(plain);

  const auto up = device_->make_queue("upload", 4);
  const auto compute = device_->make_queue("compute", 4);
  const auto down = device_->make_queue("download", 4);
  std::vector<float> found(kDeviceRows * kOutputs);
  copy(*up, x(), xs.data(), kXBytes);
  copy(*up, w(), ws.data(), kWBytes);
  compute->wait(*up, 2);
  issue(*compute, product(), ranges());
  down->wait(*compute, 1);
  copy(*down, found.data(), y(), kYBytes);
  drain(*down, 1);
  EXPECT_EQ(found, wanted);
}

TEST_F(EmulatedDevice, IssuingReturnsBeforeTheOpIsOver) {
  make({.delay_s_max = 0.2, .delay_seed = 3});
  const auto queue = device_->make_queue("compute", 64);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) issue(*queue, product(), ranges());
  const std::chrono::duration<double> issuing = std::chrono::steady_clock::now() - begin;
  drain(*queue, 20);
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(issuing.count(), all.count() / 4);  // 20 delays of 0.1 s on average
}

TEST_F(EmulatedDevice, HostCodeCannotReadItsMemory) {
  EXPECT_DEATH((void)*static_cast<volatile float*>(x()), "");
}

TEST_F(EmulatedDevice, AKernelOnHostMemoryIsRefused) {
  const auto queue = device_->make_queue("compute", 4);
  std::vector<float> host(kDeviceRows * kInputs);
  MatMulForward op = product();
  op.x = host.data();
  std::vector<MemoryRange> declared = ranges();
  declared[0].data = host.data();
  expect_said(error_of([&] { issue(*queue, op, declared); }), "a kernel reads host memory");
}

TEST_F(EmulatedDevice, ABufferThatIsNotDeclaredIsRefused) {
  const auto queue = device_->make_queue("compute", 4);
  std::vector<MemoryRange> declared = ranges();
  declared.erase(declared.begin() + 1);
  expect_said(error_of([&] { issue(*queue, product(), declared); }),
              "reads a buffer of 80 bytes of which byte 0 is in no range");
}

TEST_F(EmulatedDevice, ABufferLongerThanDeclaredIsRefused) {
  const auto queue = device_->make_queue("compute", 4);
  std::vector<MemoryRange> declared = ranges();
  declared[2].bytes -= 4;
  expect_said(error_of([&] { issue(*queue, product(), declared); }),
              "writes a buffer of 60 bytes of which byte 56 is in no range");
}

TEST_F(EmulatedDevice, AWriteToWhatIsReadIsRefused) {
  const auto queue = device_->make_queue("compute", 4);
  std::vector<MemoryRange> declared = ranges();
  declared[2].written = false;
  expect_said(error_of([&] { issue(*queue, product(), declared); }), "writes a buffer");
}

TEST_F(EmulatedDevice, AWorkspaceTooSmallIsRefused) {
  const auto queue = device_->make_queue("compute", 4);
  MatMulForward op = product();
  op.workspace = {base_ + 16384, 512};
  std::vector<MemoryRange> declared = ranges();
  declared.push_back({op.workspace.data, 256, true});
  expect_said(error_of([&] { issue(*queue, op, declared); }), "byte 256 is in no range");
}

TEST_F(EmulatedDevice, ACopyBesideItsRangesIsRefused) {
  const auto queue = device_->make_queue("download", 4);
  std::vector<float> host(16);
  queue->begin("download", {});
  expect_said(error_of([&] { queue->copy(host.data(), y(), 64); }), "in no range");
}

TEST_F(EmulatedDevice, ReadingWhatAnotherQueueWritesNeedsAWait) {
  make({.delay_s_max = 0.5, .delay_seed = 1});
  const auto up = device_->make_queue("upload", 4);
  const auto compute = device_->make_queue("compute", 4);
  const std::vector<float> xs(kDeviceRows * kInputs, 1.0f);
  copy(*up, x(), xs.data(), kXBytes);
  expect_said(error_of([&] { issue(*compute, product(), ranges()); }),
              "product on compute reads bytes that copy on upload writes");
}

TEST_F(EmulatedDevice, OverwritingWhatAnotherQueueReadsNeedsAWait) {
  make({.delay_s_max = 0.5, .delay_seed = 1});
  const auto up = device_->make_queue("upload", 4);
  const auto compute = device_->make_queue("compute", 4);
  const std::vector<float> xs(kDeviceRows * kInputs, 1.0f);
  issue(*compute, product(), ranges());
  expect_said(error_of([&] { copy(*up, x(), xs.data(), kXBytes); }),
              "copy on upload writes bytes that product on compute reads");
}

TEST_F(EmulatedDevice, AWaitForAnOpThatWaitedOrdersBoth) {
  make({.delay_s_max = 0.05, .delay_seed = 1});
  const auto up = device_->make_queue("upload", 4);
  const auto compute = device_->make_queue("compute", 4);
  const auto down = device_->make_queue("download", 4);
  std::vector<float> xs(kDeviceRows * kInputs, 1.0f), found(kDeviceRows * kInputs);
  copy(*up, x(), xs.data(), kXBytes);
  compute->wait(*up, 1);
  issue(*compute, product(), ranges());
  down->wait(*compute, 1);
  copy(*down, found.data(), x(), kXBytes);
  drain(*down, 1);
  EXPECT_EQ(found, xs);
}

TEST_F(EmulatedDevice, WhatFailsOnAQueueFailsTheNextCallAndWhoeverWaits) {
  const auto compute = device_->make_queue("compute", 4);
  const auto down = device_->make_queue("download", 4);
  std::vector<float> host(16);
  // Any call that comes after the failure may be the one that tells.
  const auto fail = [&] {
    compute->begin("gather", {});
    call_in_order(*compute,
                  [](const HostView&) { throw Error(ErrorCode::kDevice, "a rank is gone"); });
    compute->end();
    drain(*compute, 1);
  };
  const auto wait = [&] {
    down->wait(*compute, 1);
    copy(*down, host.data(), y(), 64);
    drain(*down, 1);
  };
  expect_said(error_of(fail), "a rank is gone");
  expect_said(error_of(wait), "a rank is gone");
}

TEST_F(EmulatedDevice, ACallOnTheHostStaysInTheRangesOfItsOp) {
  const MemoryRange range = {x(), 64, false};
  const auto touch = [&](const char* name, int64_t bytes, bool written) {
    const auto queue = device_->make_queue(name, 4);
    queue->begin("gather", {&range, 1});
    call_in_order(*queue, [&](const HostView& view) { view.at(x(), bytes, written); });
    queue->end();
    drain(*queue, 1);
  };
  touch("comm", 64, false);
  expect_said(error_of([&] { touch("compute", 64, true); }), "it writes a buffer of 64 bytes");
  expect_said(error_of([&] { touch("upload", 65, false); }), "of which byte 64 is in no range");
}

TEST_F(EmulatedDevice, HasNoDefaultStream) {
  const auto queue = device_->make_queue("compute", 4);
  EXPECT_THROW(queue->wait_for(nullptr), Error);
  EXPECT_THROW(queue->let_wait(nullptr, 0), Error);
}

TEST_F(EmulatedDevice, MoreMemoryThanThereIsIsRefused) {
  try {
    device_->allocate(int64_t{1} << 56);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
    EXPECT_NE(std::string(error.what()).find("lower --device-memory"), std::string::npos);
  }
}

}  // namespace
}  // namespace strata::kernels
