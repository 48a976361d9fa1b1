// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/kernels/drawn_case.h"

// Drawn cases of the memory-bound ops: each returns the outputs of a forward and its backward. The
// wide ones have rows beyond what threads of a GPU keep in registers.
namespace strata::kernels {

template <bool kWide>
std::vector<Floats> rms_norm(const Backend& backend, Draw& draw) {
  const bool inside = draw.flag();
  const int64_t rows = draw.size(1, kWide ? 3 : 70), groups = inside ? draw.size(1, 3) : 1;
  const int64_t cols = kWide ? draw.size(8188, 8200) : draw.size(1, groups == 1 ? 2100 : 130);
  const int64_t gap = draw.flag() ? 0 : draw.size(1, 8), stride = groups * cols + gap;
  const DType x_type = inside ? draw.interior : draw.weights;
  const float offset = draw.flag() ? 1.0f : 0.0f;
  Drawn x(draw, x_type, rows * stride, 1), w(draw, draw.weights, cols, 2);
  Drawn y(draw, draw.interior, rows * stride, 3), dy(draw, draw.interior, rows * stride, 4);
  Drawn rstd(draw, DType::kF32, rows * groups, 5), dw(draw, DType::kF32, cols, 6);
  Drawn dres(draw, x_type, rows * stride, 7), dx(draw, x_type, rows * stride, 8);
  const bool accumulate = draw.flag(), over_dy = inside && draw.flag(), residual = draw.flag();
  backend.rms_norm_forward({.dtype = draw.weights,
                            .inside = inside,
                            .rows = rows,
                            .groups = groups,
                            .cols = cols,
                            .x = x.data(),
                            .x_stride = stride,
                            .w = w.data(),
                            .offset = offset,
                            .y = y,
                            .y_stride = stride,
                            .rstd = rstd.floats()});
  run_op<&Backend::rms_norm_backward>(backend, draw,
                                      RmsNormBackward{.dtype = draw.weights,
                                                      .inside = inside,
                                                      .rows = rows,
                                                      .groups = groups,
                                                      .cols = cols,
                                                      .x = x.data(),
                                                      .x_stride = stride,
                                                      .w = w.data(),
                                                      .offset = offset,
                                                      .rstd = rstd.floats(),
                                                      .dy = dy,
                                                      .dy_stride = stride,
                                                      .dres = residual ? dres.data() : nullptr,
                                                      .dx = over_dy ? dy.data() : dx.data(),
                                                      .dx_stride = stride,
                                                      .dw = dw.floats(),
                                                      .accumulate = accumulate});
  return {y.values(), rstd.values(), dy.values(), dx.values(), dw.values()};
}

template <bool kWide>
std::vector<Floats> layer_norm(const Backend& backend, Draw& draw) {
  const int64_t rows = draw.size(1, kWide ? 3 : 70);
  const int64_t cols = kWide ? draw.size(8188, 8200) : draw.size(5, 1100);  // fewer cancel
  Drawn x(draw, draw.weights, rows * cols, 1), w(draw, draw.weights, cols, 2);
  Drawn b(draw, draw.weights, cols, 3), y(draw, draw.interior, rows * cols, 4);
  Drawn dy(draw, draw.interior, rows * cols, 5), dx(draw, draw.weights, rows * cols, 6);
  Drawn mean(draw, DType::kF32, rows, 7), rstd(draw, DType::kF32, rows, 8);
  Drawn dw(draw, DType::kF32, cols, 9), db(draw, DType::kF32, cols, 10);
  const bool residual = draw.flag(), accumulate = draw.flag();
  backend.layer_norm_forward({.dtype = draw.weights,
                              .rows = rows,
                              .cols = cols,
                              .x = x.data(),
                              .w = w.data(),
                              .b = b.data(),
                              .y = y,
                              .mean = mean.floats(),
                              .rstd = rstd.floats()});
  run_op<&Backend::layer_norm_backward>(backend, draw,
                                        LayerNormBackward{.dtype = draw.weights,
                                                          .rows = rows,
                                                          .cols = cols,
                                                          .x = x.data(),
                                                          .w = w.data(),
                                                          .mean = mean.floats(),
                                                          .rstd = rstd.floats(),
                                                          .dy = dy,
                                                          .dres = residual ? dx.data() : nullptr,
                                                          .dx = dx.data(),
                                                          .dw = dw.floats(),
                                                          .db = db.floats(),
                                                          .accumulate = accumulate});
  return {y.values(), mean.values(), rstd.values(), dx.values(), dw.values(), db.values()};
}

inline std::vector<Floats> rope(const Backend& backend, Draw& draw) {
  const int64_t length = draw.size(1, 20), rows = length * draw.size(1, 3);
  const int64_t heads = draw.size(1, 5), head_size = 2 * draw.size(1, 40);
  const int64_t rotary = draw.flag() ? 0 : 2 * draw.size(1, head_size / 2);
  const int64_t stride = heads * head_size + draw.size(0, 8);
  Drawn x(draw, draw.interior, rows * stride, 1);
  Drawn cos(draw, DType::kF32, length * head_size / 2, 2);
  Drawn sin(draw, DType::kF32, length * head_size / 2, 3);
  backend.rope({.rows = rows,
                .length = length,
                .heads = heads,
                .head_size = head_size,
                .rotary = rotary,
                .x = x,
                .row_stride = stride,
                .cos = cos.floats(),
                .sin = sin.floats(),
                .inverse = draw.flag()});
  return {x.values()};
}

inline std::vector<Floats> glu(const Backend& backend, Draw& draw) {
  const Activation activation = draw.flag() ? Activation::kSilu : Activation::kGeluTanh;
  const int64_t rows = draw.size(1, 20), cols = draw.size(1, 300);
  const bool plain = draw.flag(), fused = draw.flag();
  const int64_t stride = fused ? 2 * cols : 0;
  Drawn gu(draw, draw.interior, 2 * rows * cols, 1, 12.0f);
  Drawn h(draw, draw.interior, rows * cols, 2), dh(draw, draw.interior, rows * cols, 3);
  const Interior g = gu, u = plain ? Interior() : g + (fused ? cols : rows * cols);
  backend.glu_forward({.activation = activation,
                       .rows = rows,
                       .cols = cols,
                       .g = g,
                       .u = u,
                       .stride = stride,
                       .h = h});
  backend.glu_backward({.activation = activation,
                        .rows = rows,
                        .cols = cols,
                        .g = g,
                        .u = u,
                        .stride = stride,
                        .dh = dh,
                        .dg = g,
                        .du = u,
                        .d_stride = stride});
  return {h.values(), gu.values()};
}

inline std::vector<int32_t> drawn_ids(Draw& draw, int64_t count, int64_t least, int64_t most) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(draw.size(least, most)));
  return ids;
}

