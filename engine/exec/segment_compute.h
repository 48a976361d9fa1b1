// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/footprint.h"
#include "engine/model/segment_layout.h"
#include "engine/model/spec.h"
#include "kernels/device.h"

namespace strata::exec {

// The buffers of one call, all in the compute arena and owned by the caller; sizes come from
// model::footprint. A null pointer means that the call does not use it.
//
//   weights          flat segment buffer in the recipe's weight type (Segment::numel elements)
//   shared_weights   the same of segment Segment::shares
//   grad             [trainable_numel] f32, overwritten when grad_first (padding becomes zero),
//                    else added to; null: no gradients of parameters. Frozen parameters have none
//   shared_grad      the same of the shared segment, with shared_grad_first
//   input, output    boundary tensors [N, C], of a tensor slice own rows (model::own_rows) of them;
//                    may be the same buffer in forward
//   grad_output      gradient of `output`; grad_input may be the same buffer, or null: not wanted
//   interior         Footprint::interior_bytes; backward leaves nothing of use in it
//   rows             [N, C] of a tensor slice: `input` of all ranks
//   row_grads        the same of the gradient of `output`, or, where Parts::norms_branch, of the
//                    branch in the device's interior type: the last part of backward writes own
//                    ones, others read all
//   branch           [N, C] f32 of a tensor slice: what the ranks of a tensor group sum between
//                    them. One part writes all, and the next reads the sums of own rows. Forward:
//                    the branch's last product, null where a call does not want it, or rows of the
//                    embedding. Backward: the gradient of what its first products read, or of the
//                    head's norm's output
//   scores           [ranks, N, 3] f32 of a tensor slice (kernels/cross_entropy.h). Part 0 of the
//                    loss writes own ones, part 1 reads all
//   projected        [N, (H+2K)D] in the device's interior type, where Parts::sums_norms: part 0 of
//                    forward writes q, k and v of own heads, and the branch's reads them. In
//                    backward the part of attention writes the gradients of normed q and k, and of
//                    v, and the next reads them
//   norm_sums        [2, N] f32 of q and k, where Parts::sums_norms: the former part writes those
//                    of own heads (kernels/norm.h), the latter reads those of all ranks
//   keys             [ranks, N, 2KD] f32, where context ranks share keys: k and v of each token.
//                    Part 0 of forward writes own ones, others read all
//   key_grads        the same of their gradients: the last part of backward writes all, the next
//                    changes own ones
//   sent, received   blocks for each context rank, and of each, where ranks swap heads: of
//                    model::swapped_head_bytes or swapped_attended_bytes; also of gradients
//   operands         Footprint::operand_bytes. A part of backward with products writes what they
//                    read, where they are delayed, and weight_gradient() reads it
//   norm_grads       [Footprint::norm_gradient_bytes / 4] f32 of model::trained_norms, each after
//                    the one before. A backward that delays its products adds to them, with
//                    grad_first; the weight_gradient() that ends the sum has them, others have null
//   workspace        Footprint::{forward,recompute,backward}_workspace_bytes of the op; loss takes
//                    backward's, loss_forward and logits take forward's
//   tokens, targets  [N] i32; a target of -1 does not count. With BatchShape::documents, [N] i32 of
//                    where they start follow the tokens, and attention takes them too; with a
//                    cache, [token_count] i32 of their texts and as many of their positions
//   cache            model::cache_bytes of attention's keys and values, which it extends
//   rope             the table of the segment's layer: [T, R/2] cosines, then as many sines, f32
struct SegmentCall {
  int segment = 0;
  int part = 0;  // see model::Parts
  const void* weights = nullptr;
  const void* shared_weights = nullptr;
  float* grad = nullptr;
  float* shared_grad = nullptr;
  bool grad_first = false;
  bool shared_grad_first = false;
  const void* input = nullptr;
  void* output = nullptr;
  const void* grad_output = nullptr;
  void* grad_input = nullptr;
  void* interior = nullptr;
  const void* rows = nullptr;
  void* row_grads = nullptr;
  float* branch = nullptr;
  float* scores = nullptr;
  void* projected = nullptr;
  float* norm_sums = nullptr;
  float* keys = nullptr;
  float* key_grads = nullptr;
  void* sent = nullptr;
  const void* received = nullptr;
  void* operands = nullptr;
  float* norm_grads = nullptr;
  void* workspace = nullptr;
  const int32_t* tokens = nullptr;
  const int32_t* targets = nullptr;
  const float* rope = nullptr;
  // d(total loss)/d(sum of token losses): 1 / target tokens of the step, times the loss scale.
  float grad_scale = 1.0f;
  double* loss_sum = nullptr;  // out: sum of the token losses of this micro-batch, in nats
  float* logits = nullptr;  // out, logits op only: [rows, V] of the position `logit_position[row]`
  const int32_t* logit_position = nullptr;
  void* cache = nullptr;
  int64_t token_count = 0;  // with a cache: N of this call, at most the shape's
  int64_t logit_count = 0;  // with a cache: rows of logits, perhaps none
};

struct HeadMatrix;
struct SegmentContext;

// Forward and backward of the segments of a dense decoder, with our own kernels. Where a segment
// has several parts, each call does one of them.
//
// Issues to one queue; all pointers of a call are addresses of the queue's device.
//
// Guarantees: deterministic; bits depend only on shapes, recipe and kernel backend, never on
// threads, placement or whether an interior was kept or recomputed. Threads: calls on one object
// are serial; different objects are independent. Memory: only the call's buffers. On the host,
// kernels run in the caller's kernels::Parallel, with at most as many threads as the device's
// description says. `spec`, `device` and `queue` must outlive this.
class SegmentCompute {
 public:
  SegmentCompute(const model::ModelSpec& spec, Recipe recipe, model::BatchShape shape,
                 const kernels::Device& device, kernels::Queue& queue);

  // output = segment(input). Embedding: from tokens. Fills `interior` when it is not null.
  void forward(const SegmentCall& call) const;

  // Fills `interior` from `input`, and `output` too when it is not null (the input of the next
  // segment).
  void recompute(const SegmentCall& call) const;

  // grad_input and grad from grad_output, `input` and a filled `interior`.
  // For the embedding: grad from grad_output and tokens.
  void backward(const SegmentCall& call) const;

  // grad of the matrices and biases of a block from the `operands` that a backward with these left,
  // and of its norms from norm_grads.
  void weight_gradient(const SegmentCall& call) const;

  // Head: loss_sum, grad_input, grad and shared_grad of one micro-batch; never stores [N, V]
  // logits.
  void loss(const SegmentCall& call) const;

  // Head: only loss_sum.
  void loss_forward(const SegmentCall& call) const;

  // Head: logits of one position of each row.
  void logits(const SegmentCall& call) const;

 private:
  void run_block(const SegmentContext& context, std::byte* interior) const;
  SegmentContext context(const SegmentCall& call) const;
  HeadMatrix head_matrix(const SegmentContext& context) const;

  // Constant after construction
  const model::ModelSpec& spec_;
  const Recipe recipe_;
  const model::BatchShape shape_;
  const kernels::Device& device_;
  kernels::Queue& queue_;
  std::vector<model::SegmentLayout> layouts_;
};

}  // namespace strata::exec
