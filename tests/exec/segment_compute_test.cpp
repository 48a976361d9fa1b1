// SPDX-License-Identifier: Apache-2.0
// What SegmentCompute promises beside the right numbers: the same bits whatever was kept or
// recomputed and with any number of threads, nothing for frozen parameters, gradients that add up,
// sizes as footprint says.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "engine/base/rng.h"
#include "tests/exec/segment_compute_reference.h"
#include "tests/model/opened_model.h"

namespace strata::exec {
namespace {

using model::ParameterRole;

struct Setup {
  const char* name = "gqa_untied";
  Recipe recipe = Recipe::kFp32;
  bool keep_interiors = false;
  int threads = 1;
  std::set<ParameterRole> frozen = {};
};

std::unique_ptr<Driver> make_driver(const Setup& setup, const Reference& reference) {
  const auto directory = model::ModelDirectory::open(case_path(setup.name));
  model::ModelSpec spec = directory.spec();
  for (model::Segment& segment : spec.segments) {
    for (model::Parameter& parameter : segment.parameters) {
      parameter.frozen = setup.frozen.count(parameter.role) > 0;
    }
  }
  model::assign_offsets(spec, 1);
  auto driver = std::make_unique<Driver>(spec, DriverOptions{.recipe = setup.recipe,
                                                             .shape = reference.shape(),
                                                             .backend = &kernels::cpu_backend(),
                                                             .keep_interiors = setup.keep_interiors,
                                                             .threads = setup.threads});
  driver->load(directory);
  return driver;
}

// Loss and every gradient as bytes.
std::string bits_of_gradients(const Setup& setup) {
  const Reference reference(setup.name);
  const auto driver = make_driver(setup, reference);
  const double loss =
      driver->gradients(reference.batch("tokens", 0), reference.batch("targets", 0));
  std::string bits(reinterpret_cast<const char*>(&loss), sizeof loss);
  for (size_t i = 0; i < driver->spec().segments.size(); ++i) {
    for (const model::Parameter& parameter : driver->spec().segments[i].parameters) {
      const auto grad = driver->grad(static_cast<int>(i), parameter);
      bits.append(reinterpret_cast<const char*>(grad.data()), grad.size() * 4);
    }
  }
  return bits;
}

TEST(SegmentCompute, KeptAndRecomputedInteriorsGiveTheSameBits) {
  for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
    for (const char* name : {"gqa_untied", "mha_tied_llama3", "olmo2", "gemma3"}) {
      EXPECT_EQ(bits_of_gradients({.name = name, .recipe = recipe, .keep_interiors = true}),
                bits_of_gradients({.name = name, .recipe = recipe, .keep_interiors = false}))
          << name;
    }
  }
}

TEST(SegmentCompute, ThreadsDoNotChangeBits) {
  for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
    for (const char* name : {"five_heads", "gemma3"}) {
      const std::string one = bits_of_gradients({.name = name, .recipe = recipe});
      EXPECT_EQ(bits_of_gradients({.name = name, .recipe = recipe, .threads = 2}), one) << name;
    }
  }
}

void check_loss_alone(const char* name) {
  const Reference reference(name);
  const auto driver = make_driver({.name = name}, reference);
  const auto tokens = reference.batch("tokens", 3);
  const auto targets = reference.batch("targets", 3);
  double sum = 0;
  int64_t count = 0;
  for (size_t micro = 0; micro < tokens.size(); ++micro) {
    sum += driver->evaluate(tokens[micro], targets[micro]);
    for (const int32_t target : targets[micro]) count += target >= 0;
  }
  EXPECT_EQ(sum / static_cast<double>(count), driver->gradients(tokens, targets)) << name;
}

TEST(SegmentCompute, TheLossAloneEqualsTheLossWithGradients) {
  check_loss_alone("mha_tied_llama3");
  check_loss_alone("gemma2");
}

