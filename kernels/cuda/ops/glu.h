// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/ops/launch.h"
#include "kernels/glu.h"
#include "kernels/rope.h"

// Gated units, plain activations, and RoPE.
namespace strata::kernels::cuda {

// The parts of an activation and its derivative: s = sigmoid(t(x)) and t'(x).
struct ActivationParts {
  float s, dt;
};

// Clamped so that exp() stays finite; beyond the clamp, sigmoid rounds to 0 or 1.
STRATA_HOST_DEVICE inline float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-(x < -87.0f ? -87.0f : x)));
}

template <Activation kActivation>
STRATA_HOST_DEVICE ActivationParts activation_parts(float x) {
  if constexpr (kActivation == Activation::kSilu) {
    return {sigmoid(x), 1.0f};
  } else {
    static_assert(kActivation == Activation::kGeluTanh);
    // Beyond 16, s rounds to 0 or 1; the cube of a larger x may overflow.
    const float bounded = x < -16.0f ? -16.0f : x > 16.0f ? 16.0f : x;
    constexpr auto kSlope = static_cast<float>(kGeluSlope);
    const float cubic = bounded * bounded * static_cast<float>(kGeluCubic);
    return {sigmoid(kSlope * bounded * (1.0f + cubic)), kSlope * (1.0f + 3.0f * cubic)};
  }
}

template <typename I, Activation kActivation, bool kWhole>
struct GluForwardPack {
  const typename I::Stored* g;
  const typename I::Stored* u;
  typename I::Stored* h;
  int64_t cols, stride;
  STRATA_HOST_DEVICE void operator()(int64_t row, int64_t col) const {
    const int64_t at = row * stride + col, left = cols - col;
    Four out = load_four<I, kWhole>(g + at, left);
    for (int i = 0; i < kPack; ++i) out.at[i] *= activation_parts<kActivation>(out.at[i]).s;
    if (u != nullptr) {
      const Four up = load_four<I, kWhole>(u + at, left);
      for (int i = 0; i < kPack; ++i) out.at[i] *= up.at[i];
    }
    store_four<I, kWhole>(h + row * cols + col, left, out);
  }
};

template <typename I, Activation kActivation, bool kWhole>
struct GluBackwardPack {
  const typename I::Stored* g;
  const typename I::Stored* u;
  const typename I::Stored* dh;
  typename I::Stored* dg;
  typename I::Stored* du;
  int64_t cols, stride, d_stride;
  STRATA_HOST_DEVICE void operator()(int64_t row, int64_t col) const {
    const int64_t at = row * stride + col, d_at = row * d_stride + col, left = cols - col;
    const Four gate = load_four<I, kWhole>(g + at, left);
    const Four dout = load_four<I, kWhole>(dh + row * cols + col, left);
    Four up = {{1.0f, 1.0f, 1.0f, 1.0f}}, of_g, of_u;
    if (u != nullptr) up = load_four<I, kWhole>(u + at, left);
    for (int i = 0; i < kPack; ++i) {
      const ActivationParts parts = activation_parts<kActivation>(gate.at[i]);
      const float rest = (1.0f - parts.s) * parts.dt;
      of_g.at[i] = dout.at[i] * up.at[i] * (parts.s * (1.0f + gate.at[i] * rest));
      of_u.at[i] = dout.at[i] * (gate.at[i] * parts.s);
    }
    store_four<I, kWhole>(dg + d_at, left, of_g);
    if (du != nullptr) store_four<I, kWhole>(du + d_at, left, of_u);
  }
};

// A pack of pairs of one row: pairs [col, col + 4) of all heads' halves, one after the other. A
// pack may reach from one head into the next, so its elements are loaded one by one.
template <typename I>
struct RopePack {
  typename I::Stored* x;
  const float* cos;
  const float* sin;
  const int32_t* positions;  // may be null
  int64_t length, pairs, head_size, stride;
  int half;
  bool inverse;
  STRATA_HOST_DEVICE void operator()(int64_t row, int64_t col) const {
    const int64_t angles = (positions == nullptr ? row % length : positions[row]) * half;
    for (int64_t pair = col; pair < col + kPack && pair < pairs; ++pair) {
      const int head = static_cast<int>(pair) / half, i = static_cast<int>(pair) % half;
      auto* at = x + row * stride + head * head_size + i;
      const float c = cos[angles + i];
      const float s = inverse ? -sin[angles + i] : sin[angles + i];
      const float a = I::load(at[0]), b = I::load(at[half]);
      at[0] = I::store(a * c - b * s);
      at[half] = I::store(b * c + a * s);
    }
  }
};

template <typename Op, typename Body>
void with_glu_types(const Op& op, const Body& body) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0);
  with_inside(op.g.dtype, [&](auto i) {
    with_activation(op.activation, [&](auto activation) { body(i, activation); });
  });
}

template <typename On>
void glu_forward(On& on, const GluForward& op) {
  with_glu_types(op, [&](auto i, auto activation) {
    using I = decltype(i);
    const auto* g = elements<I>(op.g.data);
    const auto* u = elements<I>(op.u.data);
    auto* h = elements<I>(op.h.data);
    const int64_t stride = stride_or(op.stride, op.cols);
    const bool whole =
        op.cols % kPack == 0 && is_packed(g, stride) && is_packed(u, stride) && is_packed(h);
    with_flag(whole, [&](auto flag) {
      on.grid(op.rows, op.cols,
              GluForwardPack<I, decltype(activation)::value, decltype(flag)::value>{
                  g, u, h, op.cols, stride});
    });
  });
}

template <typename On>
void glu_backward(On& on, const GluBackward& op) {
  STRATA_CHECK((op.u == nullptr) == (op.du == nullptr));
  with_glu_types(op, [&](auto i, auto activation) {
    using I = decltype(i);
    const auto* g = elements<I>(op.g.data);
    const auto* u = elements<I>(op.u.data);
    const auto* dh = elements<I>(op.dh.data);
    auto* dg = elements<I>(op.dg.data);
    auto* du = elements<I>(op.du.data);
    const int64_t stride = stride_or(op.stride, op.cols);
    const int64_t d_stride = stride_or(op.d_stride, op.cols);
    const bool whole = op.cols % kPack == 0 && is_packed(g, stride) && is_packed(u, stride) &&
                       is_packed(dh) && is_packed(dg, d_stride) && is_packed(du, d_stride);
    with_flag(whole, [&](auto flag) {
      on.grid(op.rows, op.cols,
              GluBackwardPack<I, decltype(activation)::value, decltype(flag)::value>{
                  g, u, dh, dg, du, op.cols, stride, d_stride});
    });
  });
}

template <typename On>
void rope(On& on, const Rope& op) {
  const int64_t turned = stride_or(op.rotary, op.head_size), pairs = op.heads * turned / 2;
  STRATA_CHECK(has_positions(op.rows, op.length, op.positions));
  STRATA_CHECK(turned % 2 == 0 && turned <= op.head_size && pairs <= INT32_MAX);
  with_inside(op.x.dtype, [&](auto i) {
    using I = decltype(i);
    on.grid(op.rows, pairs,
            RopePack<I>{elements<I>(op.x.data), op.cos, op.sin, op.positions, op.length, pairs,
                        op.head_size, stride_or(op.row_stride, op.heads * op.head_size),
                        static_cast<int>(turned / 2), op.inverse});
  });
}

}  // namespace strata::kernels::cuda