inline std::vector<Floats> embeddings(const Backend& backend, Draw& draw) {
  const int64_t ranks = draw.flag() ? 2 : 1;  // of a context
  const ContextPart context = {ranks == 2 && draw.flag() ? 1 : 0, ranks};
  const int64_t length = ranks * draw.size(1, 20), rows = length * draw.size(1, 4);
  const int64_t cols = draw.size(1, 700), vocabulary = draw.size(1, 40);
  const int64_t positions = ranks * length + draw.size(0, 3);
  const float scale = draw.flag() ? 1.0f : 6.9f;
  const bool accumulate = draw.flag();
  const auto tokens = drawn_ids(draw, rows, 0, vocabulary - 1);
  const auto starts = drawn_starts(rows / length, length, draw.seed());
  const int32_t* given_starts = draw.flag() ? nullptr : starts.data();
  Drawn w(draw, draw.weights, vocabulary * cols, 1), y(draw, draw.weights, rows * cols, 2);
  Drawn p(draw, draw.weights, positions * cols, 3), dw(draw, DType::kF32, vocabulary * cols, 4);
  Drawn dp(draw, DType::kF32, positions * cols, 5);
  backend.embedding_forward({.dtype = draw.weights,
                             .rows = rows,
                             .cols = cols,
                             .vocabulary = vocabulary,
                             .scale = scale,
                             .tokens = tokens.data(),
                             .w = w.data(),
                             .out = y.data()});
  backend.position_forward({.dtype = draw.weights,
                            .rows = rows,
                            .cols = cols,
                            .length = length,
                            .context = context,
                            .starts = given_starts,
                            .p = p.data(),
                            .y = y.data()});
  backend.embedding_backward({.dtype = draw.weights,
                              .rows = rows,
                              .cols = cols,
                              .vocabulary = vocabulary,
                              .scale = scale,
                              .ignored = draw.flag() ? -1 : tokens[0],
                              .tokens = tokens.data(),
                              .dy = y.data(),
                              .dw = dw.floats(),
                              .accumulate = accumulate});
  backend.position_backward({.dtype = draw.weights,
                             .rows = rows,
                             .cols = cols,
                             .length = length,
                             .context = context,
                             .starts = given_starts,
                             .positions = positions,
                             .dy = y.data(),
                             .dp = dp.floats(),
                             .accumulate = accumulate});
  return {y.values(), dw.values(), dp.values()};
}