TEST(SegmentCompute, FrozenParametersHaveNoGradientAndTheRestKeepTheirs) {
  // Roles that split the joint products in every way, and a tied and an untied table; at the end
  // biases without their matrices.
  const std::vector<std::set<ParameterRole>> sets = {
      {ParameterRole::kQuery},
      {ParameterRole::kKey},
      {ParameterRole::kValue, ParameterRole::kGate},
      {ParameterRole::kUp, ParameterRole::kOutput, ParameterRole::kDown},
      {ParameterRole::kNorm},
      {ParameterRole::kEmbedding, ParameterRole::kHead},
      {ParameterRole::kQuery, ParameterRole::kKey, ParameterRole::kValue, ParameterRole::kNorm},
      {ParameterRole::kKeyBias, ParameterRole::kOutputBias, ParameterRole::kUpBias},
      {ParameterRole::kPostNorm, ParameterRole::kQueryNorm},
      {ParameterRole::kKeyNorm, ParameterRole::kDown, ParameterRole::kQuery},
      {ParameterRole::kNorm, ParameterRole::kQuery, ParameterRole::kKey, ParameterRole::kValue,
       ParameterRole::kOutput, ParameterRole::kGate, ParameterRole::kUp, ParameterRole::kDown}};
  for (const char* name : {"gqa_untied", "mha_tied_llama3", "llama_biases", "olmo2", "gemma3"}) {
    const Reference reference(name);
    for (const auto& frozen : sets) {
      const auto driver = make_driver({.name = name, .frozen = frozen}, reference);
      driver->gradients(reference.batch("tokens", 0), reference.batch("targets", 0));
      for (size_t i = 0; i < driver->spec().segments.size(); ++i) {
        for (const model::Parameter& parameter : driver->spec().segments[i].parameters) {
          const auto grad = driver->grad(static_cast<int>(i), parameter);
          if (parameter.frozen) {
            for (const float value : grad) ASSERT_TRUE(std::isnan(value)) << parameter.name;
          } else {
            const auto& wanted = reference.array("grad." + parameter.name);
            EXPECT_LT(largest_difference(grad, wanted, largest(wanted)), 1e-4) << parameter.name;
          }
        }
      }
    }
  }
}

// One segment called by hand, for what the driver does not do.
class OneSegment {
 public:
  OneSegment(const Reference& reference, int segment, Recipe recipe)
      : directory_(model::ModelDirectory::open(case_path("gqa_untied"))),
        shape_(reference.shape()),
        recipe_(recipe),
        segment_(segment),
        compute_(directory_.spec(), recipe, shape_, kernels::cpu_backend(), 1),
        size_(model::footprint(directory_.spec(), segment, shape_, recipe, compute_.device())),
        weights_(this->segment().numel() * bytes_of(dtype())),
        interior_(size_.interior_bytes),
        workspace_(std::max(size_.forward_workspace_bytes, size_.backward_workspace_bytes)),
        input_(boundary_bytes()) {
    weights_.zero();
    for (const model::Parameter& parameter : this->segment().parameters) {
      const std::vector<float> values = model::read_whole(directory_, parameter);
      for (int64_t i = 0; i < parameter.numel; ++i) {
        store(weights_, parameter.offset + i, values[static_cast<size_t>(i)]);
      }
    }
    const Philox random(9);
    for (int64_t i = 0; i < shape_.tokens() * directory_.architecture().hidden; ++i) {
      store(input_, i, static_cast<float>(random.uniform(static_cast<uint64_t>(i)) - 0.5));
    }
  }

  const model::Segment& segment() const {
    return directory_.spec().segments[static_cast<size_t>(segment_)];
  }
  const model::Footprint& size() const { return size_; }
  void forward(const SegmentCall& call) const {
    parallel_.run([&] { compute_.forward(call); });
  }
  void recompute(const SegmentCall& call) const {
    parallel_.run([&] { compute_.recompute(call); });
  }
  void backward(const SegmentCall& call) const {
    parallel_.run([&] { compute_.backward(call); });
  }
  DType dtype() const { return weight_dtype(recipe_); }
  int64_t boundary_bytes() const {
    return model::boundary_bytes(directory_.spec(), shape_, recipe_);
  }
  std::string bits(const GuardedBuffer& boundary) const {
    const int64_t bytes = shape_.tokens() * directory_.architecture().hidden * bytes_of(dtype());
    return {static_cast<const char*>(boundary.data()), static_cast<size_t>(bytes)};
  }
  std::string interior_bits() const {
    return {static_cast<const char*>(interior_.data()), static_cast<size_t>(size_.interior_bytes)};
  }

  SegmentCall call() {
    workspace_.poison();
    SegmentCall result;
    result.segment = segment_;
    result.weights = weights_.data();
    result.input = input_.data();
    result.interior = interior_.data();
    result.workspace = workspace_.data();
    return result;
  }

