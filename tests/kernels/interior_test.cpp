// SPDX-License-Identifier: Apache-2.0
// With interiors in bf16 or f16 the plain loops compute what they compute in f32, and round each
// element that they leave within the segment once, to nearest even. Gradients of weights and
// statistics stay f32. The cpu's kernels refuse such interiors.
#include "kernels/interior.h"

#include "engine/base/error.h"
#include "kernels/buffers.h"
#include "kernels/emulated/device_emulated.h"
#include "tests/kernels/kernel_case.h"

namespace strata::kernels {
namespace {

constexpr int64_t kInteriorRows = 6, kIn = 5, kOut = 8;

struct Output {
  Floats values;
  bool inside;
};
using Outputs = std::vector<Output>;

// Random values that bf16 and f16 hold.
Floats coarse(int64_t count, uint64_t seed) {
  Floats values = random_floats(count, seed);
  for (float& value : values) value = from_f16(to_f16(from_bf16(to_bf16(value))));
  return values;
}

float rounded_to(DType type, float value) {
  return type == DType::kBF16 ? from_bf16(nearest_bf16(value)) : from_f16(to_f16(value));
}

// A tensor within a segment.
class Inside {
 public:
  Inside(DType type, int64_t count, uint64_t seed)
      : type_(type), typed_(type, coarse(count, seed)) {}
  operator Interior() { return {typed_.data(), type_}; }
  operator ConstInterior() { return Interior(*this); }
  void* data() { return typed_.data(); }
  Output output() const { return {typed_.values(), true}; }

