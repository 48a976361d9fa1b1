// SPDX-License-Identifier: Apache-2.0
#include "engine/model/segment_layout.h"

#include <algorithm>
#include <initializer_list>

#include "engine/base/check.h"
#include "engine/base/units.h"
#include "engine/model/tensor_slice.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/layer_norm.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"

namespace strata::model {
namespace {

// Places spans one after the other, as kernels need workspaces aligned.
class Packer {
 public:
  explicit Packer(const kernels::DeviceDescription& device)
      : alignment_(kernels::workspace_alignment(device)) {}

  Span add(int64_t bytes) {
    const Span span{end_, bytes};
    end_ = round_up(end_ + bytes, alignment_);
    return span;
  }
  Span add(int64_t count, DType dtype) { return add(count * bytes_of(dtype)); }
  Span add_floats(int64_t count) { return add(count, DType::kF32); }
  int64_t pages() const { return round_up(end_, kPageBytes); }

 private:
  const int64_t alignment_;
  int64_t end_ = 0;
};

// What the sizes of one segment's buffers depend on.
struct Shapes {
  const Architecture& a;
  BatchShape batch;
  DType dtype;
  const kernels::DeviceDescription& device;
  const TensorSlice tensor;
  const int64_t rows;  // of a boundary tensor
  const bool sums_norms;
  const bool swaps_heads;

  int64_t tokens() const { return batch.tokens(); }
  int64_t heads_width() const { return a.heads * a.head_size; }

  int64_t product_scratch(const std::vector<Projection>& projections, int64_t inputs,
                          bool backward) const {
    int64_t bytes = 0;
    for (const Projection& one : projections) {
      if (!backward) {
        bytes = std::max(
            bytes, kernels::workspace_bytes(kernels::MatMulForward{.dtype = dtype,
                                                                   .rows = tokens(),
                                                                   .outputs = one.outputs,
                                                                   .inputs = inputs,
                                                                   .by_row = batch.is_cached()},
                                            device));
        continue;
      }
      const kernels::MatMulInput input{
          .dtype = dtype, .rows = tokens(), .outputs = one.outputs, .inputs = inputs};
      const kernels::MatMulWeight weight{
          .rows = tokens(), .outputs = one.outputs, .inputs = inputs};
      const kernels::MatMulWeight bias{.rows = tokens(), .outputs = one.outputs, .inputs = 1};
      bytes = std::max({bytes, kernels::workspace_bytes(input, device),
                        kernels::workspace_bytes(weight, device),
                        one.bias_offset < 0 ? 0 : kernels::workspace_bytes(bias, device)});
    }
    return bytes;
  }

