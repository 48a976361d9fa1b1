// SPDX-License-Identifier: Apache-2.0
// A caller that computes on a device with memory of its own, by its own stream or by copies: the
// bits of one that computes on the host, wherever state lies; a stream that is not ordered with the
// use is caught; an address outside of the use is an error; times of uses are the device's.
#include <memory>
#include <thread>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "kernels/emulated/device_emulated.h"
#include "tests/exec/external_fixture.h"

namespace strata {
namespace {

constexpr double kDelay_s = 2e-4;

class ExternalDevice : public External {
 protected:
  enum class By { kHost, kStream, kCopies };

  // The caller's device is the executor's.
  void make_device(double delay_s) {
    caller_.reset();
    device_ = kernels::make_emulated_device(
        kernels::ref_backend(),
        {.threads = 1, .delay_s_max = delay_s, .delay_seed = static_cast<uint64_t>(seed_++)});
    caller_ = device_->make_queue("caller", 64);
  }

  exec::ExecutorOptions device_options(By by, double delay_s = kDelay_s) {
    by_ = by;
    exec::ExecutorOptions on_device = options();
    if (by == By::kHost) return on_device;
    make_device(delay_s);
    on_device.device = device_.get();
    return on_device;
  }

  int64_t gradient_bytes(int segment) const { return spec_.segments[segment].trainable_numel * 4; }

  void add_by_stream(const exec::SegmentUse& use, int segment, int micro_batch) {
    const int64_t bytes = gradient_bytes(segment);
    const std::vector<kernels::MemoryRange> ranges = {
        {use.weights, bytes, false}, {use.gradient, bytes, false}, {use.gradient, bytes, true}};
    caller_->begin("gradients", ranges);
    kernels::call_in_order(
        *caller_, [this, use, segment, micro_batch, bytes](const kernels::HostView& view) {
          exec::SegmentUse seen = use;
          seen.weights = view.at(const_cast<void*>(use.weights), bytes, false);
          seen.gradient = static_cast<float*>(view.at(use.gradient, bytes, true));
          add_gradient(seen, segment, micro_batch);
        });
    (void)caller_->end();
  }

  void add_by_copies(exec::Executor& executor, const exec::SegmentUse& use, int segment,
                     int micro_batch) const {
    const int64_t bytes = gradient_bytes(segment);
    std::vector<float> weights(static_cast<size_t>(bytes / 4)), gradient(weights.size());
    executor.copy(weights.data(), use.weights, bytes);
    executor.copy(gradient.data(), use.gradient, bytes);
    add_gradient({weights.data(), gradient.data(), use.gradient_first}, segment, micro_batch);
    executor.copy(use.gradient, gradient.data(), bytes);
  }

  void do_use(exec::Executor& executor, NextUse next) override {
    if (by_ == By::kHost) return External::do_use(executor, next);
    const model::ExternalUse& use = spec_.uses[next.use];
    exec::UseMode mode = {.zeroes = zeroes_};
    if (by_ == By::kStream) mode.stream = caller_.get();
    executor.ready(use.segments.front(),
                   use.backward ? exec::Pass::kBackward : exec::Pass::kForward, mode);
    for (const int s : use.segments) {
      const exec::SegmentUse one = executor.used(s);
      if (!use.backward) continue;
      by_ == By::kStream ? add_by_stream(one, s, next.micro_batch)
                         : add_by_copies(executor, one, s, next.micro_batch);
    }
    executor.done();
  }

  uint64_t run_by(By by, const plan::Placement& placement, const Caller& caller = {}) {
    const exec::ExecutorOptions options = device_options(by);
    input_.device = {};
    if (by != By::kHost) input_.device = device_->description();
    return run(placement, options, caller);
  }

  void expect_same_bits(test::Draw& draw, const Caller& caller = {}) {
    input_.device = {};
    const uint64_t expected = run_by(By::kHost, resident_placement(input_), caller);
    for (const By by : {By::kStream, By::kCopies}) {
      zeroes_ = draw.coin();
      input_.device.discrete = true;
      const plan::Placement placement =
          draw.coin() ? test::random_placement(draw, input_) : plan::smallest_placement(input_);
      EXPECT_EQ(run_by(by, placement, caller), expected);
    }
  }

