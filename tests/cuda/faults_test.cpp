// SPDX-License-Identifier: Apache-2.0
// What a CUDA device can fail with ends a run at once, with the op's name and the cause.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <regex>
#include <thread>

#include "engine/base/clock.h"
#include "engine/base/environment.h"
#include "engine/exec/devices.h"
#include "tests/cuda/fake_gpu.h"
#include "tests/support/small_run.h"
#include "tests/support/temporary_directory.h"

namespace strata {
namespace {

struct Fault {
  const char* name;
  const char* setting;  // of tests/fake_cuda/faults.h
  ErrorCode code;
  const char* cause;
  bool names_op;  // false: it may, or another call sees the error first
};

constexpr Fault kFaults[] = {
    {"OutOfMemory", "malloc@1", ErrorCode::kDoesNotFit, "of the GPU's memory: ", false},
    {"LaunchRefused", "launch@5", ErrorCode::kDevice, "cudaErrorLaunchOutOfResources", true},
    {"KernelFault", "kernel@9", ErrorCode::kDevice, "cudaErrorIllegalAddress", true},
    {"LateKernelFault", "kernel@60 delay_us=300", ErrorCode::kDevice, "cudaErrorIllegalAddress",
     true},
    {"CopyRefused", "copy@3", ErrorCode::kDevice, "cudaErrorInvalidValue", true},
    {"CopyFault", "copying@3 delay_us=300", ErrorCode::kDevice, "cudaErrorECCUncorrectable", false},
    {"DeviceLost", "lost@7", ErrorCode::kDevice, "cudaErrorUnknown", true},
    {"ProductFailed", "product@4", ErrorCode::kDevice, "CUBLAS_STATUS_EXECUTION_FAILED", true},
    {"NoAlgorithm", "algorithm@1", ErrorCode::kDevice, "no algorithm without atomic sums", true},
};

class CudaFaults : public testing::TestWithParam<Fault> {};

TEST_P(CudaFaults, EndTheRunWithTheOpAndTheCause) {
  const Fault& fault = GetParam();
  const test::TemporaryDirectory directory;
  test::Draw draw(2);
  const model::ModelSpec spec = test::random_spec(draw, 1, false);
  plan::PlanInput input = test::random_input(draw, spec, 1);
  input.device = exec::describe(config::DeviceKind::kCuda, input.recipe, 1);
  test::RunOptions options;
  options.directory = directory.path();
  options.backend = &kernels::ref_backend();
  options.make_device = test::FakeGpu::make;
  options.clip = input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
  test::FakeGpu::configure(fault.setting);
  try {
    (void)test::small_run(input, plan::smallest_placement(input), options);
    ADD_FAILURE() << "the run ended well";
  } catch (const Error& error) {
    const std::string said = error.what();
    EXPECT_EQ(error.code(), fault.code) << said;
    EXPECT_NE(said.find(fault.cause), std::string::npos) << said;
    const bool names_op = said.find(" on compute: ") != std::string::npos ||
                          said.find(" on upload: ") != std::string::npos ||
                          said.find(" on download: ") != std::string::npos ||
                          said.find(" on update: ") != std::string::npos ||
                          said.find(" on comm: ") != std::string::npos;
    EXPECT_TRUE(names_op || !fault.names_op) << said;
  }
  // The next device works: nothing of the failed one is left.
  test::FakeGpu::configure("");
  EXPECT_NO_THROW((void)test::small_run(input, plan::smallest_placement(input), options));
}

INSTANTIATE_TEST_SUITE_P(Injected, CudaFaults, testing::ValuesIn(kFaults),
                         [](const auto& param) { return std::string(param.param.name); });

// With ops in flight, CUDA tells of an error at any later call; with one at a time, at its own op.
TEST(CudaFaults, NameTheVeryOpThatFailsWhereItIsAlone) {
  for (const char* fault : {"kernel", "launch", "lost"}) {
    for (int failing = 1; failing <= 3; ++failing) {
      test::FakeGpu::configure(fault + ("@" + std::to_string(failing)) + " delay_us=300");
      const auto device = test::FakeGpu::make(DType::kF32);
      const auto memory = device->allocate(4096);
      const auto queue = device->make_queue("compute", 4);
      const kernels::Fill op = {.count = 16, .value = 1.0f, .y = {memory->data(), DType::kF32}};
      std::string said;
      for (int i = 1; i <= 3 && said.empty(); ++i) {
        const std::string name = "fill." + std::to_string(i);
        try {
          queue->begin(name.c_str(), {});
          device->ops().fill(*queue, op);
          const int64_t count = queue->end();
          while (queue->completed() < count) queue->sleep(count, 10);
        } catch (const Error& error) {
          said = error.what();
        }
      }
      const std::string wanted = "cuda: fill." + std::to_string(failing) + " on compute: cudaError";
      EXPECT_EQ(said.substr(0, wanted.size()), wanted) << said;
    }
  }
}

// Nobody can stop a kernel, so the caller is told first, and may end the process. Here it lets go
// of the kernel, and the run ends with the same error. Other lanes wait for it, or none does.
TEST(CudaFaults, AKernelThatNeverEndsIsReportedWithItsOp) {
  for (const bool all_on_device : {false, true}) {
    for (const char* setting : {"hang@9", "hang@200 delay_us=300"}) {
      SCOPED_TRACE(setting);
      const test::TemporaryDirectory directory;
      test::Draw draw(2);
      const model::ModelSpec spec = test::random_spec(draw, 1, false);
      plan::PlanInput input = test::random_input(draw, spec, 1);
      input.device = exec::describe(config::DeviceKind::kCuda, input.recipe, 1);
      std::atomic<int> hangs = 0;
      std::string reported;
      Environment environment({.hang = [&](const Error& error) {
        ++hangs;
        reported = error.what();
        test::FakeGpu::let_go();
      }});
      const Environment::Scope scope(&environment);
      test::RunOptions options;
      options.directory = directory.path();
      options.backend = &kernels::ref_backend();
      options.make_device = test::FakeGpu::make;
      options.clip = input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
      options.io_deadline_s = 1;
      test::FakeGpu::configure(setting);
      plan::Placement placement = plan::smallest_placement(input);
      if (all_on_device) {
        placement = test::all_in_memory(input);
        test::make_homes(4, draw, input, placement);
      }
      const double begin_s = now_s();
      try {
        (void)test::small_run(input, placement, options);
        ADD_FAILURE() << "the run ended well";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kDeadline);
        EXPECT_EQ(error.what(), reported);
      }
      EXPECT_LT(now_s() - begin_s, 1 + 10);
      EXPECT_EQ(hangs.load(), 1);
      EXPECT_TRUE(std::regex_search(
          reported, std::regex("^cuda: [a-z ]+( [a-z0-9.]+)? on (compute|update): not done after "
                               "1 s, and a GPU cannot be made to stop")))
          << reported;
    }
  }
}

TEST(CudaDevices, NewMemoryIsZeroToItsEnd) {
  constexpr int64_t kBytes = int64_t{3} << 20;
  test::FakeGpu::configure("");
  const auto device = test::FakeGpu::make(DType::kF32);
  const auto memory = device->allocate(kBytes);
  const auto queue = device->make_queue("download", 4);
  std::vector<std::byte> found(kBytes, std::byte{1});
  queue->begin("read", {});
  queue->copy(found.data(), memory->data(), kBytes);
  queue->sleep(queue->end(), 10);
  EXPECT_EQ(std::ranges::count(found, std::byte{0}), kBytes);
}

// A context of the first GPU takes memory that its rank counts on, and is refused where another
// program has that GPU alone.
TEST(CudaDevices, OneThatIsNotUsedGetsNoContext) {
  test::FakeGpu::configure("pageable=0 devices=2");
  const auto device = test::FakeGpu::plugin().make({.index = 1});
  const auto memory = device->allocate(4096);
  const auto queue = device->make_queue("compute", 4);
  std::thread([&] {  // whose current device is the first one
    queue->begin("fill", {});
    device->ops().fill(*queue, {.count = 16, .value = 1.0f, .y = {memory->data(), DType::kF32}});
    queue->sleep(queue->end(), 10);
  })
      .join();
  (void)test::FakeGpu::plugin().free_bytes(1);
  EXPECT_EQ(test::FakeGpu::calls("context 1"), 1);
  EXPECT_EQ(test::FakeGpu::calls("context 0"), 0);
}

TEST(CudaDevices, AnOpThatFailsLeavesACallersCurrentDevice) {
  test::FakeGpu::configure("pageable=0 devices=2 launch@1");
  auto* const set_device = test::FakeGpu::call<int(int)>("cudaSetDevice");
  auto* const get_device = test::FakeGpu::call<int(int*)>("cudaGetDevice");
  ASSERT_EQ(set_device(0), 0);
  const auto device = test::FakeGpu::plugin().make({.index = 1});
  const auto memory = device->allocate(4096);
  const auto queue = device->make_queue("compute", 4);
  queue->begin("fill", {});
  const kernels::Fill op = {.count = 16, .value = 1.0f, .y = {memory->data(), DType::kF32}};
  EXPECT_THROW(device->ops().fill(*queue, op), Error);
  int current = -1;
  ASSERT_EQ(get_device(&current), 0);
  EXPECT_EQ(current, 0);
}

TEST(CudaDevices, OfAGenerationWithoutKernelsAreRefused) {
  for (const char* setting : {"compute=80", "compute=89", "compute=90", "compute=120"}) {
    test::FakeGpu::configure(setting);  // those before 9.0 run code of 8.0, later ones PTX
    EXPECT_NO_THROW((void)test::FakeGpu::plugin().make({})) << setting;
  }
  test::FakeGpu::configure("compute=75");
  try {
    (void)test::FakeGpu::plugin().make({});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("no kernels for compute 7.5 (run cmake "
                        "-DSTRATA_CUDA_ARCHITECTURES=75 build"),
              std::string::npos)
        << error.what();
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
  }
}

TEST(CudaDevices, ThatCannotBeUsedSayWhy) {
  const std::string folder = test::FakeGpu::folder();
  const auto refusal = [&](const char* setting, int64_t index) -> std::string {
    test::FakeGpu::configure(setting);
    try {
      (void)exec::require_gpu(folder, index);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("devices=2", 1), "");
  EXPECT_NE(refusal("devices=2", 2).find("device: cuda:2: this machine has 2 GPUs"),
            std::string::npos);
  EXPECT_NE(refusal("devices=0", -1).find("no GPU can be used: cudaErrorNoDevice"),
            std::string::npos);
  EXPECT_NE(refusal("driver=0", -1).find("(install NVIDIA's driver"), std::string::npos);
}

}  // namespace
}  // namespace strata
