// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {
namespace {

double dot(ConstInterior a, ConstInterior b, int64_t count) {
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i) sum += double{load(a, i)} * load(b, i);
  return sum;
}

// The part of a tensor that belongs to one head of one sequence: one row for each token.
template <typename Pointer>
struct Rows {
  Pointer first;
  int64_t stride;
  Pointer operator[](int64_t token) const { return first + token * stride; }
};

// The same of keys or values: one row for each position.
template <typename Op, typename Pointer>
struct KeyRows {
  const Op& op;
  int64_t b;
  Pointer first;
  int64_t stride;
  Pointer operator[](int64_t position) const {
    return first + op.context.key_row(b, op.batch, position, op.length) * stride;
  }
};

// `heads` is the number of the tensor's heads, and `head` is one of them.
template <typename Op, typename Pointer>
Rows<Pointer> rows_of(const Op& op, Pointer tensor, int64_t stride, int64_t heads, int64_t b,
                      int64_t head) {
  const int64_t width = stride_or(stride, heads * op.head_size);
  return {tensor + (b * op.length * width + head * op.head_size), width};
}

template <typename Op, typename Pointer>
KeyRows<Op, Pointer> key_rows_of(const Op& op, Pointer tensor, int64_t stride, int64_t b,
                                 int64_t head) {
  const int64_t width = stride_or(stride, op.kv_heads * op.head_size);
  return {op, b, tensor + head * op.head_size, width};
}

template <typename Op>
int64_t position_at(const Op& op, int64_t token) {
  return op.context.position(token, op.length);
}

// Sums of one row, rounded once to the output's type.
class Sums {
 public:
  Sums(const Workspace& workspace, int64_t index, int64_t size)
      : sums_(reinterpret_cast<float*>(workspace.data) + index * size), size_(size) {}
  void clear() { std::fill_n(sums_, size_, 0.0f); }
  void add(double factor, ConstInterior x) {
    for (int64_t d = 0; d < size_; ++d) sums_[d] += static_cast<float>(factor * load(x, d));
  }
  void put(Interior to) const {
    for (int64_t d = 0; d < size_; ++d) store(to, d, sums_[d]);
  }

 private:
  float* const sums_;
  const int64_t size_;
};

template <typename Op>
void check(const Op& op, int64_t sums) {
  STRATA_CHECK(op.batch > 0 && op.length > 0 && op.heads > 0 && op.kv_heads > 0 &&
               op.head_size > 0 && op.window >= 0 && op.cap >= 0.0f && op.heads % op.kv_heads == 0);
  STRATA_CHECK(op.context.ranks == 1 || op.length % 2 == 0);
  STRATA_CHECK(op.workspace.bytes >= sums * op.head_size * 4);
}

template <typename Op>
double score(const Op& op, ConstInterior q, ConstInterior k) {
  const double s = op.scale * dot(q, k, op.head_size);
  return op.cap > 0.0f ? op.cap * std::tanh(s / op.cap) : s;
}

// d(score)/d(scale * q·k).
template <typename Op>
double slope_of(const Op& op, double score) {
  return op.cap > 0.0f ? 1.0 - score / op.cap * (score / op.cap) : 1.0;
}

template <typename Op>
int64_t document_start(const Op& op, int64_t b, int64_t i) {
  return op.starts == nullptr ? 0 : op.starts[b * op.length + i];
}

// Token i of sequence b sees the keys from here to its position.
template <typename Op>
int64_t first_key(const Op& op, int64_t b, int64_t i) {
  const int64_t start = document_start(op, b, i);
  return op.window == 0 ? start : std::max(start, position_at(op, i) - op.window + 1);
}

// What backward reads and writes for one query head.
struct Head {
  Head(const AttentionBackward& op_in, int64_t b, int64_t h)
      : op(op_in),
        q(rows_of(op, op.q, op.q_stride, op.heads, b, h)),
        o(rows_of(op, op.o, op.o_stride, op.heads, b, h)),
        d_o(rows_of(op, op.d_o, op.d_o_stride, op.heads, b, h)),
        k(key_rows_of(op, op.k, op.k_stride, b, h / (op.heads / op.kv_heads))),
        v(key_rows_of(op, op.v, op.v_stride, b, h / (op.heads / op.kv_heads))),
        lse(op.lse + (b * op.heads + h) * op.length) {}