  int64_t norm_scratch(int64_t groups, int64_t cols) const {
    const kernels::RmsNormBackward op{
        .dtype = dtype, .rows = tokens(), .groups = groups, .cols = cols};
    return kernels::workspace_bytes(op, device);
  }
  int64_t norm_scratch() const {
    if (a.norm == Norm::kRms) return norm_scratch(1, a.hidden);
    const kernels::LayerNormBackward op{.dtype = dtype, .rows = tokens(), .cols = a.hidden};
    return kernels::workspace_bytes(op, device);
  }
  // How many numbers of a row a norm's backward reads from its forward.
  int64_t norm_numbers() const { return tokens() * (a.norm == Norm::kLayer ? 2 : 1); }
  // Of attention
  bool shares_keys() const { return batch.context.ranks > 1 && !swaps_heads; }
  int64_t keys_width() const { return 2 * a.kv_heads * a.head_size; }
  int64_t qk_norm_scratch() const {
    if (a.block.qk_norm == QkNorm::kNone) return 0;
    return std::max(norm_scratch(query_norms(a), heads_width() / query_norms(a)),
                    norm_scratch(key_norms(a), a.kv_heads * a.head_size / key_norms(a)));
  }
};

// A matrix and its optional bias.
struct Affine {
  ParameterRole matrix;
  ParameterRole bias;
};

// Whether a place follows another, or neither exists.
bool follows(int64_t last, int64_t elements, int64_t next) {
  return last < 0 ? next < 0 : last + elements == next;
}

// Whether two products can be one: their operands are adjacent, and both are trained or both
// frozen.
bool continues(const Projection& last, const Projection& next, int64_t inputs) {
  const int64_t elements = last.outputs * inputs;
  return follows(last.offset, elements, next.offset) && last.frozen == next.frozen &&
         follows(last.bias_offset, last.outputs, next.bias_offset) &&
         (last.bias_offset < 0 || last.bias_frozen == next.bias_frozen);
}

// Takes of keys or values that ranks share the rows [first, first + count), those of this rank's
// head.
void take_rows(const Segment& segment, const Affine& one, int64_t first, int64_t count,
               Projection& projection) {
  const int64_t inputs = parameter_of(segment, one.matrix).shape[1];
  projection.outputs = count;
  projection.offset += first * inputs;
  if (projection.bias_offset >= 0) projection.bias_offset += first;
}

std::vector<Projection> projections_of(const Segment& segment,
                                       std::initializer_list<Affine> operands,
                                       const Shapes* sharing = nullptr) {
  std::vector<Projection> projections;
  int64_t column = 0;
  for (const Affine& one : operands) {
    const Parameter& matrix = parameter_of(segment, one.matrix);
    Projection next{matrix.offset, column, matrix.shape[0], matrix.frozen};
    if (const Parameter* bias = find_parameter(segment, one.bias)) {
      next.bias_offset = bias->offset;
      next.bias_frozen = bias->frozen;
    }
    if (sharing != nullptr && matrix.whole) {
      const int64_t size = sharing->a.head_size;
      const int64_t heads = matrix.shape[0] / size;
      const int64_t head = sharing->tensor.rank * heads / sharing->tensor.ranks;
      take_rows(segment, one, head * size, size, next);
    }
    column += next.outputs;
    if (!projections.empty() && continues(projections.back(), next, matrix.shape[1])) {
      projections.back().outputs += next.outputs;
    } else {
      projections.push_back(next);
    }
  }
  return projections;
}

bool trains_bias_alone(const Projection& one) {
  return one.frozen && one.bias_offset >= 0 && !one.bias_frozen;
}

void lay_ones(SegmentLayout& layout, const Shapes& s, Packer& packer) {
  const bool needed = std::ranges::any_of(layout.into, trains_bias_alone) ||
                      std::ranges::any_of(layout.keys, trains_bias_alone) ||
                      std::ranges::any_of(layout.out_of, trains_bias_alone);
  if (needed) layout.ones = packer.add(s.tokens(), s.device.interior);
}

// Adds the tensors that the backward of a normed branch reads.
void lay_post_norm(SegmentLayout& layout, const Shapes& s, Packer& interior) {
  if (!s.a.block.post_norm) return;
  layout.unnormed = interior.add(s.rows * s.a.hidden, s.device.interior);
  layout.post_rstd = interior.add_floats(s.rows);
}

void finish_forward(SegmentLayout& layout, Packer& packer) {
  layout.recompute_bytes = packer.pages();
  layout.own_interior = packer.add(layout.interior_bytes);
  layout.forward_bytes = packer.pages();
}

// `branch` columns are what the branch's last product reads.
void lay_operands(SegmentLayout& layout, int64_t branch, const Shapes& s) {
  const DType interior = s.device.interior;
  Packer operands(s.device);
  layout.later_grad = operands.add(s.tokens() * s.a.hidden, interior);
  layout.later_branch = operands.add(s.tokens() * branch, interior);
  layout.later_input = operands.add(s.tokens() * s.a.hidden, interior);
  layout.later_inner = operands.add(s.tokens() * layout.width, interior);
  if (!layout.keys.empty()) layout.later_keys = operands.add_floats(s.tokens() * s.keys_width());
  layout.operand_bytes = operands.pages();
}

void lay_attention(SegmentLayout& layout, const Segment& segment, const Shapes& s) {
  using enum ParameterRole;
  const Architecture& a = s.a;
  const Affine query = {kQuery, kQueryBias}, key = {kKey, kKeyBias}, value = {kValue, kValueBias};
  if (s.shares_keys()) {
    layout.into = projections_of(segment, {query}, &s);
    layout.keys = projections_of(segment, {key, value}, &s);
    layout.width = s.heads_width();
  } else {
    layout.into = projections_of(segment, {query, key, value}, &s);
    layout.width = s.heads_width() + s.keys_width();
  }
  layout.out_of = projections_of(segment, {{kOutput, kOutputBias}});
  const int64_t attention_scratch =
      s.batch.is_cached()
          ? kernels::workspace_bytes(cached_shape(a, s.batch, segment.layer), s.device)
          : kernels::workspace_bytes(
                attention_shape<kernels::AttentionForward>(a, s.batch, segment.layer), s.device);
  const auto backward_op = attention_shape<kernels::AttentionBackward>(a, s.batch, segment.layer);
  const bool qk_norm = a.block.qk_norm != QkNorm::kNone;
  const int64_t turned = s.tokens() * (a.heads + a.kv_heads) * a.head_size;
  // Where ranks swap heads, q, k and v of own tokens are wanted again for their norms alone.
  const bool keeps_projected = !s.swaps_heads || qk_norm;
  Packer interior(s.device);
  if (keeps_projected)
    layout.projected = interior.add(s.tokens() * layout.width, s.device.interior);
  layout.attended = interior.add(s.tokens() * s.heads_width(), s.device.interior);
  layout.log_sum_exp = interior.add_floats(s.tokens() * a.heads);
  if (s.swaps_heads) {
    layout.whole_heads = interior.add(s.tokens() * layout.width, s.device.interior);
    layout.whole_attended = interior.add(s.tokens() * s.heads_width(), s.device.interior);
    if (s.batch.documents) {
      layout.whole_starts = interior.add(s.tokens() * s.batch.context.ranks, DType::kF32);
    }
  }
  if (s.sums_norms) layout.norm_sums = interior.add(norm_sum_bytes(s.batch));
  lay_post_norm(layout, s, interior);
  layout.interior_bytes = interior.pages();

  Packer forward(s.device);
  layout.normed = forward.add(s.tokens() * a.hidden, s.device.interior);
  if (qk_norm) layout.turned = forward.add(turned, s.device.interior);
  if (!keeps_projected) layout.turned = forward.add(s.tokens() * layout.width, s.device.interior);
  layout.forward_scratch = forward.add(
      std::max({s.product_scratch(layout.into, a.hidden, false),
                s.product_scratch(layout.keys, a.hidden, false),
                s.product_scratch(layout.out_of, s.heads_width(), false), attention_scratch}));
  finish_forward(layout, forward);

  Packer backward(s.device);
  layout.grad = backward.add(s.tokens() * a.hidden, s.device.interior);
  layout.branch = backward.add(s.tokens() * std::max(s.heads_width(), a.hidden), s.device.interior);
  layout.inner = backward.add(s.tokens() * layout.width, s.device.interior);
  layout.rstd = backward.add_floats(s.norm_numbers());
  if (qk_norm) {
    layout.turned_again = backward.add(turned, s.device.interior);
    layout.head_rstd = backward.add_floats(s.tokens() * (query_norms(a) + key_norms(a)));
    if (s.shares_keys()) {
      layout.own_keys = backward.add(s.tokens() * s.keys_width(), s.device.interior);
    }
  }
  lay_ones(layout, s, backward);
  layout.backward_scratch = backward.add(std::max(
      {s.product_scratch(layout.into, a.hidden, true),
       s.product_scratch(layout.keys, a.hidden, false),
       s.product_scratch(layout.keys, a.hidden, true),
       s.product_scratch(layout.out_of, s.heads_width(), true),
       kernels::workspace_bytes(backward_op, s.device), s.norm_scratch(), s.qk_norm_scratch()}));
  layout.backward_bytes = backward.pages();
  lay_operands(layout, s.heads_width(), s);
}

void lay_mlp(SegmentLayout& layout, const Segment& segment, const Shapes& s) {
  using enum ParameterRole;
  const Architecture& a = s.a;
  layout.into = a.block.gated ? projections_of(segment, {{kGate, kGateBias}, {kUp, kUpBias}})
                              : projections_of(segment, {{kUp, kUpBias}});
  layout.out_of = projections_of(segment, {{kDown, kDownBias}});
  layout.width = (a.block.gated ? 2 : 1) * a.feed_forward;
  Packer interior(s.device);
  layout.projected = interior.add(s.tokens() * layout.width, s.device.interior);
  lay_post_norm(layout, s, interior);
  layout.interior_bytes = interior.pages();

  Packer forward(s.device);
  layout.normed = forward.add(s.tokens() * a.hidden, s.device.interior);
  layout.activated = forward.add(s.tokens() * a.feed_forward, s.device.interior);
  layout.forward_scratch =
      forward.add(std::max(s.product_scratch(layout.into, a.hidden, false),
                           s.product_scratch(layout.out_of, a.feed_forward, false)));
  finish_forward(layout, forward);

  Packer backward(s.device);
  layout.grad = backward.add(s.tokens() * a.hidden, s.device.interior);
  layout.branch = backward.add(s.tokens() * std::max(a.feed_forward, a.hidden), s.device.interior);
  layout.inner = backward.add(s.tokens() * a.feed_forward, s.device.interior);
  layout.rstd = backward.add_floats(s.norm_numbers());
  lay_ones(layout, s, backward);
  layout.backward_scratch = backward.add(
      std::max({s.product_scratch(layout.into, a.hidden, true),
                s.product_scratch(layout.out_of, a.feed_forward, true), s.norm_scratch()}));
  layout.backward_bytes = backward.pages();
  lay_operands(layout, a.feed_forward, s);
}

void lay_embedding(SegmentLayout& layout, const Shapes& s) {
  if (!s.tensor.cuts_vocabulary) return;
  Packer forward(s.device);
  layout.own_rows = forward.add(s.tokens() * s.a.hidden, s.dtype);
  finish_forward(layout, forward);
}

struct HeadScratch {
  int64_t loss = 0;
  int64_t logits = 0;
};

// For the ranks with the most tokens and for those with one fewer, which may need more: their
// chunks can have more rows.
HeadScratch head_scratch(const Shapes& s, const TokenRange& tokens) {
  const int64_t least = s.tensor.cuts_vocabulary ? s.a.vocabulary / s.tensor.ranks : tokens.most;
  HeadScratch most;
  for (int64_t count = least; count <= tokens.most; ++count) {
    const kernels::LinearCrossEntropy loss{
        .dtype = s.dtype, .rows = s.tokens(), .cols = s.a.hidden, .vocabulary = count};
    const kernels::MatMulForward logits{.dtype = s.dtype,
                                        .rows = s.batch.logit_rows(),
                                        .outputs = count,
                                        .inputs = s.a.hidden,
                                        .by_row = s.batch.is_cached()};
    if (!s.batch.is_cached()) {
      most.loss = std::max(most.loss, kernels::workspace_bytes(loss, s.device));
    }
    most.logits = std::max(most.logits, kernels::workspace_bytes(logits, s.device));
  }
  return most;
}

void lay_head(SegmentLayout& layout, const Segment& matrix_owner, const Shapes& s,
              const TokenRange& tokens, ParameterRole role) {
  const Architecture& a = s.a;
  layout.out_of = projections_of(matrix_owner, {{role, ParameterRole::kOther}});
  const HeadScratch scratch = head_scratch(s, tokens);

  Packer forward(s.device);
  layout.normed = forward.add(s.tokens() * a.hidden, s.device.interior);
  layout.gathered = forward.add(s.batch.logit_rows() * a.hidden * bytes_of(s.dtype));
  if (s.tensor.cuts_vocabulary) {
    layout.own_logits = forward.add_floats(s.batch.logit_rows() * tokens.most);
  }
  layout.forward_scratch = forward.add(std::max(scratch.loss, scratch.logits));
  finish_forward(layout, forward);

  Packer backward(s.device);
  layout.grad = backward.add(s.tokens() * a.hidden, s.device.interior);
  layout.rstd = backward.add_floats(s.norm_numbers());
  layout.backward_scratch = backward.add(std::max(scratch.loss, s.norm_scratch()));
  layout.backward_bytes = backward.pages();
}

}  // namespace

SegmentLayout segment_layout(const ModelSpec& spec, int segment, const BatchShape& shape,
                             Recipe recipe, const kernels::DeviceDescription& device) {
  const Segment& one = spec.segments[static_cast<size_t>(segment)];
  const Parts parts = parts_of(spec, shape, segment);
  const Shapes shapes{spec.architecture,    shape,
                      weight_dtype(recipe), device,
                      spec.tensor,          most_rows(spec, shape),
                      parts.sums_norms,     parts.swaps_heads};
  SegmentLayout layout;
  switch (one.kind) {
    case SegmentKind::kAttention:
      lay_attention(layout, one, shapes);
      break;
    case SegmentKind::kMlp:
      lay_mlp(layout, one, shapes);
      break;
    case SegmentKind::kHead:
      if (one.shares >= 0) {
        lay_head(layout, spec.segments[static_cast<size_t>(one.shares)], shapes, own_tokens(spec),
                 ParameterRole::kEmbedding);
      } else {
        lay_head(layout, one, shapes, own_tokens(spec), ParameterRole::kHead);
      }
      break;
    case SegmentKind::kEmbedding:
      lay_embedding(layout, shapes);
      break;
    case SegmentKind::kExternal:
    case SegmentKind::kReceived:
    case SegmentKind::kSent:
      break;
  }
  return layout;
}

kernels::CachedAttention cached_shape(const Architecture& a, const BatchShape& batch, int layer) {
  kernels::CachedAttention op;
  op.heads = a.heads;
  op.kv_heads = a.kv_heads;
  op.head_size = a.head_size;
  op.tokens = batch.tokens();
  op.rows = batch.cache_rows;
  op.cap = static_cast<float>(a.score_cap);
  op.window = a.window_of(layer);
  const int64_t seen = op.window > 0 ? std::min(batch.cache_positions, op.window + batch.length)
                                     : batch.cache_positions;
  op.positions = round_up(seen, kernels::kCacheTile);
  return op;
}

int64_t query_norms(const Architecture& a) {
  return a.block.qk_norm == QkNorm::kHead ? a.heads : 1;
}

int64_t key_norms(const Architecture& a) {
  return a.block.qk_norm == QkNorm::kHead ? a.kv_heads : 1;
}

std::vector<const Parameter*> trained_norms(const Segment& segment) {
  std::vector<const Parameter*> norms;
  for (const Parameter& parameter : segment.parameters) {
    const bool norm = is_norm(parameter.role) || parameter.role == ParameterRole::kNormBias;
    if (norm && !parameter.frozen) norms.push_back(&parameter);
  }
  return norms;
}

const Parameter* find_parameter(const Segment& segment, ParameterRole role) {
  for (const Parameter& parameter : segment.parameters) {
    if (parameter.role == role) return &parameter;
  }
  return nullptr;
}

const Parameter& parameter_of(const Segment& segment, ParameterRole role) {
  const Parameter* found = find_parameter(segment, role);
  STRATA_CHECK(found != nullptr);
  return *found;
}

}  // namespace strata::model
