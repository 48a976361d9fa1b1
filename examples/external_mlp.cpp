// SPDX-License-Identifier: Apache-2.0
// A program with its own forward and backward (a small MLP that learns a function) whose weights,
// gradients and Adam states are kept, moved and updated by Strata within 3 MiB of memory, on disk.
//
//   external_mlp DIRECTORY      DIRECTORY: scratch on a drive
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace {

constexpr int kWidth = 256, kLayers = 4, kRows = 64, kSteps = 200;
constexpr int64_t kBudget = int64_t{3} << 20;  // of 4 MiB of state

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

double train_step(strata::Session& session, std::vector<Rows>& x, std::mt19937& random) {
  session.begin(1e-3);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& value : x[0]) value = uniform(random);
  for (int l = 0; l < kLayers; ++l) {
    const strata::UnitUse use = session.acquire(l, strata::UnitPass::kForward);
    forward(static_cast<const float*>(use.weights), x[l], x[l + 1]);
    session.release();
  }
  double loss = 0;  // learn y = sin(3 x), element by element
  Rows d(x[0].size());
  for (size_t i = 0; i < d.size(); ++i) {
    const float error = x[kLayers][i] - std::sin(3 * x[0][i]);
    loss += error * error / static_cast<double>(d.size());
    d[i] = 2 * error / static_cast<float>(kRows);
  }
  for (int l = kLayers; l-- > 0;) {
    const strata::UnitUse use = session.acquire(l, strata::UnitPass::kBackward);
    if (use.overwrites) std::fill(use.gradient, use.gradient + kWidth * kWidth, 0.0f);
    backward(static_cast<const float*>(use.weights), x[l], x[l + 1], d, use.gradient);
    session.release();
  }
  session.end();
  return loss;
}

int run(const std::string& directory) {
  std::vector<strata::Unit> layers;
  for (int l = 0; l < kLayers; ++l) {
    layers.push_back({"layer" + std::to_string(l), {{"weight", {kWidth, kWidth}}}});
  }
  strata::UnitOptions options;
  options.memory_bytes = kBudget;
  options.nvme = {directory};
  options.clip = 1.0;
  strata::Session session = strata::Session::declare(layers, options);
  const strata::PlanText plan = session.plan();
  std::printf("%s\n", plan.text.c_str());
  if (!plan.fits) return 3;
  std::mt19937 random(7);
  session.load([&](int, int, int64_t, std::span<float> weights) {
    const float bound = std::sqrt(3.0f / kWidth);  // by the layer's inputs
    std::uniform_real_distribution<float> uniform(-bound, bound);
    for (float& weight : weights) weight = uniform(random);
  });
  std::vector<Rows> x(kLayers + 1, Rows(kRows * kWidth));
  double first = 0, loss = 0;
  for (int step = 1; step <= kSteps; ++step) {
    loss = train_step(session, x, random);
    if (step == 1) first = loss;
    if (step == 1 || step % 50 == 0) std::printf("step %3d  loss %.4f\n", step, loss);
  }
  return loss < 0.75 * first ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : ".");
  } catch (const strata::Error& error) {
    std::fprintf(stderr, "external_mlp: %s\n", error.what());
    return error.exit_code();
  }
}
