// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "engine/exec/segment_compute.h"
#include "engine/model/tensor_slice.h"

// The parts of SegmentCompute: one file for each kind of segment.
namespace strata::exec {

// One call with everything that its segment's code needs.
struct SegmentContext {
  const model::Architecture& architecture;
  const model::Segment& segment;
  const model::SegmentLayout& layout;
  const model::BatchShape shape;    // of this call
  const model::BatchShape planned;  // of the buffers
  const DType dtype;                // of weights and boundary tensors
  const DType interior;             // of tensors inside the segment
  const kernels::DeviceOps& ops;
  kernels::Queue& queue;
  const SegmentCall& call;
  const model::TensorSlice tensor;
  const model::TokenRange own_tokens;  // whose rows of the embedding and the head are here
  const model::RowRange own_rows;      // of boundary tensors
  const model::Parts parts;

  kernels::Interior branch() const { return {call.branch, DType::kF32}; }
  kernels::Interior own_branch() const { return own_of(branch()); }
  // Of a tensor [N, C], the rows that boundary tensors here have.
  kernels::Interior own_of(kernels::Interior all) const {
    return all + own_rows.first * architecture.hidden;
  }
  int64_t own_count() const { return own_rows.count * architecture.hidden; }  // elements
  // The segment's input, and the gradient of its output, of all tokens.
  const void* input_rows() const { return tensor.ranks > 1 ? call.rows : call.input; }
  const void* output_grad_rows() const {
    return tensor.ranks > 1 ? call.row_grads : call.grad_output;
  }
  // Of what all ranks of a tensor slice would compute alike, one brings the gradient.
  bool brings_shared_grads() const { return tensor.rank == 0; }
  int64_t tokens() const { return shape.tokens(); }
  // [B, T] of where documents start, or null.
  const int32_t* starts() const { return shape.documents ? call.tokens + tokens() : nullptr; }
  // With a cache: [N] of the text of each token, and of its position there; else null.
  const int32_t* texts() const { return shape.is_cached() ? call.tokens + tokens() : nullptr; }
  const int32_t* positions() const {
    return shape.is_cached() ? call.tokens + 2 * tokens() : nullptr;
  }