 private:
  DType type_;
  Typed typed_;
};

Output statistics(const Floats& values) {
  return {values, false};
}

const Backend& ref() {
  return ref_backend();
}

Outputs products(DType type) {
  Inside x(type, kInteriorRows * kIn, 1), y(type, kInteriorRows * kOut, 2),
      dy(type, kInteriorRows * kOut, 3);
  Inside dx(type, kInteriorRows * kIn, 4);
  const Floats w = coarse(kOut * kIn, 5), bias = coarse(kOut, 6);
  Floats dw = coarse(kOut * kIn, 7), dbias = coarse(kOut, 8);
  ref().matmul_forward({.rows = kInteriorRows,
                        .outputs = kOut,
                        .inputs = kIn,
                        .x = x,
                        .w = w.data(),
                        .bias = bias.data(),
                        .y = y,
                        .accumulate = true});
  ref().matmul_input(
      {.rows = kInteriorRows, .outputs = kOut, .inputs = kIn, .dy = dy, .w = w.data(), .dx = dx});
  ref().matmul_weight({.rows = kInteriorRows,
                       .outputs = kOut,
                       .inputs = kIn,
                       .dy = dy,
                       .x = x,
                       .dw = dw.data(),
                       .dbias = dbias.data(),
                       .accumulate = true});
  return {y.output(), dx.output(), statistics(dw), statistics(dbias)};
}

Outputs norms(DType type) {
  Inside x(type, kInteriorRows * 2 * kIn, 1), y(type, kInteriorRows * 2 * kIn, 2),
      dx(type, kInteriorRows * 2 * kIn, 3);
  const Floats w = coarse(kIn, 4);
  Floats rstd(kInteriorRows * 2), dw(kIn);
  ref().rms_norm_forward({.inside = true,
                          .rows = kInteriorRows,
                          .groups = 2,
                          .cols = kIn,
                          .x = x.data(),
                          .w = w.data(),
                          .y = y,
                          .rstd = rstd.data()});
  // dx over dy, as for the heads of q and k.
  ref().rms_norm_backward({.inside = true,
                           .rows = kInteriorRows,
                           .groups = 2,
                           .cols = kIn,
                           .x = x.data(),
                           .w = w.data(),
                           .rstd = rstd.data(),
                           .dy = dx,
                           .dx = dx.data(),
                           .dw = dw.data()});
  return {y.output(), dx.output(), statistics(rstd), statistics(dw)};
}

// Of a boundary tensor in f32: what leaves the segment is not rounded.
Outputs norms_of_the_boundary(DType type) {
  const Floats x = random_floats(kInteriorRows * kIn, 1), w = coarse(kIn, 2), b = coarse(kIn, 3);
  Inside y(type, kInteriorRows * kIn, 4), z(type, kInteriorRows * kIn, 5),
      dy(type, kInteriorRows * kIn, 6);
  Floats mean(kInteriorRows), rstd(kInteriorRows), dx(kInteriorRows * kIn), dw(kIn), db(kIn),
      rms_dx(kInteriorRows * kIn);
  ref().rms_norm_forward({.rows = kInteriorRows,
                          .cols = kIn,
                          .x = x.data(),
                          .w = w.data(),
                          .y = z,
                          .rstd = rstd.data()});
  ref().rms_norm_backward({.rows = kInteriorRows,
                           .cols = kIn,
                           .x = x.data(),
                           .w = w.data(),
                           .rstd = rstd.data(),
                           .dy = dy,
                           .dx = rms_dx.data()});
  ref().layer_norm_forward({.rows = kInteriorRows,
                            .cols = kIn,
                            .x = x.data(),
                            .w = w.data(),
                            .b = b.data(),
                            .y = y,
                            .mean = mean.data(),
                            .rstd = rstd.data()});
  ref().layer_norm_backward({.rows = kInteriorRows,
                             .cols = kIn,
                             .x = x.data(),
                             .w = w.data(),
                             .mean = mean.data(),
                             .rstd = rstd.data(),
                             .dy = dy,
                             .dx = dx.data(),
                             .dw = dw.data(),
                             .db = db.data()});
  return {y.output(),     z.output(),     statistics(dx),  statistics(rms_dx),
          statistics(dw), statistics(db), statistics(mean)};
}

Outputs attention(DType type) {
  constexpr int64_t kHeads = 4, kKeys = 2, kSize = 6, kLength = 5;
  const int64_t q_count = kLength * kHeads * kSize, k_count = kLength * kKeys * kSize;
  Inside q(type, q_count, 1), k(type, k_count, 2), v(type, k_count, 3), o(type, q_count, 4);
  Inside other_o(type, q_count, 5), d_o(type, q_count, 6);
  Inside dq(type, q_count, 7), dk(type, k_count, 8), dv(type, k_count, 9);
  Floats lse(kHeads * kLength), cos = coarse(kLength * kSize / 2, 10), sin = cos;
  Scratch scratch(2 * kSize * 4);
  ref().rope({.rows = kLength,
              .length = kLength,
              .heads = kHeads,
              .head_size = kSize,
              .x = dq,
              .cos = cos.data(),
              .sin = sin.data()});
  const Output turned = dq.output();
  ref().attention_forward({.batch = 1,
                           .length = kLength,
                           .heads = kHeads,
                           .kv_heads = kKeys,
                           .head_size = kSize,
                           .scale = 0.4f,
                           .q = q,
                           .k = k,
                           .v = v,
                           .o = o,
                           .lse = lse.data(),
                           .workspace = scratch.lend()});
  ref().attention_backward({.batch = 1,
                            .length = kLength,
                            .heads = kHeads,
                            .kv_heads = kKeys,
                            .head_size = kSize,
                            .scale = 0.4f,
                            .window = 3,
                            .q = q,
                            .k = k,
                            .v = v,
                            .o = other_o,
                            .lse = lse.data(),
                            .d_o = d_o,
                            .dq = dq,
                            .dk = dk,
                            .dv = dv,
                            .workspace = scratch.lend()});
  return {turned, o.output(), statistics(lse), dq.output(), dk.output(), dv.output()};
}

Outputs units(DType type) {
  Inside g(type, kInteriorRows * kIn, 1), u(type, kInteriorRows * kIn, 2),
      h(type, kInteriorRows * kIn, 3);
  ref().glu_forward({.rows = kInteriorRows, .cols = kIn, .g = g, .u = u, .h = h});
  const Output forward = h.output();
  Inside dh(type, kInteriorRows * kIn, 4);
  ref().glu_backward(
      {.rows = kInteriorRows, .cols = kIn, .g = g, .u = u, .dh = dh, .dg = g, .du = u});
  return {forward, g.output(), u.output()};
}

Outputs loss(DType type) {
  const int32_t targets[kInteriorRows] = {0, 3, -1, 7, 1, 2};
  Inside h(type, kInteriorRows * kIn, 1);
  const Floats w = coarse(kOut * kIn, 2);
  Floats dw(kOut * kIn);
  double sum = 0;
  Scratch scratch(kOut * 4);
  ref().linear_cross_entropy({.rows = kInteriorRows,
                              .cols = kIn,
                              .vocabulary = kOut,
                              .h = h,
                              .w = w.data(),
                              .targets = targets,
                              .loss_sum = &sum,
                              .dh = h,
                              .dw = dw.data(),
                              .workspace = scratch.lend()});
  return {h.output(), statistics(dw), statistics({static_cast<float>(sum)})};
}

Outputs elements(DType type) {
  constexpr int64_t kCount = 20;
  Floats x = random_floats(kCount, 1);
  Inside a(type, kCount, 2), filled(type, kCount, 3), cast(type, kCount, 4);
  ref().cast({.count = kCount, .x = x.data(), .y = cast});
  ref().fill({.count = kCount, .value = 0.3f, .y = filled});
  ref().add_residual({.count = kCount, .x = x.data(), .a = a, .y = x.data()});
  return {cast.output(), filled.output(), statistics(x)};
}

TEST(Interior, OfSixteenBitsIsThatInF32RoundedOnce) {
  const struct {
    const char* name;
    Outputs (*run)(DType);
  } cases[] = {{"products", products},   {"norms", norms}, {"boundary", norms_of_the_boundary},
               {"attention", attention}, {"units", units}, {"loss", loss},
               {"elements", elements}};
  for (const auto& one : cases) {
    const Outputs exact = one.run(DType::kF32);
    for (const DType type : {DType::kBF16, DType::kF16}) {
      const Outputs found = one.run(type);
      for (size_t i = 0; i < exact.size(); ++i) {
        Floats wanted = exact[i].values;
        for (float& value : wanted) {
          if (exact[i].inside) value = rounded_to(type, value);
        }
        EXPECT_TRUE(same_bits(found[i].values, wanted))
            << one.name << " in " << name_of(type) << ", output " << i;
      }
    }
  }
}

TEST(Interior, RoundsTiesToEven) {
  EXPECT_EQ(nearest_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(nearest_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(nearest_bf16(std::bit_cast<float>(0xbf818000u)), 0xbf82);
  EXPECT_EQ(nearest_bf16(std::bit_cast<float>(0x7f7fffffu)), 0x7f80);
  EXPECT_EQ(nearest_bf16(std::bit_cast<float>(0x7f800001u)), 0x7fc0);
}

TEST(Interior, BuffersHaveTheBytesOfTheirType) {
  Halves x(kInteriorRows * kIn), y(kInteriorRows * kOut);
  MatMulForward op = {.rows = kInteriorRows,
                      .outputs = kOut,
                      .inputs = kIn,
                      .x = {x.data(), DType::kBF16},
                      .y = {y.data(), DType::kBF16}};
  std::vector<int64_t> bytes;
  each_buffer(op, [&](auto*&, int64_t count, bool) { bytes.push_back(count); });
  EXPECT_EQ(bytes, (std::vector<int64_t>{kInteriorRows * kIn * 2, kOut * kIn * 4, kOut * 4,
                                         kInteriorRows * kOut * 2, 0}));
}

TEST(InteriorDeath, TheCpusKernelsTakeF32Alone) {
  Floats y(4);
  Halves a(4);
  const AddResidual op = {.count = 4, .x = y.data(), .a = {a.data(), DType::kBF16}, .y = y.data()};
  EXPECT_DEATH(cpu_backend().add_residual(op), "dtype == DType::kF32");
  for (const DType type : {DType::kBF16, DType::kF16}) {
    EXPECT_THROW(make_emulated_device(cpu_backend(), {.interior = type}), Error);
    EXPECT_EQ(make_emulated_device(ref_backend(), {.interior = type})->description().interior,
              type);
  }
  EXPECT_THROW(make_emulated_device(ref_backend(), {.interior = DType::kF8E4M3}), Error);
}

}  // namespace
}  // namespace strata::kernels
