// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/segment_compute.h"

#include <cmath>
#include <numbers>

#include "engine/base/check.h"
#include "engine/exec/segment_compute_ops.h"

namespace strata::exec {
namespace {

using model::ParameterRole;
using model::SegmentKind;

// Frequency of each pair of a head. In f32 where Transformers computes in f32: pretrained weights
// have seen exactly these roundings, and at long positions they show.
std::vector<float> rope_frequencies(const model::Rope& rope, int64_t head_size) {
  std::vector<float> frequencies(static_cast<size_t>(head_size / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_size);
    const float power = static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
    float frequency = 1.0f / power;
    if (rope.scaling == model::RopeScaling::kLinear) {
      frequency = static_cast<float>(frequency / rope.factor);
    } else if (rope.scaling == model::RopeScaling::kLlama3) {
      // Long waves are slowed down by `factor`, short ones stay, those between are blended.
      const double original = static_cast<double>(rope.original_max_position);
      const double wave_length = 2.0 * std::numbers::pi / frequency;
      const double smooth = (original / wave_length - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
      if (wave_length > original / rope.low_freq_factor) {
        frequency = static_cast<float>(frequency / rope.factor);
      } else if (wave_length >= original / rope.high_freq_factor) {
        frequency =
            static_cast<float>((1.0 - smooth) * frequency / rope.factor + smooth * frequency);
      }
    }
    frequencies[i] = frequency;
  }
  return frequencies;
}

}  // namespace

SegmentCompute::SegmentCompute(const model::ModelSpec& spec, model::Recipe recipe,
                               model::BatchShape shape, const kernels::Backend& backend,
                               int threads)
    : spec_(spec), recipe_(recipe), shape_(shape), backend_(backend) {
  STRATA_CHECK(shape.rows > 0 && shape.length > 0 && threads > 0);
  layouts_.reserve(spec.segments.size());
  for (size_t i = 0; i < spec.segments.size(); ++i) {
    layouts_.push_back(model::segment_layout(spec, static_cast<int>(i), shape, recipe, threads));
  }
  const auto frequencies = rope_frequencies(spec.architecture.rope, spec.architecture.head_size);
  rope_cos_.reserve(frequencies.size() * static_cast<size_t>(shape.length));
  rope_sin_.reserve(frequencies.size() * static_cast<size_t>(shape.length));
  for (int64_t position = 0; position < shape.length; ++position) {
    for (const float frequency : frequencies) {
      const float angle = static_cast<float>(position) * frequency;
      rope_cos_.push_back(static_cast<float>(std::cos(static_cast<double>(angle))));
      rope_sin_.push_back(static_cast<float>(std::sin(static_cast<double>(angle))));
    }
  }
}

SegmentContext SegmentCompute::context(const SegmentCall& call) const {
  STRATA_CHECK(call.segment >= 0 && static_cast<size_t>(call.segment) < layouts_.size());
  const size_t index = static_cast<size_t>(call.segment);
  return {spec_.architecture,
          spec_.segments[index],
          layouts_[index],
          shape_,
          model::weight_dtype(recipe_),
          backend_,
          rope_cos_.data(),
          rope_sin_.data(),
          call};
}

HeadMatrix SegmentCompute::head_matrix(const SegmentContext& context) const {
  STRATA_CHECK(context.segment.kind == SegmentKind::kHead);
  const SegmentCall& call = context.call;
  if (context.segment.shares < 0) {
    return {context.weight(ParameterRole::kHead), context.grad(ParameterRole::kHead),
            call.grad_first};
  }
  const model::Segment& owner = spec_.segments[static_cast<size_t>(context.segment.shares)];
  const model::Parameter& matrix = model::parameter_of(owner, ParameterRole::kEmbedding);
  const bool trained = call.shared_grad != nullptr && !matrix.frozen;
  return {context.at(call.shared_weights, matrix.offset),
          trained ? call.shared_grad + matrix.offset : nullptr, call.shared_grad_first};
}

void SegmentCompute::forward(const SegmentCall& call) const {
  const SegmentContext c = context(call);
  std::byte* interior = call.interior != nullptr ? static_cast<std::byte*>(call.interior)
                                                 : c.workspace_bytes(c.layout.own_interior);
  STRATA_CHECK(call.output != nullptr);
  if (c.segment.kind == SegmentKind::kEmbedding) {
    embedding_forward(c);
  } else if (c.segment.kind == SegmentKind::kAttention) {
    attention_forward(c, interior);
  } else {
    STRATA_CHECK(c.segment.kind == SegmentKind::kMlp);
    mlp_forward(c, interior);
  }
}

void SegmentCompute::recompute(const SegmentCall& call) const {
  const SegmentContext c = context(call);
  STRATA_CHECK(call.interior != nullptr);
  std::byte* interior = static_cast<std::byte*>(call.interior);
  if (c.segment.kind == SegmentKind::kAttention) {
    attention_forward(c, interior);
  } else {
    STRATA_CHECK(c.segment.kind == SegmentKind::kMlp);
    mlp_forward(c, interior);
  }
}

void SegmentCompute::backward(const SegmentCall& call) const {
  const SegmentContext c = context(call);
  if (call.grad != nullptr && call.grad_first) zero_padding(c, c.segment, call.grad);
  if (c.segment.kind == SegmentKind::kEmbedding) {
    embedding_backward(c);
  } else if (c.segment.kind == SegmentKind::kAttention) {
    attention_backward(c);
  } else {
    STRATA_CHECK(c.segment.kind == SegmentKind::kMlp);
    mlp_backward(c);
  }
}

void SegmentCompute::loss(const SegmentCall& call) const {
  const SegmentContext c = context(call);
  const HeadMatrix matrix = head_matrix(c);
  if (call.grad != nullptr && call.grad_first) zero_padding(c, c.segment, call.grad);
  if (c.segment.shares >= 0 && call.shared_grad != nullptr && call.shared_grad_first) {
    zero_padding(c, spec_.segments[static_cast<size_t>(c.segment.shares)], call.shared_grad);
  }
  head_loss(c, matrix);
}

void SegmentCompute::loss_forward(const SegmentCall& call) const {
  const SegmentContext c = context(call);
  head_loss_forward(c, head_matrix(c));
}

void SegmentCompute::logits(const SegmentCall& call) const {
  const SegmentContext c = context(call);
  head_logits(c, head_matrix(c));
}

}  // namespace strata::exec
