// SPDX-License-Identifier: Apache-2.0
// Training by our own forward and backward equals Transformers and torch.optim.AdamW in float64:
// losses and gradient norms of 20 steps, logits, every gradient of the first step, the weights at
// the end. PyTorch's own float32 is within 8e-7, 7e-6, 6e-7, 3e-6 and 8e-4 of these references.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/exec/segment_compute_reference.h"

namespace strata::exec {
namespace {

constexpr double kLossTolerance = 2e-5;
constexpr double kNormTolerance = 5e-4;
constexpr double kArrayTolerance = 1e-4;
constexpr double kFinalTolerance = 2e-3;
constexpr double kBf16Tolerance = 2e-2;

struct ParityCase {
  const char* name;
  const char* kernels;
  const kernels::Backend* backend;
};

class Parity : public testing::TestWithParam<ParityCase> {
 protected:
  Parity()
      : reference_(GetParam().name),
        directory_(model::ModelDirectory::open(case_path(GetParam().name))) {}

  std::unique_ptr<Driver> driver(Recipe recipe = Recipe::kFp32) const {
    auto result =
        std::make_unique<Driver>(directory_.spec(), DriverOptions{.recipe = recipe,
                                                                  .shape = reference_.shape(),
                                                                  .backend = GetParam().backend});
    result->load(directory_);
    return result;
  }

  template <typename Check>
  void for_each_parameter(const Check& check) const {
    const model::ModelSpec& spec = directory_.spec();
    for (size_t i = 0; i < spec.segments.size(); ++i) {
      for (const model::Parameter& parameter : spec.segments[i].parameters) {
        check(static_cast<int>(i), parameter);
      }
    }
  }

  double scale_of(const model::Parameter& parameter) const {
    return largest(reference_.array("grad." + parameter.stored.tensor));
  }

  // Without RoPE a bias of k adds the same to all scores of a query: its gradient is rounding, and
  // AdamW makes steps of the learning rate's size out of that.
  bool has_no_effect(const model::Parameter& parameter) const {
    return parameter.role == model::ParameterRole::kKeyBias &&
           largest(reference_.part("grad.", parameter)) < 1e-7 * scale_of(parameter);
  }

  Reference reference_;
  model::ModelDirectory directory_;
};

TEST_P(Parity, LogitsEqualTheReference) {
  const auto model = driver();
  const auto tokens = reference_.batch("tokens", 0)[0];
  const std::vector<float>& wanted = reference_.array("logits");
  const double scale = largest(wanted);
  auto first = wanted.begin();
  for (const double position : reference_.numbers("logit_positions")) {
    const auto found = model->logits(tokens, static_cast<int32_t>(position));
    const auto last = first + static_cast<std::ptrdiff_t>(found.size());
    EXPECT_LT(largest_difference(found, {first, last}, scale), kArrayTolerance) << position;
    first = last;
  }
  EXPECT_EQ(first, wanted.end());
}

TEST_P(Parity, GradientsOfTheFirstStepEqualTheReference) {
  const auto model = driver();
  const double loss =
      model->gradients(reference_.batch("tokens", 0), reference_.batch("targets", 0));
  EXPECT_NEAR(loss, reference_.numbers("loss")[0], kLossTolerance * loss);
  for_each_parameter([&](int segment, const model::Parameter& parameter) {
    const auto wanted = reference_.part("grad.", parameter);
    EXPECT_LT(largest_difference(model->grad(segment, parameter), wanted, scale_of(parameter)),
              kArrayTolerance)
        << parameter.name;
  });
}

TEST_P(Parity, TwentyStepsEqualTheReference) {
  const auto model = driver();
  const auto initial = driver();
  const auto losses = reference_.numbers("loss");
  const auto norms = reference_.numbers("grad_norm");
  for (int64_t step = 0; step < reference_.integer("steps"); ++step) {
    const StepResult result = model->step(reference_.batch("tokens", step),
                                          reference_.batch("targets", step), reference_.settings());
    const auto i = static_cast<size_t>(step);
    EXPECT_NEAR(result.loss, losses[i], kLossTolerance * losses[i]) << "step " << step;
    EXPECT_NEAR(result.grad_norm, norms[i], kNormTolerance * norms[i]) << "step " << step;
  }
  for_each_parameter([&](int segment, const model::Parameter& parameter) {
    if (has_no_effect(parameter)) return;
    const auto wanted = reference_.part("final.", parameter);
    const double change = largest_difference(initial->master(segment, parameter), wanted, 1.0);
    EXPECT_LT(largest_difference(model->master(segment, parameter), wanted, change),
              kFinalTolerance)
        << parameter.name;
  });
}

// Losses alone, and at twenty steps: the plain loops take too long to do this in a fast test too.
class Bf16Parity : public Parity {};

TEST_P(Bf16Parity, LossesStayNearFp32) {
  const auto model = driver(Recipe::kBf16);
  const auto losses = reference_.numbers("loss");
  for (int64_t step = 0; step < reference_.integer("steps"); ++step) {
    const StepResult result = model->step(reference_.batch("tokens", step),
                                          reference_.batch("targets", step), reference_.settings());
    const auto i = static_cast<size_t>(step);
    EXPECT_NEAR(result.loss, losses[i], kBf16Tolerance * losses[i]) << "step " << step;
  }
}

constexpr const char* kNames[] = {
    "gqa_untied",    "mha_tied_llama3",   "five_heads",   "sharded_bf16",
    "window",        "llama_biases",      "qwen2",        "float16",
    "fp8",           "qwen2_windows",     "mistral_bf16", "yarn_multi_query",
    "smollm",        "tinyllama",         "olmo2",        "olmo2_wide",
    "qwen3",         "qwen3_windows",     "gemma2",       "gemma2_untied",
    "gemma3",        "gemma3_pattern",    "gpt2",         "gpt2_bare",
    "phi3",          "phi3_long",         "smollm_mha",   "tinyllama_bf16",
    "gemma3_vision", "gemma3_vision_bf16"};

std::vector<ParityCase> cases(bool with_ref) {
  std::vector<ParityCase> all;
  for (const char* name : kNames) {
    if (with_ref) all.push_back({name, "ref", &kernels::ref_backend()});
    all.push_back({name, "cpu", &kernels::cpu_backend()});
  }
  return all;
}

std::string case_name(const testing::TestParamInfo<ParityCase>& one) {
  return std::string(one.param.name) + "_" + one.param.kernels;
}

INSTANTIATE_TEST_SUITE_P(Cases, Parity, testing::ValuesIn(cases(true)), case_name);
INSTANTIATE_TEST_SUITE_P(Cases, Bf16Parity, testing::ValuesIn(cases(false)), case_name);

}  // namespace
}  // namespace strata::exec
