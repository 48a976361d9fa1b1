// SPDX-License-Identifier: Apache-2.0
// A caller that computes on a stream of its own, through the CUDA device's host code over a fake
// device, which finds commands of two streams that nothing orders: the bits of a caller on the
// host, and the caller's current device as it was.
#include <atomic>

#include "engine/base/environment.h"
#include "engine/exec/devices.h"
#include "tests/cuda/fake_gpu.h"
#include "tests/exec/external_fixture.h"

namespace strata {
namespace {

class CudaCaller : public External {
 protected:
  using CreateStream = int(void**, unsigned);
  using OfStream = int(void*);
  using Copy = int(void*, const void*, size_t, int, void*);
  using OfDevice = int(int);
  using AskDevice = int(int*);

  static constexpr int kOther = 1;  // a device that the caller uses beside
  static constexpr int kAnyDirection = 4;

  // On a stream, or by copies of the executor.
  uint64_t run_on_gpu(const plan::Placement& placement, bool has_stream,
                      const std::string& settings) {
    test::FakeGpu::configure("devices=2 " + settings);
    EXPECT_EQ(test::FakeGpu::call<OfDevice>("cudaSetDevice")(kOther), 0);
    const std::unique_ptr<kernels::Device> device = test::FakeGpu::make(DType::kF32);
    if (has_stream) {
      EXPECT_EQ(test::FakeGpu::call<CreateStream>("cudaStreamCreateWithFlags")(&stream_, 1), 0);
    }
    exec::ExecutorOptions on_gpu = options();
    on_gpu.device = device.get();
    on_gpu.io_deadline_s = io_deadline_s_;
    input_.device = device->description();
    is_on_gpu_ = true;
    const uint64_t hash = run(placement, on_gpu);
    is_on_gpu_ = false;
    int current = -1;
    EXPECT_EQ(test::FakeGpu::call<AskDevice>("cudaGetDevice")(&current), 0);
    EXPECT_EQ(current, kOther);
    if (stream_ != nullptr) test::FakeGpu::call<OfStream>("cudaStreamDestroy")(stream_);
    stream_ = nullptr;
    return hash;
  }

  void move(exec::Executor& executor, void* to, const void* from, int64_t bytes) const {
    if (stream_ == nullptr) return executor.copy(to, from, bytes);
    EXPECT_EQ(test::FakeGpu::call<Copy>("cudaMemcpyAsync")(to, from, static_cast<size_t>(bytes),
                                                           kAnyDirection, stream_),
              0);
  }

  void do_use(exec::Executor& executor, NextUse next) override {
    if (!is_on_gpu_) return External::do_use(executor, next);
    const model::ExternalUse& use = spec_.uses[next.use];
    exec::UseMode mode;
    if (stream_ != nullptr) mode.stream = stream_;
    executor.ready(use.segments.front(),
                   use.backward ? exec::Pass::kBackward : exec::Pass::kForward, mode);
    for (const int s : use.segments) {
      const exec::SegmentUse one = executor.used(s);
      const int64_t bytes = spec_.segments[s].trainable_numel * 4;
      std::vector<float> weights(static_cast<size_t>(bytes / 4)), gradient(weights.size());
      move(executor, weights.data(), one.weights, bytes);
      if (!use.backward) continue;
      move(executor, gradient.data(), one.gradient, bytes);
      add_gradient({weights.data(), gradient.data(), one.gradient_first}, s, next.micro_batch);
      move(executor, one.gradient, gradient.data(), bytes);
    }
    executor.done();
  }

  void* stream_ = nullptr;
  bool is_on_gpu_ = false;
  double io_deadline_s_ = 60;
};

TEST_F(CudaCaller, HasTheBitsOfOneOnTheHost) {
  for (uint64_t seed = 1; seed <= test::seeds(3); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(seed);
    input_.device = {};
    input_.micro_batches = static_cast<int>(draw.between(1, 3));
    const uint64_t expected = run(resident_placement(input_), options());
    for (const bool has_stream : {true, false}) {
      input_.device = exec::describe(config::DeviceKind::kCuda, Recipe::kFp32, 1);
      const plan::Placement placement =
          draw.coin() ? plan::smallest_placement(input_) : test::random_placement(draw, input_);
      const std::string settings = "pageable=1 delay_us=200 seed=" + std::to_string(seed);
      EXPECT_EQ(run_on_gpu(placement, has_stream, settings), expected) << has_stream;
    }
  }
}

// The caller waits for the weights of a use, in which the device clears a gradient before.
TEST_F(CudaCaller, HearsOfADeviceThatHangs) {
  std::atomic<int> hangs = 0;
  Environment environment({.hang = [&](const Error&) {
    ++hangs;
    test::FakeGpu::let_go();
  }});
  const Environment::Scope scope(&environment);
  test::Draw draw(1);
  input_.micro_batches = 1;
  input_.device = exec::describe(config::DeviceKind::kCuda, Recipe::kFp32, 1);
  io_deadline_s_ = 1;
  try {
    run_on_gpu(plan::smallest_placement(input_), false, "pageable=1 hang@1");
    ADD_FAILURE() << "the run ended well";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadline);
    EXPECT_NE(std::string(error.what()).find("cuda: a use: not done after 1 s"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(hangs.load(), 1);
}

}  // namespace
}  // namespace strata