  std::byte* workspace_bytes(const model::Span& span) const {
    return static_cast<std::byte*>(call.workspace) + span.offset;
  }
  kernels::Interior workspace(const model::Span& span) const {
    return {workspace_bytes(span), interior};
  }
  // Whether a backward leaves its products to weight_gradient(). What both need then lies among the
  // operands, else in the workspace.
  bool delays() const { return call.operands != nullptr || call.norm_grads != nullptr; }
  kernels::Interior operand(const model::Span& later) const {
    return {static_cast<std::byte*>(call.operands) + later.offset, interior};
  }
  kernels::Interior operand_or(const model::Span& span, const model::Span& later) const {
    return delays() ? operand(later) : workspace(span);
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

  // The place of a parameter's gradient; null when it is not wanted or the parameter does not
  // exist.
  float* grad(model::ParameterRole role) const {
    const model::Parameter* parameter = model::find_parameter(segment, role);
    if (parameter == nullptr || parameter->frozen) return nullptr;
    if (delays()) return norm_grad(*parameter);
    return call.grad == nullptr ? nullptr : call.grad + parameter->offset;
  }
  // Of a norm, where products are delayed.
  float* norm_grad(const model::Parameter& norm) const {
    float* grad = call.norm_grads;
    for (const model::Parameter* one : model::trained_norms(segment)) {
      if (one == &norm) return grad;
      grad += one->numel;
    }
    return nullptr;
  }
  bool trains_norm() const {
    return grad(model::ParameterRole::kNorm) != nullptr ||
           grad(model::ParameterRole::kNormBias) != nullptr;
  }
  // As ops want it: 0 where the vocabulary is not cut.
  int64_t vocabulary_end() const { return tensor.cuts_vocabulary ? architecture.vocabulary : 0; }
  float* own_scores() const { return call.scores + tensor.rank * tokens() * 3; }
  // Own keys and values, or their gradients, in a buffer of those of all context ranks.
  int64_t keys_width() const { return 2 * architecture.kv_heads * architecture.head_size; }
  kernels::Interior own_keys(float* all) const {
    return {all + shape.context.rank * tokens() * keys_width(), DType::kF32};
  }
  float norm_offset() const { return architecture.block.norm_offset ? 1.0f : 0.0f; }
  // Whether a gradient is wanted, here or of weight_gradient().
  bool trains(const model::Projection& projection) const {
    return (call.grad != nullptr || delays()) && !projection.frozen;
  }
  bool trains_bias(const model::Projection& projection) const {
    return (call.grad != nullptr || delays()) && projection.bias_offset >= 0 &&
           !projection.bias_frozen;
  }
  float* grad(const model::Projection& projection) const {
    return trains(projection) ? call.grad + projection.offset : nullptr;
  }
  float* bias_grad(const model::Projection& projection) const {
    return trains_bias(projection) ? call.grad + projection.bias_offset : nullptr;
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
  bool with_bias = true;
};
// The branch's last product, of whose sum over ranks one brings the bias and its gradient.
ProjectionOperands branch_operands(const SegmentContext& context, int64_t inputs,
                                   const model::Span& scratch);

void project(const SegmentContext& context, const ProjectionOperands& operands,
             kernels::ConstInterior x, kernels::Interior y);
void project_input_grad(const SegmentContext& context, const ProjectionOperands& operands,
                        kernels::ConstInterior dy, kernels::Interior dx, bool accumulate = false);
void project_weight_grad(const SegmentContext& context, const ProjectionOperands& operands,
                         kernels::ConstInterior dy, kernels::ConstInterior x);

// Writes the norm of rows of a boundary tensor to `y`. Backward needs `rstd`: SegmentLayout::rstd.
// Of the input: of the rows of all ranks, or of own rows, as the norm's backward wants it.
void norm_rows(const SegmentContext& context, const void* x, int64_t rows, kernels::Interior y,
               float* rstd);
void norm_input(const SegmentContext& context, kernels::Interior y, float* rstd);
void norm_own_input(const SegmentContext& context, kernels::Interior copy, float* rstd);

// Computes from the gradient of the norm's output the gradients of the norm and of its input, of
// own rows, and adds the residual branch's gradient to the latter.
void norm_input_grad(const SegmentContext& context, const float* rstd, kernels::ConstInterior dy,
                     const void* residual);

// The input of a branch of the residual stream, as interior: the norm of the segment's input, or
// the input itself. It is in `copy`, or in the call's own buffer.
kernels::ConstInterior branch_input(const SegmentContext& context, kernels::Interior copy,
                                    float* rstd);

// Computes from the gradient of the branch's input the gradient of the segment's input (grad_input)
// and of the norm.
void branch_input_grad(const SegmentContext& context, const float* rstd, kernels::ConstInterior dy);

// Products of a branch's input, and the gradient of what they give, which lies in `later` among the
// operands of delayed products.
struct ProductGrad {
  ProjectionOperands into;
  kernels::ConstInterior grad;
  const model::Span& later;
};

// Where products are delayed: copies a tensor to its place among their operands, if it is not
// there.
void hold(const SegmentContext& context, kernels::ConstInterior x, const model::Span& later);

// Computes from the gradient of the branch's first products the gradients of their matrices, and of
// the norm and of the segment's input, where these are not another part. Uses the layout's spans
// `branch`, `grad` and `rstd`. Products that are delayed have their operands instead.
void finish_branch_grad(const SegmentContext& context, std::initializer_list<ProductGrad> products);

// Part 0 of backward, after the sum of the branch's gradient: the gradients of the norm and of the
// segment's input.
void finish_branch_sum_grad(const SegmentContext& context);

// The last part of backward, where model::Parts::norms_branch: own rows of the branch's gradient.
void own_branch_grad(const SegmentContext& context);

// Where the branch's last product is written: where it is summed over ranks, or into the interior
// if a norm follows, or into the workspace.
kernels::Interior branch_output(const SegmentContext& context, std::byte* interior);

// output = input + branch, which is normed before if the block does so.
void finish_branch(const SegmentContext& context, std::byte* interior);

// Whether a call can end before the branch's last product.
bool ends_before_output(const SegmentContext& context);

// The gradient of the branch's last product as interior, in the call's own buffer or in `copy`, or
// among the operands. Also computes the gradient of the norm that follows it.
kernels::ConstInterior branch_output_grad(const SegmentContext& context, kernels::Interior copy);

// True when no gradient is wanted of the segment's input, its first matrices and its norm.
bool needs_no_input_grad(const SegmentContext& context);

// Stores zeros between and after the trained parameters of a gradient buffer.
void zero_padding(const SegmentContext& context, const model::Segment& segment, float* grad);

// Stores zeros where the owner of a shared matrix has other trained parameters, to which the
// owner's backward adds later.
void zero_beside_matrix(const SegmentContext& context, const model::Segment& owner);

// Fill `interior`, and the branch's last product unless the call ends before it.
void attention_forward(const SegmentContext& context, std::byte* interior);
void attention_backward(const SegmentContext& context);

// Where context ranks share keys: own keys and values, before attention_forward; and after
// attention_backward, which then ends at the gradients of keys, the gradients of the products.
void keys_forward(const SegmentContext& context);
void keys_backward(const SegmentContext& context);

// The same where tensor ranks add up the sums of norms of q and k: their inputs and own sums, and
// the gradients of the products from those of normed q and k and all sums.
void norms_forward(const SegmentContext& context);
void norms_backward(const SegmentContext& context);
void mlp_forward(const SegmentContext& context, std::byte* interior);
void mlp_backward(const SegmentContext& context);

// The products that a backward of attention or of an MLP delayed.
void block_weight_gradient(const SegmentContext& context);
void embedding_forward(const SegmentContext& context);
void embedding_backward(const SegmentContext& context);

// The head's own matrix or the embedding's.
struct HeadMatrix {
  const void* weight = nullptr;
  float* grad = nullptr;
  bool grad_first = false;
};
void head_loss(const SegmentContext& context, const HeadMatrix& matrix);
// Where the vocabulary is cut: the part before the loss, and the one behind it in training.
void head_scores(const SegmentContext& context, const HeadMatrix& matrix);
void head_norm_grad(const SegmentContext& context);
void head_loss_forward(const SegmentContext& context, const HeadMatrix& matrix);
void head_logits(const SegmentContext& context, const HeadMatrix& matrix);

}  // namespace strata::exec
