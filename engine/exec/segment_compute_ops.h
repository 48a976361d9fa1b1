// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/exec/segment_compute.h"

// The parts that SegmentCompute is put together from: one file for each kind of segment.
namespace strata::exec {

// One call with everything that its segment's code looks up.
struct SegmentContext {
  const model::Architecture& architecture;
  const model::Segment& segment;
  const model::SegmentLayout& layout;
  const model::BatchShape shape;
  const DType dtype;     // of weights and boundary tensors
  const DType interior;  // of what is between them
  const kernels::DeviceOps& ops;
  kernels::Queue& queue;
  const SegmentCall& call;

  int64_t tokens() const { return shape.tokens(); }

  std::byte* workspace_bytes(const model::Span& span) const {
    return static_cast<std::byte*>(call.workspace) + span.offset;
  }
  kernels::Interior workspace(const model::Span& span) const {
    return {workspace_bytes(span), interior};
  }
  float* workspace_floats(const model::Span& span) const {
    return reinterpret_cast<float*>(workspace_bytes(span));
  }
  kernels::Interior part(std::byte* kept, const model::Span& span) const {
    return {kept + span.offset, interior};
  }
  kernels::Workspace scratch(const model::Span& span) const {
    return {span.bytes > 0 ? workspace_bytes(span) : nullptr, span.bytes};
  }

  // Weights at an offset in elements.
  const void* weight(int64_t offset) const { return at(call.weights, offset); }
  const void* weight(model::ParameterRole role) const {
    return weight(model::parameter_of(segment, role).offset);
  }
  const void* at(const void* base, int64_t offset) const {
    return static_cast<const std::byte*>(base) + offset * bytes_of(dtype);
  }

  // Where a parameter's gradient goes; null where none is wanted, or there is no such parameter.
  float* grad(model::ParameterRole role) const {
    const model::Parameter* parameter = model::find_parameter(segment, role);
    const bool wanted = call.grad != nullptr && parameter != nullptr && !parameter->frozen;
    return wanted ? call.grad + parameter->offset : nullptr;
  }
  bool trains_norm() const {
    return grad(model::ParameterRole::kNorm) != nullptr ||
           grad(model::ParameterRole::kNormBias) != nullptr;
  }
  float norm_offset() const { return architecture.block.norm_offset ? 1.0f : 0.0f; }
  float* grad(const model::Projection& projection) const {
    return call.grad == nullptr || projection.frozen ? nullptr : call.grad + projection.offset;
  }
  float* bias_grad(const model::Projection& projection) const {
    const bool wanted =
        call.grad != nullptr && projection.bias_offset >= 0 && !projection.bias_frozen;
    return wanted ? call.grad + projection.bias_offset : nullptr;
  }
  const void* bias(const model::Projection& projection) const {
    return projection.bias_offset >= 0 ? weight(projection.bias_offset) : nullptr;
  }
};

// Statistics in a kept interior.
inline float* floats_part(std::byte* kept, const model::Span& span) {
  return reinterpret_cast<float*>(kept + span.offset);
}

// Products of one input with the matrices of `projections`; `width` columns are one row of y or dy.
struct ProjectionOperands {
  const std::vector<model::Projection>& projections;
  int64_t inputs = 0;
  int64_t width = 0;
  const model::Span& scratch;
};
void project(const SegmentContext& context, const ProjectionOperands& operands,
             kernels::ConstInterior x, kernels::Interior y);
void project_input_grad(const SegmentContext& context, const ProjectionOperands& operands,
                        kernels::ConstInterior dy, kernels::Interior dx);
void project_weight_grad(const SegmentContext& context, const ProjectionOperands& operands,
                         kernels::ConstInterior dy, kernels::ConstInterior x);

// The norm of rows of a boundary tensor, in `y`. Backward needs `rstd`: SegmentLayout::rstd.
void norm_rows(const SegmentContext& context, const void* x, int64_t rows, kernels::Interior y,
               float* rstd);
void norm_input(const SegmentContext& context, kernels::Interior y, float* rstd);

// From the gradient of the norm's output: the norm's gradient, and the input's, onto which the
// residual branch's gradient is added.
void norm_input_grad(const SegmentContext& context, const float* rstd, kernels::ConstInterior dy,
                     const void* residual);

// What a branch of the residual stream reads, as interior: the norm of the segment's input, or the
// input itself. In `copy`, or in the call's own buffer.
kernels::ConstInterior branch_input(const SegmentContext& context, kernels::Interior copy,
                                    float* rstd);

// From the gradient of what the branch read, the gradient of the segment's input: grad_input. The
// norm's too.
void branch_input_grad(const SegmentContext& context, const float* rstd, kernels::ConstInterior dy);

// From the gradient of the products `into`, all below: of their matrices, of the norm and of the
// segment's input. Uses the layout's spans `branch`, `grad` and `rstd`.
void finish_branch_grad(const SegmentContext& context, const ProjectionOperands& into,
                        kernels::ConstInterior grad_projected);

// Where the branch's last product goes: `branch`, or the interior where a norm follows.
kernels::Interior branch_output(const SegmentContext& context, std::byte* interior,
                                kernels::Interior branch);

// output = input + branch, normed before where the block says so (then by way of `branch`).
void finish_branch(const SegmentContext& context, std::byte* interior, kernels::Interior branch);

// Whether a call without output is done before the branch's last product.
bool ends_before_output(const SegmentContext& context);

// The gradient of the branch's last product as interior: the call's own buffer, or `copy`. The
// gradient of the norm behind it, too.
kernels::ConstInterior branch_output_grad(const SegmentContext& context, kernels::Interior copy);

// True where neither a gradient below the segment nor one of its first matrices or its norm is
// wanted.
bool needs_no_input_grad(const SegmentContext& context);

// Stores zeros between and behind the trained parameters of a gradient buffer.
void zero_padding(const SegmentContext& context, const model::Segment& segment, float* grad);

// Stores zeros where the owner of a shared matrix has other trained parameters: to these the
// owner's backward adds later.
void zero_beside_matrix(const SegmentContext& context, const model::Segment& owner);

// `interior` is filled; output only where the call has one.
void attention_forward(const SegmentContext& context, std::byte* interior);
void attention_backward(const SegmentContext& context);
void mlp_forward(const SegmentContext& context, std::byte* interior);
void mlp_backward(const SegmentContext& context);
void embedding_forward(const SegmentContext& context);
void embedding_backward(const SegmentContext& context);

// The head's own matrix or the embedding's.
struct HeadMatrix {
  const void* weight = nullptr;
  float* grad = nullptr;
  bool grad_first = false;
};
void head_loss(const SegmentContext& context, const HeadMatrix& matrix);
void head_loss_forward(const SegmentContext& context, const HeadMatrix& matrix);
void head_logits(const SegmentContext& context, const HeadMatrix& matrix);

}  // namespace strata::exec