  struct Pair {
    double p, ds;
  };
  Pair pair(int64_t i, int64_t j) const {
    const double s = score(op, q[i], k[j]);
    const double p = std::exp(s - lse[i]);
    const double delta = dot(d_o[i], o[i], op.head_size);
    return {p, p * (dot(d_o[i], v[j], op.head_size) - delta) * op.scale * slope_of(op, s)};
  }

  const AttentionBackward& op;
  const Rows<ConstInterior> q, o, d_o;
  const KeyRows<AttentionBackward, ConstInterior> k, v;
  const float* const lse;
};

void query_gradients(const AttentionBackward& op, int64_t b, int64_t h) {
  const Head head(op, b, h);
  const Rows dq = rows_of(op, op.dq, op.dq_stride, op.heads, b, h);
  Sums sums(op.workspace, 0, op.head_size);
  for (int64_t i = 0; i < op.length; ++i) {
    sums.clear();
    for (int64_t j = first_key(op, b, i); j <= position_at(op, i); ++j) {
      sums.add(head.pair(i, j).ds, head.k[j]);
    }
    sums.put(dq[i]);
  }
}

void key_gradients(const AttentionBackward& op, int64_t b, int64_t kv) {
  const int64_t group = op.heads / op.kv_heads;
  const KeyRows dk = key_rows_of(op, op.dk, op.dk_stride, b, kv);
  const KeyRows dv = key_rows_of(op, op.dv, op.dv_stride, b, kv);
  Sums of_k(op.workspace, 0, op.head_size), of_v(op.workspace, 1, op.head_size);
  for (int64_t j = 0; j < op.length * op.context.ranks; ++j) {
    of_k.clear();
    of_v.clear();
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      const Head head(op, b, h);
      for (int64_t i = 0; i < op.length; ++i) {
        if (position_at(op, i) < j || first_key(op, b, i) > j) continue;
        const Head::Pair at = head.pair(i, j);
        of_k.add(at.ds, head.q[i]);
        of_v.add(at.p, head.d_o[i]);
      }
    }
    of_k.put(dk[j]);
    of_v.put(dv[j]);
  }
}

}  // namespace

void attention_forward(const AttentionForward& op) {
  check(op, 1);
  Sums sums(op.workspace, 0, op.head_size);
  for (int64_t b = 0; b < op.batch; ++b) {
    for (int64_t h = 0; h < op.heads; ++h) {
      const int64_t kv = h / (op.heads / op.kv_heads);
      const Rows q = rows_of(op, op.q, op.q_stride, op.heads, b, h);
      const KeyRows k = key_rows_of(op, op.k, op.k_stride, b, kv);
      const KeyRows v = key_rows_of(op, op.v, op.v_stride, b, kv);
      const Rows o = rows_of(op, op.o, op.o_stride, op.heads, b, h);
      for (int64_t i = 0; i < op.length; ++i) {
        const int64_t first = first_key(op, b, i);
        const int64_t last = position_at(op, i);
        double largest = -std::numeric_limits<double>::infinity();
        for (int64_t j = first; j <= last; ++j) largest = std::max(largest, score(op, q[i], k[j]));
        double sum = 0.0;
        for (int64_t j = first; j <= last; ++j) sum += std::exp(score(op, q[i], k[j]) - largest);
        const double lse = largest + std::log(sum);
        op.lse[(b * op.heads + h) * op.length + i] = static_cast<float>(lse);
        sums.clear();
        for (int64_t j = first; j <= last; ++j) {
          sums.add(std::exp(score(op, q[i], k[j]) - lse), v[j]);
        }
        sums.put(o[i]);
      }
    }
  }
}

void attention_backward(const AttentionBackward& op) {
  check(op, 2);
  for (int64_t b = 0; b < op.batch; ++b) {
    for (int64_t h = 0; h < op.heads; ++h) query_gradients(op, b, h);
    for (int64_t kv = 0; kv < op.kv_heads; ++kv) key_gradients(op, b, kv);
  }
}

}  // namespace strata::kernels::ref
