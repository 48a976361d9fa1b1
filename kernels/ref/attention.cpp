// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {
namespace {

double dot(const float* a, const float* b, int64_t count) {
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i) sum += double{a[i]} * b[i];
  return sum;
}

template <typename Op>
void check_shapes(const Op& op) {
  STRATA_CHECK(op.batch > 0 && op.length > 0 && op.heads > 0 && op.kv_heads > 0 &&
               op.head_size > 0 && op.window >= 0 && op.cap >= 0.0f && op.heads % op.kv_heads == 0);
}

template <typename Op>
double score(const Op& op, const float* q, const float* k) {
  const double s = op.scale * dot(q, k, op.head_size);
  return op.cap > 0.0f ? op.cap * std::tanh(s / op.cap) : s;
}

// d(score)/d(scale * q·k).
template <typename Op>
double slope_of(const Op& op, double score) {
  return op.cap > 0.0f ? 1.0 - score / op.cap * (score / op.cap) : 1.0;
}

int64_t first_key(int64_t window, int64_t i) {
  return window == 0 ? 0 : std::max<int64_t>(0, i - window + 1);
}

}  // namespace

void attention_forward(const AttentionForward& op) {
  check_shapes(op);
  const int64_t size = op.head_size;
  const int64_t q_stride = stride_or(op.q_stride, op.heads * size);
  const int64_t k_stride = stride_or(op.k_stride, op.kv_heads * size);
  const int64_t v_stride = stride_or(op.v_stride, op.kv_heads * size);
  const int64_t o_stride = stride_or(op.o_stride, op.heads * size);
  for (int64_t b = 0; b < op.batch; ++b) {
    for (int64_t h = 0; h < op.heads; ++h) {
      const int64_t kv = h / (op.heads / op.kv_heads);
      const float* k = op.k + b * op.length * k_stride + kv * size;
      const float* v = op.v + b * op.length * v_stride + kv * size;
      for (int64_t i = 0; i < op.length; ++i) {
        const int64_t row = b * op.length + i;
        const float* q = op.q + row * q_stride + h * size;
        const int64_t first = first_key(op.window, i);
        double largest = -std::numeric_limits<double>::infinity();
        for (int64_t j = first; j <= i; ++j) {
          largest = std::max(largest, score(op, q, k + j * k_stride));
        }
        double sum = 0.0;
        for (int64_t j = first; j <= i; ++j) {
          sum += std::exp(score(op, q, k + j * k_stride) - largest);
        }
        const double lse = largest + std::log(sum);
        op.lse[(b * op.heads + h) * op.length + i] = static_cast<float>(lse);
        float* o = op.o + row * o_stride + h * size;
        std::fill_n(o, size, 0.0f);
        for (int64_t j = first; j <= i; ++j) {
          const double p = std::exp(score(op, q, k + j * k_stride) - lse);
          for (int64_t d = 0; d < size; ++d) o[d] += static_cast<float>(p * v[j * v_stride + d]);
        }
      }
    }
  }
}

void attention_backward(const AttentionBackward& op) {
  check_shapes(op);
  const int64_t size = op.head_size;
  const int64_t q_stride = stride_or(op.q_stride, op.heads * size);
  const int64_t k_stride = stride_or(op.k_stride, op.kv_heads * size);
  const int64_t v_stride = stride_or(op.v_stride, op.kv_heads * size);
  const int64_t o_stride = stride_or(op.o_stride, op.heads * size);
  const int64_t d_o_stride = stride_or(op.d_o_stride, op.heads * size);
  const int64_t dq_stride = stride_or(op.dq_stride, op.heads * size);
  const int64_t dk_stride = stride_or(op.dk_stride, op.kv_heads * size);
  const int64_t dv_stride = stride_or(op.dv_stride, op.kv_heads * size);
  for (int64_t row = 0; row < op.batch * op.length; ++row) {
    std::fill_n(op.dq + row * dq_stride, op.heads * size, 0.0f);
    std::fill_n(op.dk + row * dk_stride, op.kv_heads * size, 0.0f);
    std::fill_n(op.dv + row * dv_stride, op.kv_heads * size, 0.0f);
  }
  for (int64_t b = 0; b < op.batch; ++b) {
    for (int64_t h = 0; h < op.heads; ++h) {
      const int64_t kv = h / (op.heads / op.kv_heads) * size;
      for (int64_t i = 0; i < op.length; ++i) {
        const int64_t row = b * op.length + i;
        const float* q = op.q + row * q_stride + h * size;
        const float* d_o = op.d_o + row * d_o_stride + h * size;
        const double delta = dot(d_o, op.o + row * o_stride + h * size, size);
        const double lse = op.lse[(b * op.heads + h) * op.length + i];
        float* dq = op.dq + row * dq_stride + h * size;
        for (int64_t j = first_key(op.window, i); j <= i; ++j) {
          const int64_t key = b * op.length + j;
          const float* k = op.k + key * k_stride + kv;
          const double s = score(op, q, k);
          const double p = std::exp(s - lse);
          const double ds =
              p * (dot(d_o, op.v + key * v_stride + kv, size) - delta) * op.scale * slope_of(op, s);
          float* dk = op.dk + key * dk_stride + kv;
          float* dv = op.dv + key * dv_stride + kv;
          for (int64_t d = 0; d < size; ++d) {
            dq[d] += static_cast<float>(ds * k[d]);
            dk[d] += static_cast<float>(ds * q[d]);
            dv[d] += static_cast<float>(p * d_o[d]);
          }
        }
      }
    }
  }
}

}  // namespace strata::kernels::ref
