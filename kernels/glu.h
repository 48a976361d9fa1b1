// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/activation.h"
#include "kernels/interior.h"

// Gated linear unit (Shazeer 2020, arXiv:2002.05202) on the two projections of an MLP: SwiGLU with
// silu, GeGLU with gelu tanh.
//
//   forward   h = a(g) * u
//   backward  du = dh * a(g)      dg = dh * u * a'(g)
//   u and du may be null: then it is the plain activation, as if u were 1
//
//   g, u    [N, F]  I    in    stride elements between rows, 0 = dense (one stride for both: they
//                              may be the halves of one buffer)
//   h       [N, F]  I    out   dense; may be g or u when those are dense
//   dh      [N, F]  I    in    dense
//   dg, du  [N, F]  I    out   d_stride elements between rows, 0 = dense; dg may be g, du may be u
//   a                          kernels/activation.h
//   N = rows, F = cols
//
// Deterministic; the roof is memory bandwidth.
namespace strata::kernels {

struct GluForward {
  Activation activation = Activation::kSilu;
  int64_t rows = 0;
  int64_t cols = 0;
  ConstInterior g = {};
  ConstInterior u = {};
  int64_t stride = 0;
  Interior h = {};
};

struct GluBackward {
  Activation activation = Activation::kSilu;
  int64_t rows = 0;
  int64_t cols = 0;
  ConstInterior g = {};
  ConstInterior u = {};
  int64_t stride = 0;
  ConstInterior dh = {};
  Interior dg = {};
  Interior du = {};
  int64_t d_stride = 0;
};

}  // namespace strata::kernels
