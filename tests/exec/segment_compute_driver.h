// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/units.h"
#include "engine/exec/host_compute.h"
#include "engine/model_files/model_directory.h"
#include "kernels/parallel.h"
#include "tests/model/opened_model.h"

// The simplest trainer that there can be: all state in memory, layer-major over micro-batches.
// Buffers that an op may not read are filled with NaNs, and all have a guard behind them.
namespace strata::exec {

class GuardedBuffer {
 public:
  explicit GuardedBuffer(int64_t bytes)
      : bytes_(bytes),
        data_(static_cast<std::byte*>(
                  std::aligned_alloc(64, static_cast<size_t>(round_up(bytes, 64) + kGuardBytes))),
              std::free) {
    poison();
    std::memset(data_.get() + bytes_, 0x5a, kGuardBytes);
  }
  // 0xffffffff and 0xffff are NaNs.
  void poison() { std::memset(data_.get(), 0xff, static_cast<size_t>(bytes_)); }
  void zero() { std::memset(data_.get(), 0, static_cast<size_t>(bytes_)); }
  void* data() const { return data_.get(); }
  float* floats() const { return reinterpret_cast<float*>(data_.get()); }
  uint16_t* halves() const { return reinterpret_cast<uint16_t*>(data_.get()); }
  bool guard_is_whole() const {
    for (int64_t i = 0; i < kGuardBytes; ++i) {
      if (data_.get()[bytes_ + i] != std::byte{0x5a}) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuardBytes = 64;
  int64_t bytes_;
  std::unique_ptr<std::byte, void (*)(void*)> data_;
};

struct DriverOptions {
  Recipe recipe = Recipe::kFp32;
  model::BatchShape shape;
  const kernels::Backend* backend = nullptr;
  bool keep_interiors = false;
  int threads = 1;
};

// Settings of a training step, as in the references.
struct ReferenceSettings {
  kernels::AdamWSettings adamw;
  double clip = 1.0;
};

struct StepResult {
  double loss = 0;
  double grad_norm = 0;
};

class Driver {
 public:
  Driver(const model::ModelSpec& spec, const DriverOptions& options)
      : spec_(spec),
        options_(options),
        compute_(spec_, options.recipe, options.shape, *options.backend, options.threads),
        parallel_(options.threads) {
    for (size_t i = 0; i < spec_.segments.size(); ++i) {
      const int64_t numel = spec_.segments[i].numel();
      weights_.emplace_back(numel * bytes_of(dtype()));
      low_.emplace_back(numel * 4);
      grads_.emplace_back(numel * 4);
      exp_avg_.emplace_back(numel * 4);
      exp_avg_sq_.emplace_back(numel * 4);
      for (GuardedBuffer* buffer :
           {&weights_.back(), &low_.back(), &exp_avg_.back(), &exp_avg_sq_.back()}) {
        buffer->zero();
      }
      const auto size = model::footprint(spec_, static_cast<int>(i), options.shape, options.recipe,
                                         compute_.device());
      interiors_.emplace_back(size.interior_bytes);
      footprints_.push_back(size);
    }
  }

  DType dtype() const { return weight_dtype(options_.recipe); }
  WeightPlanes planes(size_t segment) const {
    return weight_planes(options_.recipe, weights_[segment].data(), low_[segment].data());
  }
  const model::ModelSpec& spec() const { return spec_; }

  void load(const model::ModelDirectory& directory) {
    for (size_t i = 0; i < spec_.segments.size(); ++i) {
      for (const model::Parameter& parameter : spec_.segments[i].parameters) {
        const std::vector<float> values = model::read_whole(directory, parameter);
        for (int64_t k = 0; k < parameter.numel; ++k) {
          planes(i).set(parameter.offset + k, values[static_cast<size_t>(k)]);
        }
      }
    }
  }

  std::vector<float> master(int segment, const model::Parameter& parameter) const {
    std::vector<float> values;
    const WeightPlanes from = planes(static_cast<size_t>(segment));
    for (int64_t k = parameter.offset; k < parameter.offset + parameter.numel; ++k) {
      values.push_back(from.master_at(k));
    }
    return values;
  }

  std::vector<float> grad(int segment, const model::Parameter& parameter) const {
    const float* first = grads_[static_cast<size_t>(segment)].floats() + parameter.offset;
    return {first, first + parameter.numel};
  }

  // Gradients of all micro-batches, and the mean loss over the tokens with a target.
  double gradients(const std::vector<std::vector<int32_t>>& tokens,
                   const std::vector<std::vector<int32_t>>& targets) {
    double loss = 0;
    parallel_.run([&] { loss = run_gradients(tokens, targets); });
    return loss;
  }

  StepResult step(const std::vector<std::vector<int32_t>>& tokens,
                  const std::vector<std::vector<int32_t>>& targets,
                  const ReferenceSettings& settings) {
    StepResult result;
    result.loss = gradients(tokens, targets);
    parallel_.run([&] { result.grad_norm = optimize(settings); });
    return result;
  }

  // [rows, V] of one position of each row.
  std::vector<float> logits(const std::vector<int32_t>& tokens, int32_t position) {
    std::vector<float> out(
        static_cast<size_t>(options_.shape.rows * spec_.architecture.vocabulary));
    const std::vector<int32_t> positions(static_cast<size_t>(options_.shape.rows), position);
    parallel_.run([&] {
      GuardedBuffer boundary(boundary_bytes());
      for (int i = 0; i + 1 < segment_count(); ++i) {
        SegmentCall call = call_of(i, tokens.data(), nullptr);
        call.input = boundary.data();  // in place: each output replaces its input
        call.output = boundary.data();
        with_workspace(footprint_of(i).forward_workspace_bytes, call,
                       [&] { compute_.forward(call); });
      }
      SegmentCall call = call_of(segment_count() - 1, nullptr, nullptr);
      call.input = boundary.data();
      call.logits = out.data();
      call.logit_position = positions.data();
      with_workspace(footprint_of(call.segment).forward_workspace_bytes, call,
                     [&] { compute_.logits(call); });
    });
    return out;
  }

  double evaluate(const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets) {
    double loss = 0;
    parallel_.run([&] {
      const auto boundaries = forward(tokens, false);
      SegmentCall call = call_of(segment_count() - 1, nullptr, targets.data());
      call.input = boundaries.back().data();
      call.loss_sum = &loss;
      with_workspace(footprint_of(call.segment).forward_workspace_bytes, call,
                     [&] { compute_.loss_forward(call); });
    });
    return loss;
  }

 private:
  int segment_count() const { return static_cast<int>(spec_.segments.size()); }
  int64_t boundary_bytes() const {
    return model::boundary_bytes(spec_, options_.shape, options_.recipe);
  }
  const model::Footprint& footprint_of(int segment) const {
    return footprints_[static_cast<size_t>(segment)];
  }

  SegmentCall call_of(int segment, const int32_t* tokens, const int32_t* targets) const {
    SegmentCall call;
    call.segment = segment;
    call.weights = weights_[static_cast<size_t>(segment)].data();
    const int shared = spec_.segments[static_cast<size_t>(segment)].shares;
    if (shared >= 0) call.shared_weights = weights_[static_cast<size_t>(shared)].data();
    call.tokens = tokens;
    call.targets = targets;
    return call;
  }

  template <typename Work>
  void with_workspace(int64_t bytes, SegmentCall& call, const Work& work) {
    GuardedBuffer workspace(bytes);
    call.workspace = workspace.data();
    work();
    STRATA_CHECK(workspace.guard_is_whole());
  }

  // Boundary tensors behind each segment but the head.
  std::vector<GuardedBuffer> forward(const std::vector<int32_t>& tokens, bool keep) {
    std::vector<GuardedBuffer> boundaries;
    for (int i = 0; i + 1 < segment_count(); ++i) {
      boundaries.emplace_back(boundary_bytes());
      SegmentCall call = call_of(i, tokens.data(), nullptr);
      if (i > 0) call.input = boundaries[static_cast<size_t>(i - 1)].data();
      call.output = boundaries.back().data();
      if (keep && i > 0) call.interior = interiors_[static_cast<size_t>(i)].data();
      with_workspace(footprint_of(i).forward_workspace_bytes, call,
                     [&] { compute_.forward(call); });
    }
    return boundaries;
  }

  double run_gradients(const std::vector<std::vector<int32_t>>& tokens,
                       const std::vector<std::vector<int32_t>>& targets) {
    int64_t count = 0;
    for (const auto& row : targets) {
      for (const int32_t target : row) count += target >= 0;
    }
    for (GuardedBuffer& grad : grads_) grad.poison();
    double loss = 0;
    for (size_t micro = 0; micro < tokens.size(); ++micro) {
      auto boundaries = forward(tokens[micro], options_.keep_interiors);
      GuardedBuffer grad(boundary_bytes());
      loss += head(boundaries.back(), grad, targets[micro], 1.0f / static_cast<float>(count),
                   micro == 0);
      for (int i = segment_count() - 2; i >= 0; --i) {
        backward(i, boundaries, grad, tokens[micro], micro == 0);
      }
    }
    for (const GuardedBuffer& buffer : grads_) STRATA_CHECK(buffer.guard_is_whole());
    return loss / static_cast<double>(count);
  }

  double head(const GuardedBuffer& input, const GuardedBuffer& grad,
              const std::vector<int32_t>& targets, float scale, bool first) {
    double loss = 0;
    SegmentCall call = call_of(segment_count() - 1, nullptr, targets.data());
    const int shared = spec_.segments.back().shares;
    call.grad = grads_.back().floats();
    call.grad_first = first;
    if (shared >= 0) call.shared_grad = grads_[static_cast<size_t>(shared)].floats();
    call.shared_grad_first = first;
    call.input = input.data();
    call.grad_input = grad.data();
    call.grad_scale = scale;
    call.loss_sum = &loss;
    with_workspace(footprint_of(call.segment).backward_workspace_bytes, call,
                   [&] { compute_.loss(call); });
    return loss;
  }

  void backward(int segment, const std::vector<GuardedBuffer>& boundaries,
                const GuardedBuffer& grad, const std::vector<int32_t>& tokens, bool first) {
    const bool tied_embedding = segment == spec_.segments.back().shares;
    GuardedBuffer& interior = interiors_[static_cast<size_t>(segment)];
    SegmentCall call = call_of(segment, tokens.data(), nullptr);
    call.interior = interior.data();
    if (segment > 0) call.input = boundaries[static_cast<size_t>(segment - 1)].data();
    if (segment > 0 && !options_.keep_interiors) {
      interior.poison();
      with_workspace(footprint_of(segment).recompute_workspace_bytes, call,
                     [&] { compute_.recompute(call); });
    }
    call.grad = grads_[static_cast<size_t>(segment)].floats();
    call.grad_first = first && !tied_embedding;
    call.grad_output = grad.data();
    call.grad_input = grad.data();
    with_workspace(footprint_of(segment).backward_workspace_bytes, call,
                   [&] { compute_.backward(call); });
    STRATA_CHECK(interior.guard_is_whole());
  }

  double optimize(const ReferenceSettings& settings) {
    ++steps_;
    double squares = 0;
    for (size_t i = 0; i < spec_.segments.size(); ++i) squares += sum_squares(i);
    const double norm = std::sqrt(squares);
    const double coefficient = std::min(1.0, settings.clip / (norm + 1e-6));
    for (size_t i = 0; i < spec_.segments.size(); ++i) {
      for (const model::Parameter& parameter : spec_.segments[i].parameters) {
        if (!parameter.frozen) update(i, parameter, settings.adamw, coefficient);
      }
    }
    return norm;
  }

  // Over the whole trained part: padding must not count.
  double sum_squares(size_t segment) const {
    kernels::SquaresPartial partial;
    kernels::SumSquares op{.count = spec_.segments[segment].trainable_numel,
                           .x = grads_[segment].floats(),
                           .out = &partial};
    if (op.count == 0) return 0;
    GuardedBuffer workspace(kernels::workspace_bytes(op, options_.threads));
    op.workspace = {static_cast<std::byte*>(workspace.data()),
                    kernels::workspace_bytes(op, options_.threads)};
    options_.backend->sum_squares(op);
    STRATA_CHECK(partial.not_finite == 0);
    return partial.sum;
  }

  void update(size_t segment, const model::Parameter& parameter, kernels::AdamWSettings settings,
              double coefficient) {
    if (!spec_.groups[static_cast<size_t>(parameter.group)].decays) settings.weight_decay = 0;
    kernels::AdamW op{.count = parameter.numel,
                      .exp_avg = exp_avg_[segment].floats() + parameter.offset,
                      .exp_avg_sq = exp_avg_sq_[segment].floats() + parameter.offset,
                      .grad = grads_[segment].floats() + parameter.offset,
                      .scalars = kernels::adamw_scalars(settings, steps_, coefficient)};
    const WeightPlanes weights = planes(segment).from(parameter.offset);
    op.master = weights.master;
    op.hi = weights.hi;
    op.lo = weights.lo;
    options_.backend->adamw(op);
  }

  const model::ModelSpec spec_;
  const DriverOptions options_;
  const HostCompute compute_;
  const kernels::Parallel parallel_;
  std::vector<GuardedBuffer> weights_;
  std::vector<GuardedBuffer> low_;
  std::vector<GuardedBuffer> grads_;
  std::vector<GuardedBuffer> exp_avg_;
  std::vector<GuardedBuffer> exp_avg_sq_;
  std::vector<GuardedBuffer> interiors_;
  std::vector<model::Footprint> footprints_;
  int64_t steps_ = 0;
};

}  // namespace strata::exec