  By by_ = By::kHost;
  bool zeroes_ = false;
  int seed_ = 1;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<kernels::Queue> caller_;  // ends before its device
};

TEST_F(ExternalDevice, HasTheBitsOfTheHost) {
  test::Draw draw(5);
  for (const std::vector<model::ExternalUse>& order : orders()) {
    spec_ = model::external_spec(segments_, order);
    for (const plan::UpdateRule& rule : plan::kUpdateTable) {
      input_.mode = rule.mode;
      input_.micro_batches = static_cast<int>(draw.between(1, 3));
      expect_same_bits(draw);
    }
  }
}

TEST_F(ExternalDevice, ASkippedUseAddsNothing) {
  test::Draw draw(6);
  Caller caller;
  caller.skips = [](int64_t step, NextUse next) {
    return step == 2 && (next.use == 1 || next.use == 6) && next.micro_batch != 1;
  };
  input_.micro_batches = 3;
  for (int i = 0; i < 3; ++i) expect_same_bits(draw, caller);
}

TEST_F(ExternalDevice, PlansOfAnyBudgetHaveTheBitsOfTheHost) {
  const uint64_t expected = run_by(By::kHost, resident_placement(input_));
  input_.device.discrete = true;
  const plan::Plan least = plan::build_plan(input_, plan::smallest_placement(input_));
  for (const int64_t more : {0, 100'000, 400'000}) {
    const auto budget = [&](plan::Arena arena) {
      return least.arenas.bytes[static_cast<size_t>(arena)] + more;
    };
    input_.host_budget = budget(plan::Arena::kHost) + 100'000;
    input_.device_budget = budget(plan::Arena::kDevice);
    EXPECT_EQ(run_by(By::kStream, plan::make_plan(input_, {}).placement), expected);
    input_.device.discrete = true;
  }
}

class OneUse : public ExternalDevice {
 protected:
  void open(By by, double delay_s = kDelay_s) {
    const exec::ExecutorOptions options = device_options(by, delay_s);
    input_.device = device_->description();
    plan_ = plan::build_plan(input_, plan::smallest_placement(input_));
    executor_ = std::make_unique<exec::Executor>(plan_, spec_, options);
    load_.program = plan::ProgramName::kLoad;
    load_.source = &source_;
    executor_->run(load_);
    executor_->submit(step_);
  }

  test::RandomSource source_{spec_, 3};
  plan::Plan plan_;
  exec::Instance load_, step_;
  std::unique_ptr<exec::Executor> executor_;
};

TEST_F(OneUse, AStreamThatWasNotNamedIsCaught) {
  open(By::kStream, 0.5);
  const auto other = device_->make_queue("other", 4);
  const exec::SegmentUse use = executor_->ready(0, exec::Pass::kForward, {.stream = caller_.get()});
  const std::vector<kernels::MemoryRange> ranges = {{use.weights, gradient_bytes(0), true}};
  try {
    other->begin("other work", ranges);  // the upload has hardly begun
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("nothing says which comes first"), std::string::npos)
        << error.what();
  }
}

TEST_F(OneUse, BytesOutsideOfTheUseAreAnErrorThatChangesNothing) {
  open(By::kCopies);
  const exec::SegmentUse use = executor_->ready(0, exec::Pass::kForward);
  std::vector<float> values(gradient_bytes(0) / 4 + 1);
  auto* weights = static_cast<float*>(const_cast<void*>(use.weights));
  const auto expect_refused = [&](void* to, const void* from, int64_t bytes) {
    try {
      executor_->copy(to, from, bytes);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage) << error.what();
    }
  };
  expect_refused(values.data(), weights + 1, spec_.segments[0].numel() * 4);  // one beyond
  expect_refused(values.data(), values.data() + 1, 4);
  expect_refused(weights, values.data(), 4);  // only gradients are written
  executor_->copy(values.data(), weights, 16);
  executor_->done();
}

TEST_F(OneUse, SecondsAreThoseOfTheStream) {
  open(By::kStream);
  const double nap_s = 0.05;
  const auto count = std::ssize(spec_.uses) * input_.micro_batches;
  const double begin_s = now_s();
  for (int64_t i = 0; i < count; ++i) {
    const NextUse next = executor_->next_use();
    const model::ExternalUse& use = spec_.uses[next.use];
    (void)executor_->ready(use.segments.front(),
                           use.backward ? exec::Pass::kBackward : exec::Pass::kForward,
                           {.stream = caller_.get(), .zeroes = true});
    if (next.use == 2) {
      caller_->begin("nap", {});
      kernels::call_in_order(*caller_, [nap_s](const kernels::HostView&) {
        std::this_thread::sleep_for(std::chrono::duration<double>(nap_s));
      });
      (void)caller_->end();
    }
    executor_->done();
  }
  executor_->wait(step_);
  EXPECT_GE(now_s() - begin_s, nap_s * input_.micro_batches);
  for (size_t use = 0; use < step_.use_s.size(); ++use) {
    const double mean_s = step_.use_s[use] / input_.micro_batches;
    EXPECT_EQ(mean_s >= nap_s * 0.9, use == 2) << use << ": " << mean_s;
  }
}

}  // namespace
}  // namespace strata
