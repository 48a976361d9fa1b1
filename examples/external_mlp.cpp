// SPDX-License-Identifier: Apache-2.0
// A program with its own forward and backward (a small MLP that learns a function) whose weights,
// gradients and Adam states are kept, moved and updated by Strata within 3 MiB of memory, on disk.
//
//   external_mlp DIRECTORY      DIRECTORY: scratch on a drive
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/exec/executor.h"
#include "engine/model/external.h"
#include "engine/plan/planner.h"

namespace {

using namespace strata;

constexpr int kWidth = 256, kLayers = 4, kRows = 64, kSteps = 200;
constexpr int64_t kBudget = int64_t{3} << 20;  // of 4 MiB of state

// Initial weights: uniform, scaled by the layer's inputs; moments zero.
class Initial : public exec::StateSource {
 public:
  void read(const exec::ChunkState& chunk) override {
    const Philox random(7);
    auto* master = static_cast<float*>(chunk.hi);
    for (int64_t i = 0; i < chunk.hi_count; ++i) {
      const double u = random.uniform(static_cast<uint64_t>(chunk.hi_first + i), chunk.segment + 1);
      master[i] = static_cast<float>((2 * u - 1) * std::sqrt(3.0 / kWidth));
      chunk.exp_avg[i] = chunk.exp_avg_sq[i] = 0;
    }
  }
};

using Rows = std::vector<float>;  // [kRows, kWidth]

// y = tanh(x W^T)
void forward(const float* w, const Rows& x, Rows& y) {
  for (int r = 0; r < kRows; ++r) {
    for (int o = 0; o < kWidth; ++o) {
      float sum = 0;
      for (int i = 0; i < kWidth; ++i) sum += x[r * kWidth + i] * w[o * kWidth + i];
      y[r * kWidth + o] = std::tanh(sum);
    }
  }
}

// Adds to `gradient` and turns dy into dx.
void backward(const float* w, const Rows& x, const Rows& y, Rows& dy, float* gradient) {
  Rows dx(x.size(), 0.0f);
  for (int r = 0; r < kRows; ++r) {
    for (int o = 0; o < kWidth; ++o) {
      const float d = dy[r * kWidth + o] * (1 - y[r * kWidth + o] * y[r * kWidth + o]);
      for (int i = 0; i < kWidth; ++i) {
        gradient[o * kWidth + i] += d * x[r * kWidth + i];
        dx[r * kWidth + i] += d * w[o * kWidth + i];
      }
    }
  }
  dy = dx;
}

double train_step(exec::Executor& executor, std::vector<Rows>& x, int64_t step) {
  exec::Instance instance;
  instance.settings = {.step = step, .lr = 1e-3, .clip = 1.0};
  executor.submit(instance);
  const Philox random(static_cast<uint64_t>(step));
  for (size_t i = 0; i < x[0].size(); ++i) x[0][i] = static_cast<float>(2 * random.uniform(i) - 1);
  for (int l = 0; l < kLayers; ++l) {
    const exec::SegmentUse use = executor.ready(l, exec::Pass::kForward);
    forward(static_cast<const float*>(use.weights), x[l], x[l + 1]);
    executor.done();
  }
  double loss = 0;  // learn y = sin(3 x), element by element
  Rows d(x[0].size());
  for (size_t i = 0; i < d.size(); ++i) {
    const float error = x[kLayers][i] - std::sin(3 * x[0][i]);
    loss += error * error / static_cast<double>(d.size());
    d[i] = 2 * error / static_cast<float>(kRows);
  }
  for (int l = kLayers; l-- > 0;) {
    const exec::SegmentUse use = executor.ready(l, exec::Pass::kBackward);
    if (use.gradient_first) std::fill(use.gradient, use.gradient + kWidth * kWidth, 0.0f);
    backward(static_cast<const float*>(use.weights), x[l], x[l + 1], d, use.gradient);
    executor.done();
  }
  executor.wait(instance);
  return loss;
}

int run(const std::string& directory) {
  std::vector<model::ExternalSegment> layers;
  for (int l = 0; l < kLayers; ++l) {
    layers.push_back({"layer" + std::to_string(l), {{"weight", {kWidth, kWidth}}}});
  }
  const model::ModelSpec spec = model::external_spec(layers);
  plan::PlanInput input;
  input.spec = &spec;
  input.host_budget = kBudget;
  input.nvme_budget = int64_t{1} << 30;
  const plan::PlannedRun planned = plan::make_plan(input, {});
  exec::ExecutorOptions options;
  options.backend = &kernels::cpu_backend();
  options.external = true;
  options.volume.directories = {directory};
  exec::Executor executor(planned.plan, spec, options);
  Initial initial;
  exec::Instance load;
  load.program = plan::ProgramName::kLoad;
  load.source = &initial;
  executor.run(load);
  std::vector<Rows> x(kLayers + 1, Rows(kRows * kWidth));
  for (int64_t step = 1; step <= kSteps; ++step) {
    const double loss = train_step(executor, x, step);
    if (step == 1 || step % 50 == 0)
      std::printf("step %3d  loss %.4f\n", static_cast<int>(step), loss);
  }
  const exec::IoTotals io = executor.io_totals();
  std::printf("NVMe: %.1f MB read (all verified), %.1f MB written\n",
              static_cast<double>(io.bytes_read) / 1e6,
              static_cast<double>(io.bytes_written) / 1e6);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : ".");
  } catch (const Error& error) {
    std::fprintf(stderr, "external_mlp: %s\n", error.what());
    return error.exit_code();
  }
}
