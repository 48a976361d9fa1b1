// SPDX-License-Identifier: Apache-2.0
#include "kernels/cached_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {
namespace {

// Where the key or the value of a position lies: [rows, kv_heads, positions, 2, head_size].
int64_t cached_at(const CachedAttention& op, int64_t row, int64_t kv, int64_t position,
                  bool value) {
  const int64_t slot = position % op.positions;
  return (((row * op.kv_heads + kv) * op.positions + slot) * 2 + (value ? 1 : 0)) * op.head_size;
}

void append(const CachedAttention& op, ConstInterior from, int64_t stride, bool value) {
  for (int64_t i = 0; i < op.tokens; ++i) {
    STRATA_CHECK(op.row[i] >= 0 && op.row[i] < op.rows && op.position[i] >= 0);
    for (int64_t kv = 0; kv < op.kv_heads; ++kv) {
      const ConstInterior x = from + (i * stride + kv * op.head_size);
      const Interior to = op.cache + cached_at(op, op.row[i], kv, op.position[i], value);
      for (int64_t d = 0; d < op.head_size; ++d) store(to, d, load(x, d));
    }
  }
}

// One query head of one token.
class Query {
 public:
  Query(const CachedAttention& op, int64_t token, int64_t head)
      : op_(op),
        row_(op.row[token]),
        kv_(head / (op.heads / op.kv_heads)),
        last_(op.position[token]),
        first_(op.window == 0 ? 0 : std::max<int64_t>(0, last_ - op.window + 1)),
        q_(op.q + (token * stride_or(op.q_stride, op.heads * op.head_size) + head * op.head_size)) {
  }

  void attend(float* sums, Interior o) const {
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t j = first_; j <= last_; ++j) largest = std::max(largest, score(j));
    double total = 0.0;
    for (int64_t j = first_; j <= last_; ++j) total += std::exp(score(j) - largest);
    std::fill_n(sums, op_.head_size, 0.0f);
    for (int64_t j = first_; j <= last_; ++j) {
      const double p = std::exp(score(j) - largest) / total;
      const ConstInterior v = op_.cache + cached_at(op_, row_, kv_, j, true);
      for (int64_t d = 0; d < op_.head_size; ++d) sums[d] += static_cast<float>(p * load(v, d));
    }
    for (int64_t d = 0; d < op_.head_size; ++d) store(o, d, sums[d]);
  }

 private:
  double score(int64_t position) const {
    const ConstInterior k = op_.cache + cached_at(op_, row_, kv_, position, false);
    double sum = 0.0;
    for (int64_t d = 0; d < op_.head_size; ++d) sum += double{load(q_, d)} * load(k, d);
    const double s = op_.scale * sum;
    return op_.cap > 0.0f ? op_.cap * std::tanh(s / op_.cap) : s;
  }

  const CachedAttention& op_;
  const int64_t row_, kv_, last_, first_;
  const ConstInterior q_;
};

}  // namespace

void cached_attention(const CachedAttention& op) {
  STRATA_CHECK(op.tokens > 0 && op.heads > 0 && op.kv_heads > 0 && op.heads % op.kv_heads == 0);
  STRATA_CHECK(op.head_size > 0 && op.window >= 0 && op.cap >= 0.0f && op.rows > 0);
  STRATA_CHECK(op.positions > 0 && op.positions % kCacheTile == 0);
  STRATA_CHECK(op.workspace.bytes >= op.head_size * 4);
  const int64_t kv_width = op.kv_heads * op.head_size;
  append(op, op.k, stride_or(op.k_stride, kv_width), false);
  append(op, op.v, stride_or(op.v_stride, kv_width), true);
  const int64_t stride = stride_or(op.o_stride, op.heads * op.head_size);
  auto* sums = reinterpret_cast<float*>(op.workspace.data);
  for (int64_t i = 0; i < op.tokens; ++i) {
    for (int64_t h = 0; h < op.heads; ++h) {
      Query(op, i, h).attend(sums, op.o + (i * stride + h * op.head_size));
    }
  }
}

}  // namespace strata::kernels::ref