inline std::vector<Floats> elementwise(const Backend& backend, Draw& draw) {
  const int64_t count = draw.size(1, 5000), rows = draw.size(1, 5), length = draw.size(1, 9);
  Drawn x(draw, draw.weights, count, 1), a(draw, draw.interior, count, 2);
  Drawn filled(draw, draw.interior, count, 3), cast(draw, draw.interior, count, 4);
  Drawn sum(draw, DType::kF32, count, 5), other(draw, DType::kF32, count, 6);
  // Halfway between two values of bf16 or f16, where roundings differ.
  const uint32_t half = draw.interior == DType::kF16 ? 0x1000u : 0x8000u;
  for (int64_t i = 0; draw.weights == DType::kF32 && i < count; i += 3) {
    const uint32_t bits = std::bit_cast<uint32_t>(x.floats()[i]) & ~(2 * half - 1);
    x.floats()[i] = std::bit_cast<float>(bits | half);
  }
  backend.cast({.dtype = draw.weights, .count = count, .x = x.data(), .y = cast});
  backend.add_residual(
      {.dtype = draw.weights, .count = count, .x = x.data(), .a = a, .y = x.data()});
  backend.fill({.count = count, .value = 0.3f, .y = filled});
  backend.add({.count = count, .a = other.floats(), .y = sum.floats()});
  const int64_t cols = count / 5 + 1;
  const auto position = drawn_ids(draw, rows, 0, length - 1);
  Drawn all(draw, draw.weights, rows * length * cols, 7), some(draw, draw.weights, rows * cols, 8);
  backend.gather_rows({.rows = rows,
                       .length = length,
                       .row_bytes = cols * bytes_of(draw.weights),
                       .x = all.data(),
                       .position = position.data(),
                       .y = some.data()});
  // The left parts of the gathered rows, apart.
  const int64_t part = cols / 2 + 1;
  Drawn apart(draw, draw.weights, rows * (part + 3), 9);
  const int64_t width = bytes_of(draw.weights);
  backend.copy_rows({.rows = rows,
                     .row_bytes = part * width,
                     .x = some.data(),
                     .x_stride = cols * width,
                     .y = apart.data(),
                     .y_stride = (part + 3) * width});
  return {cast.values(), x.values(), filled.values(), sum.values(), some.values(), apart.values()};
}

// Of values with the types of weights to those of interiors; where these are one, some over a
// source. A few sums are infinite or NaN, and a few of f32 lie halfway between two values of bf16.
inline std::vector<Floats> ordered_sums(const Backend& backend, Draw& draw) {
  const int64_t count = draw.size(1, 5000);
  const auto sources = static_cast<size_t>(draw.size(1, kMostSources));
  OrderedSum op = {.count = count,
                   .sources = static_cast<int>(sources),
                   .from = draw.weights,
                   .to = draw.interior};
  std::vector<Drawn> x;
  x.reserve(sources);
  for (size_t k = 0; k < sources; ++k) {
    Drawn& one = x.emplace_back(draw, draw.weights, count, k + 1);
    op.x[k] = one.data();
    const auto put = [&](int64_t first, uint32_t bits) {
      for (int64_t i = first; i < count; i += 9) {
        if (draw.weights == DType::kF32) {
          one.floats()[i] = std::bit_cast<float>(bits);
        } else {
          static_cast<uint16_t*>(one.data())[i] = static_cast<uint16_t>(bits >> 16);
        }
      }
    };
    put(4, k == 0 ? 0xffc12345u : 0x3f800000u);
    put(5, k % 2 == 0 ? 0x7f800000u : 0xff800000u);
    put(6, k == 0 ? 0x3f808000u : 0u);
    put(7, k == 0 ? 0xbf818000u : 0u);
  }
  Drawn apart(draw, draw.interior, count, 9);
  const auto over = static_cast<size_t>(draw.size(0, static_cast<int64_t>(sources) - 1));
  Drawn& y = draw.weights == draw.interior && draw.flag() ? x[over] : apart;
  op.y = y.data();
  Drawn before(draw, DType::kF32, count, 10);
  if (draw.flag()) op.before = before.floats();
  backend.ordered_sum(op);
  return {y.values(), x.front().values(), x.back().values()};
}

}  // namespace strata::kernels