 private:
  void store(GuardedBuffer& buffer, int64_t index, float value) const {
    if (dtype() == DType::kF32) {
      buffer.floats()[index] = value;
    } else {
      buffer.halves()[index] = to_bf16(value);
    }
  }

  model::ModelDirectory directory_;
  model::BatchShape shape_;
  Recipe recipe_;
  int segment_;
  HostCompute compute_;
  kernels::Parallel parallel_{1};
  model::Footprint size_;
  GuardedBuffer weights_;
  GuardedBuffer interior_;
  GuardedBuffer workspace_;
  GuardedBuffer input_;
};

TEST(SegmentCompute, RecomputeGivesForwardsInteriorAndOutput) {
  const Reference reference("gqa_untied");
  for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
    for (const int index : {1, 2}) {
      OneSegment one(reference, index, recipe);
      GuardedBuffer first(one.boundary_bytes());
      GuardedBuffer second(one.boundary_bytes());
      SegmentCall call = one.call();
      call.output = first.data();
      one.forward(call);
      const std::string interior = one.interior_bits();

      call = one.call();
      call.output = second.data();
      one.recompute(call);
      EXPECT_EQ(one.bits(second), one.bits(first));
      EXPECT_EQ(one.interior_bits(), interior);

      call = one.call();
      one.recompute(call);
      EXPECT_EQ(one.interior_bits(), interior);

      call = one.call();
      call.interior = nullptr;
      call.output = second.data();
      one.forward(call);
      EXPECT_EQ(one.bits(second), one.bits(first));
    }
  }
}

TEST(SegmentCompute, GradientsOfParametersAndOfTheInputAreIndependent) {
  const Reference reference("gqa_untied");
  for (const int index : {1, 2}) {
    OneSegment one(reference, index, Recipe::kFp32);
    const int64_t numel = one.segment().numel();
    GuardedBuffer grad_output(one.boundary_bytes());
    std::memcpy(grad_output.data(), one.call().input, static_cast<size_t>(one.boundary_bytes()));
    const auto run = [&](GuardedBuffer* grad, bool grad_first, GuardedBuffer* grad_input) {
      one.recompute(one.call());
      SegmentCall call = one.call();
      call.grad_output = grad_output.data();
      call.grad = grad == nullptr ? nullptr : grad->floats();
      call.grad_first = grad_first;
      call.grad_input = grad_input == nullptr ? nullptr : grad_input->data();
      one.backward(call);
    };
    GuardedBuffer grad(numel * 4);
    GuardedBuffer alone(numel * 4);
    GuardedBuffer grad_input(one.boundary_bytes());
    GuardedBuffer input_alone(one.boundary_bytes());
    run(&grad, true, &grad_input);
    run(&alone, true, nullptr);
    run(nullptr, true, &input_alone);
    EXPECT_EQ(std::memcmp(grad.data(), alone.data(), static_cast<size_t>(numel * 4)), 0);
    EXPECT_EQ(one.bits(grad_input), one.bits(input_alone));

    // A second micro-batch with the same gradient doubles it, but for the rounding of the sums.
    run(&alone, false, nullptr);
    const double scale = largest({grad.floats(), grad.floats() + numel});
    for (int64_t i = 0; i < numel; ++i) {
      ASSERT_NEAR(alone.floats()[i], 2 * grad.floats()[i], 1e-6 * scale) << i;
    }
  }
}

TEST(SegmentCompute, PaddingOfAFirstGradientIsZero) {
  const Reference reference("gqa_untied");
  OneSegment one(reference, 1, Recipe::kFp32);
  GuardedBuffer grad(one.segment().numel() * 4);
  GuardedBuffer grad_output(one.boundary_bytes());
  grad_output.zero();
  one.recompute(one.call());
  SegmentCall call = one.call();
  call.grad = grad.floats();
  call.grad_first = true;
  call.grad_output = grad_output.data();
  call.grad_input = grad_output.data();
  one.backward(call);
  EXPECT_GT(one.segment().numel(), one.segment().parameters.back().offset);
  for (int64_t i = 0; i < one.segment().numel(); ++i) ASSERT_EQ(grad.floats()[i], 0.0f) << i;
}

}  // namespace
}  // namespace strata::exec
