// SPDX-License-Identifier: Apache-2.0
// The kernels of the CUDA device equal the plain loops: their host twins here, and the GPU itself
// where STRATA_TEST_PLUGIN names the plugin's folder (tests/gpu/run.sh). Shapes, types and
// alignments are drawn.
#include "tests/kernels/drawn_rows.h"
#include "tests/kernels/tested_device.h"
#include "tests/kernels/vocabulary_parts.h"

namespace strata::kernels {
namespace {

// The form of the planes is that of a recipe with the weights' type.
std::vector<Floats> updates(const Backend& backend, Draw& draw) {
  const int64_t count = draw.size(1, 40000);
  Drawn exp_avg(draw, DType::kF32, count, 1), grad(draw, DType::kF32, count, 3);
  Drawn exp_avg_sq(draw, DType::kF32, count, 2), master(draw, DType::kF32, count, 4);
  Drawn hi(draw, DType::kBF16, count, 5), lo(draw, DType::kBF16, count, 6);
  for (int64_t i = 0; i < count; ++i) exp_avg_sq.floats()[i] *= exp_avg_sq.floats()[i];
  if (count > 9) {
    grad.floats()[8] = 1e-30f;
    exp_avg.floats()[9] = std::bit_cast<float>(0xffc12345u);
    exp_avg_sq.floats()[5] = -1.0f;
    master.floats()[4] = std::bit_cast<float>(0x7f800001u);
    master.floats()[6] = 70000.0f;  // beyond f16
  }
  const bool split = draw.weights == DType::kBF16, over_grad = draw.flag();
  backend.adamw({.count = count,
                 .hi = draw.weights == DType::kF32 ? nullptr : static_cast<uint16_t*>(hi.data()),
                 .lo = split ? static_cast<uint16_t*>(lo.data()) : nullptr,
                 .master = split ? nullptr : master.floats(),
                 .exp_avg = exp_avg.floats(),
                 .exp_avg_sq = exp_avg_sq.floats(),
                 .next_exp_avg_sq = over_grad ? grad.floats() : nullptr,
                 .grad = grad.floats(),
                 .scalars = adamw_scalars({.lr = 1e-2, .weight_decay = 0.1}, 3, 0.37)});
  std::array<SquaresPartial, 8> squares = {};
  Drawn x(draw, DType::kF32, count, 7);
  const int64_t part = draw.flag() ? 0 : draw.size(count / 7, count);
  run_op<&Backend::sum_squares>(
      backend, draw,
      SumSquares{.count = count, .part = part, .x = x.floats(), .out = squares.data()});
  Floats sums;
  for (const SquaresPartial& one : squares) {
    const auto bits = std::bit_cast<std::array<float, 2>>(one.sum);
    sums.insert(sums.end(), bits.begin(), bits.end());
  }
  return {hi.values(),   lo.values(), master.values(), exp_avg.values(), exp_avg_sq.values(),
          grad.values(), sums};
}

std::vector<Floats> products(const Backend& backend, Draw& draw) {
  const int64_t m = draw.size(1, 70), n = draw.size(1, 60), k = draw.size(1, 90);
  const int64_t x_stride = k + draw.size(0, 8), y_stride = n + draw.size(0, 8);
  const bool accumulate = draw.flag(), biased = draw.flag();
  Drawn x(draw, draw.interior, m * x_stride, 1), y(draw, draw.interior, m * y_stride, 2);
  Drawn dx(draw, draw.interior, m * x_stride, 3), dy(draw, draw.interior, m * y_stride, 4);
  Drawn w(draw, draw.weights, n * k, 5), bias(draw, draw.weights, n, 6);
  Drawn dw(draw, DType::kF32, n * k, 7), dbias(draw, DType::kF32, n, 8);
  run_op<&Backend::matmul_forward>(backend, draw,
                                   MatMulForward{.dtype = draw.weights,
                                                 .rows = m,
                                                 .outputs = n,
                                                 .inputs = k,
                                                 .x = x,
                                                 .x_stride = x_stride,
                                                 .w = w.data(),
                                                 .bias = biased ? bias.data() : nullptr,
                                                 .y = y,
                                                 .y_stride = y_stride,
                                                 .accumulate = accumulate && !biased});
  run_op<&Backend::matmul_input>(backend, draw,
                                 MatMulInput{.dtype = draw.weights,
                                             .rows = m,
                                             .outputs = n,
                                             .inputs = k,
                                             .dy = dy,
                                             .dy_stride = y_stride,
                                             .w = w.data(),
                                             .dx = dx,
                                             .dx_stride = x_stride,
                                             .accumulate = accumulate});
  run_op<&Backend::matmul_weight>(backend, draw,
                                  MatMulWeight{.rows = m,
                                               .outputs = n,
                                               .inputs = k,
                                               .dy = dy,
                                               .dy_stride = y_stride,
                                               .x = x,
                                               .x_stride = x_stride,
                                               .dw = dw.floats(),
                                               .dbias = biased ? dbias.floats() : nullptr,
                                               .accumulate = accumulate});
  return {y.values(), dx.values(), dw.values(), dbias.values()};
}

std::vector<Floats> row_products(const Backend& backend, Draw& draw) {
  const int64_t m = draw.size(1, 20), n = draw.size(1, 60), k = draw.size(1, 1300);
  const int64_t x_stride = k + draw.size(0, 8), y_stride = n + draw.size(0, 8);
  const bool accumulate = draw.flag(), biased = draw.flag();
  Drawn x(draw, draw.interior, m * x_stride, 1);
  Drawn y(draw, draw.flag() ? draw.interior : DType::kF32, m * y_stride, 2);
  Drawn w(draw, draw.weights, n * k, 3), bias(draw, draw.weights, n, 4);
  run_op<&Backend::matmul_forward>(backend, draw,
                                   MatMulForward{.dtype = draw.weights,
                                                 .rows = m,
                                                 .outputs = n,
                                                 .inputs = k,
                                                 .x = x,
                                                 .x_stride = x_stride,
                                                 .w = w.data(),
                                                 .bias = biased ? bias.data() : nullptr,
                                                 .y = y,
                                                 .y_stride = y_stride,
                                                 .accumulate = accumulate && !biased,
                                                 .by_row = true});
  return {y.values()};
}

// With kParts, by up to 4 ranks with a part of the vocabulary each.
template <bool kParts>
std::vector<Floats> loss(const Backend& backend, Draw& draw) {
  const bool chunks = draw.seed() % 6 == 0;  // beyond the rows of one
  const int64_t least = kParts ? 10 : 1;
  const int64_t rows = chunks ? 4100 : draw.size(1, 20),
                vocabulary = chunks ? least + 4 : draw.size(least, 900);
  const int64_t cols = draw.size(1, chunks ? 4 : 30);
  const bool gradients = draw.flag(), in_place = draw.flag(), accumulate = draw.flag();
  const auto targets = drawn_ids(draw, rows, -1, vocabulary - 1);
  Drawn h(draw, draw.interior, rows * cols, 1, 3.0f), dh(draw, draw.interior, rows * cols, 2);
  Drawn w(draw, draw.weights, vocabulary * cols, 3), dw(draw, DType::kF32, vocabulary * cols, 4);
  double sum = -1.0;
  const Interior to = in_place ? Interior(h) : Interior(dh);
  const LinearCrossEntropy op = {.dtype = draw.weights,
                                 .rows = rows,
                                 .cols = cols,
                                 .vocabulary = vocabulary,
                                 .cap = draw.flag() ? 5.0f : 0.0f,
                                 .h = h,
                                 .w = w.data(),
                                 .targets = targets.data(),
                                 .grad_scale = 0.25f,
                                 .loss_sum = &sum,
                                 .dh = gradients ? to : Interior(),
                                 .dw = gradients ? dw.floats() : nullptr,
                                 .accumulate = accumulate};
  const auto run = [&](const LinearCrossEntropy& one) {
    run_op<&Backend::linear_cross_entropy>(backend, draw, one);
  };
  if constexpr (kParts) {
    const ResultsOfParts parts = run_by_parts(op, static_cast<int>(draw.size(1, 4)), run);
    std::vector<Floats> outputs = parts.dh;
    for (const double found : parts.loss) EXPECT_EQ(found, parts.loss[0]);
    outputs.insert(outputs.end(), {{static_cast<float>(parts.loss[0])}, parts.scores, dw.values()});
    return outputs;
  }
  run(op);
  return {{static_cast<float>(sum)}, h.values(), dh.values(), dw.values()};
}

// Lengths beyond one tile of query rows, with and without a window, for two seeds. With kFused,
// what cuDNN's kernels take on a GPU.
template <bool kFused>
std::vector<Floats> attention(const Backend& backend, Draw& draw) {
  draw.aligned = kFused;
  constexpr int64_t kUnit = kFused ? 8 : 1;
  const bool tiles = draw.seed() % 6 == 0;
  // One key alone has the gradient 0, which only equal sums give.
  constexpr int64_t kLeast = kFused ? 2 : 1;
  const int64_t batch = tiles ? 1 : draw.size(1, 2), length = tiles ? 530 : draw.size(kLeast, 50);
  const int64_t kv_heads = tiles ? 1 : draw.size(1, 3), heads = kv_heads * draw.size(1, 3);
  const int64_t size = kUnit * draw.size(1, tiles ? 3 : kFused ? 16 : 20), rows = batch * length;
  const int64_t q_stride = heads * size + kUnit * draw.size(0, 4), k_stride = kv_heads * size;
  const int64_t window = draw.flag() ? 0 : draw.size(kLeast, length);
  const float cap = kFused || draw.flag() ? 0.0f : 2.0f;
  const DType type = draw.interior;
  const std::vector<int32_t> starts = drawn_starts(batch, length, draw.seed());
  const int32_t* given_starts = kFused || draw.flag() ? nullptr : starts.data();
  Drawn q(draw, type, rows * q_stride, 1, 2.0f), k(draw, type, rows * k_stride, 2, 2.0f);
  Drawn v(draw, type, rows * k_stride, 3), o(draw, type, rows * q_stride, 4);
  Drawn lse(draw, DType::kF32, rows * heads, 5), d_o(draw, type, rows * q_stride, 6);
  Drawn dq(draw, type, rows * q_stride, 7), dk(draw, type, rows * k_stride, 8);
  Drawn dv(draw, type, rows * k_stride, 9);
  run_op<&Backend::attention_forward>(backend, draw,
                                      AttentionForward{.batch = batch,
                                                       .length = length,
                                                       .heads = heads,
                                                       .kv_heads = kv_heads,
                                                       .head_size = size,
                                                       .scale = 0.4f,
                                                       .cap = cap,
                                                       .window = window,
                                                       .starts = given_starts,
                                                       .q = q,
                                                       .q_stride = q_stride,
                                                       .k = k,
                                                       .v = v,
                                                       .o = o,
                                                       .o_stride = q_stride,
                                                       .lse = lse.floats()});
  run_op<&Backend::attention_backward>(backend, draw,
                                       AttentionBackward{.batch = batch,
                                                         .length = length,
                                                         .heads = heads,
                                                         .kv_heads = kv_heads,
                                                         .head_size = size,
                                                         .scale = 0.4f,
                                                         .cap = cap,
                                                         .window = window,
                                                         .starts = given_starts,
                                                         .q = q,
                                                         .q_stride = q_stride,
                                                         .k = k,
                                                         .v = v,
                                                         .o = o,
                                                         .o_stride = q_stride,
                                                         .lse = lse.floats(),
                                                         .d_o = d_o,
                                                         .d_o_stride = q_stride,
                                                         .dq = dq,
                                                         .dq_stride = q_stride,
                                                         .dk = dk,
                                                         .dv = dv});
  return {o.values(), lse.values(), dq.values(), dk.values(), dv.values()};
}

// Six calls with new tokens of some rows each. For some seeds, heads with more packs than a block
// has threads.
std::vector<Floats> cached(const Backend& backend, Draw& draw) {
  const bool wide = draw.seed() % 6 == 0;
  const int64_t kv_heads = draw.size(1, wide ? 1 : 3), heads = kv_heads * draw.size(1, 3);
  const int64_t size = wide ? draw.size(513, 600) : draw.size(1, 40);
  const int64_t rows = draw.size(1, 3), most = draw.size(1, wide ? 12 : 40), calls = 6;
  const int64_t window = draw.flag() ? 0 : draw.size(1, 2 * most);
  const int64_t seen = window > 0 ? std::min(window + most, calls * most) : calls * most;
  CachedAttention op = {.heads = heads,
                        .kv_heads = kv_heads,
                        .head_size = size,
                        .rows = rows,
                        .positions = round_up(seen, kCacheTile),
                        .scale = 0.4f,
                        .cap = draw.flag() ? 0.0f : 2.0f,
                        .window = window,
                        .q_stride = heads * size + draw.size(0, 8),
                        .k_stride = kv_heads * size + draw.size(0, 8),
                        .v_stride = kv_heads * size + draw.size(0, 8),
                        .o_stride = heads * size + draw.size(0, 8)};
  Scratch cache(cache_bytes(op, draw.interior));
  op.cache = {cache.lend().data, draw.interior};
  std::vector<int32_t> ends(static_cast<size_t>(rows));
  std::vector<Floats> outputs;
  for (int64_t call = 0; call < calls; ++call) {
    std::vector<int32_t> row, position;
    for (int32_t r = 0; r < rows; ++r) {
      for (int64_t count = draw.size(ceil_div(most, 2), most); count > 0; --count) {
        row.push_back(r);
        position.push_back(ends[static_cast<size_t>(r)]++);
      }
    }
    op.tokens = std::ssize(row);
    op.row = row.data();
    op.position = position.data();
    const auto drawn = [&](int64_t stride, int seed, float scale) {
      return Drawn(draw, draw.interior, op.tokens * stride, static_cast<uint64_t>(4 * call + seed),
                   scale);
    };
    Drawn q = drawn(op.q_stride, 1, 2.0f), k = drawn(op.k_stride, 2, 2.0f);
    Drawn v = drawn(op.v_stride, 3, 1.0f), o = drawn(op.o_stride, 4, 1.0f);
    op.q = q;
    op.k = k;
    op.v = v;
    op.o = o;
    run_op<&Backend::cached_attention>(backend, draw, op);
    outputs.push_back(o.values());
  }
  return outputs;
}

// Sums of up to 2100 terms in f32, and exponentials of f32 logits.
constexpr float kSums = 6e-6f, kExponentials = 2e-5f;

const DrawnOp kOps[] = {{"rms norm", rms_norm<false>, kSums},
                        {"layer norm", layer_norm<false>, kSums},
                        {"wide rms norm", rms_norm<true>, 4 * kSums, false, 6},
                        {"wide layer norm", layer_norm<true>, 4 * kSums, false, 6},
                        {"rope", rope, 0.0f},
                        {"glu", glu, kSums},
                        {"embeddings", embeddings, 0.0f},
                        {"elementwise", elementwise, 0.0f},
                        {"ordered sums", ordered_sums, 0.0f, false, 24, 1, false},
                        {"updates", updates, 0.0f, false, 6},
                        {"products", products, kSums, true},
                        {"products by row", row_products, kSums, true},
                        {"loss", loss<false>, kExponentials, true},
                        {"loss of parts", loss<true>, kExponentials, true},
                        {"attention", attention<false>, kExponentials, true, 12, 2},
                        {"attention over a cache", cached, kExponentials, true, 24},
                        {"fused attention", attention<true>, kExponentials, true, 12, 3}};

class CudaKernels : public testing::TestWithParam<DrawnOp> {};

void expect_near(const KernelCase& one, const Backend& backend) {
  SCOPED_TRACE(one.name + std::string(" on ") + backend.name);
  const auto wanted = one.run(ref_backend(), 1);
  const auto found = one.run(backend, 1);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (one.tolerance > 0) {
      EXPECT_LE(largest_difference(found[i], wanted[i]), one.tolerance) << "output " << i;
    } else {
      EXPECT_TRUE(same_bits(found[i], wanted[i])) << "output " << i;
    }
  }
}

TEST_P(CudaKernels, EqualThePlainLoops) {
  for (const KernelCase& one : drawn_cases(GetParam())) expect_near(one, twin_backend());
}

TEST_P(CudaKernels, OnTheDeviceEqualThePlainLoopsAndRepeat) {
  const Backend* device = tested_device();
  if (device == nullptr) GTEST_SKIP() << "STRATA_TEST_PLUGIN names no folder of the plugin";
  for (const KernelCase& one : drawn_cases(GetParam())) {
    expect_near(one, *device);
    const auto first = one.run(*device, 1), second = one.run(*device, 1);
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(same_bits(first[i], second[i])) << one.name << ", output " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, CudaKernels, testing::ValuesIn(kOps), [](const auto& one) {
  std::string name = one.param.name;
  std::erase(name, ' ');
  return name;
});

TEST(CudaTwin, AreComparedOnThreeHundredShapesAndMore) {
  size_t count = 0;
  for (const DrawnOp& op : kOps) count += drawn_cases(op).size();
  EXPECT_GE(count, 300u);
}

// Of many long rows, dx and dw are computed together where both are asked for. Rows are packed,
// with dx over dy; or not, with gaps and a residual.
void expect_norm_together_as_apart(const Backend& backend, bool packed) {
  constexpr int64_t kRows = 4100;
  const int64_t cols = packed ? 4096 : 4093, stride = packed ? cols : cols + 2;
  Draw draw(DType::kBF16, DType::kBF16, 1);
  draw.aligned = packed;
  Drawn x(draw, DType::kBF16, kRows * stride, 1), w(draw, DType::kBF16, cols, 2);
  Drawn rstd(draw, DType::kF32, kRows, 3);
  const auto run = [&](Drawn& dy, void* dx, float* dw) {
    run_op<&Backend::rms_norm_backward>(backend, draw,
                                        RmsNormBackward{.dtype = DType::kBF16,
                                                        .inside = packed,
                                                        .rows = kRows,
                                                        .cols = cols,
                                                        .x = x.data(),
                                                        .x_stride = stride,
                                                        .w = w.data(),
                                                        .rstd = rstd.floats(),
                                                        .dy = dy,
                                                        .dy_stride = stride,
                                                        .dres = packed ? nullptr : x.data(),
                                                        .dx = dx,
                                                        .dx_stride = stride,
                                                        .dw = dw});
  };
  const auto drawn = [&](uint64_t seed) { return Drawn(draw, DType::kBF16, kRows * stride, seed); };
  Drawn dy = drawn(4), over = drawn(4);
  Drawn together = drawn(5), apart = drawn(5);
  Floats together_w(static_cast<size_t>(cols)), apart_w(static_cast<size_t>(cols));
  Drawn& to = packed ? over : together;
  run(over, to.data(), together_w.data());
  run(dy, apart.data(), nullptr);
  run(dy, nullptr, apart_w.data());
  EXPECT_TRUE(same_bits(to.values(), apart.values()));
  EXPECT_TRUE(same_bits(together_w, apart_w));
  EXPECT_NE(apart_w.back(), 0.0f);
}

TEST(CudaNormsOfManyRows, HaveTheSameBitsTogetherAndApart) {
  for (const bool packed : {false, true}) expect_norm_together_as_apart(twin_backend(), packed);
}

TEST(CudaNormsOfManyRows, OnTheDeviceHaveTheSameBitsTogetherAndApart) {
  const Backend* device = tested_device();
  if (device == nullptr) GTEST_SKIP() << "STRATA_TEST_PLUGIN names no folder of the plugin";
  for (const bool packed : {false, true}) expect_norm_together_as_apart(*device, packed);
}

// Far out the cube would overflow and the slope would be 0 * infinity.
TEST(CudaTwin, HugeGatesGiveFiniteSlopes) {
  Floats g = {3e30f, -3e30f}, u = {1.0f, 1.0f}, dh = {1.0f, 1.0f}, dg(2), du(2);
  twin_backend().glu_backward({.activation = Activation::kGeluTanh,
                               .rows = 1,
                               .cols = 2,
                               .g = g.data(),
                               .u = u.data(),
                               .dh = dh.data(),
                               .dg = dg.data(),
                               .du = du.data()});
  EXPECT_EQ(dg[0], 1.0f);
  EXPECT_NEAR(dg[1], 0.0f, 1e-5f);
  EXPECT_EQ(du[0], 3e30f);
  EXPECT_NEAR(du[1], 0.0f, 1e-5f);
}

TEST(CudaTwin, AnElementThatIsNotFiniteShowsInTheSumOfSquares) {
  for (const float bad : {INFINITY, -INFINITY, std::nanf("")}) {
    Floats x(20005, 1.0f);
    x[16390] = bad;
    SquaresPartial out;
    run_op<&Backend::sum_squares>(twin_backend(), Draw(DType::kF32, DType::kF32, 1),
                                  SumSquares{.count = 20005, .x = x.data(), .out = &out});
    EXPECT_EQ(out.not_finite, 1.0);
  }
}

TEST(CudaTwinDeath, ATokenBeyondTheVocabularyStops) {
  Floats w(8), out(8);
  const int32_t token = 2;
  const EmbeddingForward op = {
      .rows = 1, .cols = 4, .vocabulary = 2, .tokens = &token, .w = w.data(), .out = out.data()};
  EXPECT_DEATH(twin_backend().embedding_forward(op), "tokens");
}

}  // namespace
}  // namespace strata::kernels
