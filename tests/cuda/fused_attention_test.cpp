// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN's graphs, through the CUDA device's host code over a fake device and a fake
// cuDNN: which calls the library computes, with what result, and how its failures end.
#include <gtest/gtest.h>

#include "kernels/cuda/sizes.h"
#include "tests/cuda/fake_gpu.h"
#include "tests/kernels/drawn_case.h"
#include "tests/support/device_backend.h"

namespace strata::kernels {
namespace {

using test::FakeGpu;

// The operands have different gaps between tokens, multiples of `gap` elements, so that no stride
// can take the place of another.
struct Shape {
  int64_t batch = 1, length = 1, heads = 1, kv_heads = 1, size = 8, window = 0, gap = 0;
};

// The operands of an attention and of its backward, with random values.
struct Operands {
  Operands(Draw& draw, const Shape& shape)
      : queries(shape.heads * shape.size),
        keys(shape.kv_heads * shape.size),
        gap(shape.gap),
        q(draw, draw.interior, rows(shape) * (queries + gap), 1, 2.0f),
        k(draw, draw.interior, rows(shape) * (keys + 2 * gap), 2, 2.0f),
        v(draw, draw.interior, rows(shape) * (keys + 3 * gap), 3),
        o(draw, draw.interior, rows(shape) * (queries + 4 * gap), 4),
        lse(draw, DType::kF32, rows(shape) * shape.heads + 1, 5),  // and one to shift
        d_o(draw, draw.interior, rows(shape) * (queries + 5 * gap), 6),
        dq(draw, draw.interior, rows(shape) * (queries + 6 * gap), 7),
        dk(draw, draw.interior, rows(shape) * (keys + 7 * gap), 8),
        dv(draw, draw.interior, rows(shape) * (keys + 8 * gap), 9) {}
  static int64_t rows(const Shape& shape) { return shape.batch * shape.length; }

  template <typename Op>
  Op op(const Shape& shape) {
    Op op = {.batch = shape.batch,
             .length = shape.length,
             .heads = shape.heads,
             .kv_heads = shape.kv_heads,
             .head_size = shape.size,
             .scale = 0.4f,
             .window = shape.window,
             .q = q,
             .q_stride = queries + gap,
             .k = k,
             .k_stride = keys + 2 * gap,
             .v = v,
             .v_stride = keys + 3 * gap,
             .o = o,
             .o_stride = queries + 4 * gap,
             .lse = lse.floats()};
    return op;
  }
  AttentionForward forward(const Shape& shape) { return op<AttentionForward>(shape); }
  AttentionBackward backward(const Shape& shape) {
    AttentionBackward backward = op<AttentionBackward>(shape);
    backward.d_o = d_o;
    backward.d_o_stride = queries + 5 * gap;
    backward.dq = dq;
    backward.dq_stride = queries + 6 * gap;
    backward.dk = dk;
    backward.dk_stride = keys + 7 * gap;
    backward.dv = dv;
    backward.dv_stride = keys + 8 * gap;
    return backward;
  }
  std::vector<Floats> values() const {
    return {o.values(), lse.values(), dq.values(), dk.values(), dv.values()};
  }

  const int64_t queries, keys, gap;
  Drawn q, k, v, o, lse, d_o, dq, dk, dv;
};

// What a test changes of its calls.
struct Change {
  float cap = 0.0f;
  const int32_t* starts = nullptr;
  template <typename Op>
  Op operator()(Op op) const {
    op.cap = cap;
    op.starts = starts;
    return op;
  }
};

class FusedAttention : public testing::Test {
 protected:
  void start(const std::string& setting, DType interior) {
    under_test_.reset();
    device_.reset();
    FakeGpu::configure(setting);
    use(interior, 0);
  }
  void use(DType interior, int index) {
    under_test_.reset();
    device_ = FakeGpu::plugin().make({.index = index, .interior = interior});
    under_test_ = std::make_unique<DeviceUnderTest>(*device_, 4096);
    device_under_test() = under_test_.get();
  }

  static int64_t forwards() { return FakeGpu::calls("fused attention forward"); }
  static int64_t backwards() { return FakeGpu::calls("fused attention backward"); }
  static int64_t graphs() { return FakeGpu::calls("fused attention graph"); }

  // Like run_op(), with scratch that takes no host memory until it is written.
  template <auto Member, typename Op>
  static void run_one(const Backend& backend, DType interior, Op op) {
    DeviceDescription device = device_of(backend, 1);
    device.interior = interior;
    const int64_t bytes = workspace_bytes(op, device);
    const auto room = std::make_unique_for_overwrite<std::byte[]>(
        static_cast<size_t>(bytes + cuda::kWorkspaceAlignment));
    const auto address = reinterpret_cast<int64_t>(room.get());
    op.workspace = {room.get() + (cuda::aligned_bytes(address) - address), bytes};
    (backend.*Member)(op);
  }

  static std::vector<Floats> run(const Backend& backend, Draw draw, const Shape& shape,
                                 const Change& change = {}) {
    Operands operands(draw, shape);
    run_one<&Backend::attention_forward>(backend, draw.interior, change(operands.forward(shape)));
    run_one<&Backend::attention_backward>(backend, draw.interior, change(operands.backward(shape)));
    return operands.values();
  }

  // On the device, against the plain loops.
  void expect_near(const Draw& draw, const Shape& shape, const Change& change = {}) {
    SCOPED_TRACE(fmt::format("{}: {}x{}, {} heads over {} of {}, window {}, gap {}",
                             name_of(draw.interior), shape.batch, shape.length, shape.heads,
                             shape.kv_heads, shape.size, shape.window, shape.gap));
    const auto wanted = run(ref_backend(), draw, shape, change);
    const auto found = run(device_backend(*device_, ref_backend()), draw, shape, change);
    const float tolerance = 3 * tolerance_of(draw.interior);  // of three roundings
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_LE(largest_difference(found[i], wanted[i]), tolerance) << "output " << i;
    }
  }

  static Draw aligned(DType interior, uint64_t seed = 1) {
    Draw draw(interior, interior, seed);
    draw.aligned = true;
    return draw;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceUnderTest> under_test_;
};

// One key alone has the gradient 0, which only equal sums give: so at least two.
Shape drawn_shape(Draw& draw) {
  Shape shape = {.batch = draw.size(1, 3), .length = draw.size(2, 40), .kv_heads = draw.size(1, 3)};
  shape.heads = shape.kv_heads * draw.size(1, 3);
  shape.size = 8 * draw.size(1, 32);
  shape.window = draw.flag() ? 0 : draw.size(2, shape.length + 4);
  shape.gap = 8 * draw.size(0, 2);
  return shape;
}

TEST_F(FusedAttention, OfDrawnShapesEqualsThePlainLoops) {
  for (const DType interior : {DType::kBF16, DType::kF16}) {
    start("", interior);
    constexpr int kDraws = 12;
    for (uint64_t seed = 1; seed <= kDraws; ++seed) {
      Draw draw = aligned(interior, seed);
      expect_near(draw, drawn_shape(draw));
    }
    expect_near(aligned(interior), {.length = 20, .heads = 2, .kv_heads = 2, .window = 20});
    expect_near(aligned(interior), {.length = 20, .heads = 2, .kv_heads = 1, .window = 19});
    EXPECT_EQ(forwards(), kDraws + 2);
    EXPECT_EQ(backwards(), kDraws + 2);
    EXPECT_EQ(device_->fused_ops(), 2 * (kDraws + 2));
  }
}

TEST_F(FusedAttention, IsBuiltOnceForAShape) {
  start("", DType::kBF16);
  const Shape shape = {.batch = 2, .length = 9, .heads = 4, .kv_heads = 2, .size = 16};
  expect_near(aligned(DType::kBF16), shape);
  expect_near(aligned(DType::kBF16, 2), shape);
  EXPECT_EQ(graphs(), 2);
  Shape other = shape;
  other.window = 3;
  expect_near(aligned(DType::kBF16), other);
  EXPECT_EQ(graphs(), 4);
  EXPECT_EQ(forwards(), 3);
}

TEST_F(FusedAttention, LeavesCallsThatTheLibraryDoesNotTakeToTiles) {
  start("", DType::kBF16);
  const Shape shape = {.batch = 2, .length = 9, .heads = 4, .kv_heads = 2};
  const Draw draw = aligned(DType::kBF16);
  expect_near(draw, {.length = 9, .heads = 2, .kv_heads = 1, .size = 12});
  expect_near(draw, {.length = 9, .heads = 2, .kv_heads = 1, .size = 264});
  expect_near(draw, {.length = 9, .heads = 2, .kv_heads = 1, .gap = 4});
  expect_near(draw, shape, {.cap = 2.0f});
  const std::vector<int32_t> starts = drawn_starts(shape.batch, shape.length, 1);
  expect_near(draw, shape, {.starts = starts.data()});
  EXPECT_EQ(forwards() + backwards() + graphs(), 0);
  start("", DType::kF32);
  expect_near(aligned(DType::kF32), shape);
  EXPECT_EQ(forwards() + backwards() + graphs(), 0);
}

// Each of the operands begins within 16 bytes.
TEST_F(FusedAttention, LeavesUnalignedOperandsToTiles) {
  start("", DType::kBF16);
  const Shape shape = {.length = 9, .heads = 2, .kv_heads = 1, .gap = 8};
  const Draw draw = aligned(DType::kBF16);
  const auto run_shifted = [&](const Backend& backend, int operand) {
    Draw again = draw;
    Operands operands(again, shape);
    AttentionForward forward = operands.forward(shape);
    AttentionBackward backward = operands.backward(shape);
    const auto shift = [&](int index, auto&... pointers) {
      if (index == operand) ((pointers = pointers + 1), ...);
    };
    shift(0, forward.q, backward.q);
    shift(1, forward.k, backward.k);
    shift(2, forward.v, backward.v);
    shift(3, forward.o, backward.o);
    shift(4, backward.d_o);
    shift(5, backward.dq);
    shift(6, backward.dk);
    shift(7, backward.dv);
    shift(8, forward.lse, backward.lse);
    run_one<&Backend::attention_forward>(backend, draw.interior, forward);
    run_one<&Backend::attention_backward>(backend, draw.interior, backward);
    return operands.values();
  };
  for (int operand = 0; operand < 9; ++operand) {
    const auto wanted = run_shifted(ref_backend(), operand);
    const auto found = run_shifted(device_backend(*device_, ref_backend()), operand);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_LE(largest_difference(found[i], wanted[i]), 3 * kBf16Tolerance) << operand << i;
    }
    EXPECT_EQ(backwards(), 0) << operand;
    EXPECT_EQ(forwards(), std::clamp(operand - 3, 0, 4)) << operand;
  }
}

// The last part is smaller than the first, of key heads of one sequence and of sequences.
TEST_F(FusedAttention, OfMuchScratchIsComputedInParts) {
  start("", DType::kBF16);
  const Draw draw = aligned(DType::kBF16);
  const Shape shape = {.length = 10620, .heads = 6, .kv_heads = 3, .window = 2};
  const Shape sequences = {.batch = 3, .length = 10620, .heads = 2, .kv_heads = 1, .window = 2};
  const auto parts = [](const Shape& of) {
    const AttentionBackward op = {.batch = of.batch,
                                  .length = of.length,
                                  .heads = of.heads,
                                  .kv_heads = of.kv_heads,
                                  .head_size = of.size};
    const cuda::FusedParts cut = cuda::fused_parts(op, DType::kBF16);
    return std::pair(cut.batch, cut.kv_heads);
  };
  ASSERT_EQ(parts(shape), std::pair(int64_t{1}, int64_t{2}));
  ASSERT_EQ(parts(sequences), std::pair(int64_t{2}, int64_t{1}));
  expect_near(draw, shape);
  EXPECT_EQ(backwards(), 2);
  expect_near(draw, sequences);
  EXPECT_EQ(backwards(), 4);
  EXPECT_EQ(forwards(), 2);
}

TEST_F(FusedAttention, RunsOnTheSecondGpu) {
  start("devices=2", DType::kBF16);
  const std::unique_ptr<Device> first = std::move(device_);  // the calling thread's
  use(DType::kBF16, 1);
  expect_near(aligned(DType::kBF16), {.length = 9, .heads = 2, .kv_heads = 1});
  EXPECT_EQ(backwards(), 1);
}

// The library does not support the first, and the second needs more scratch than it gets.
TEST_F(FusedAttention, ThatTheLibraryRefusesIsComputedByTiles) {
  for (const char* setting : {"graph=0", "graph=2"}) {
    SCOPED_TRACE(setting);
    start(setting, DType::kBF16);
    for (int i = 0; i < 2; ++i) {
      expect_near(aligned(DType::kBF16), {.batch = 2, .length = 9, .heads = 2, .kv_heads = 1});
    }
    EXPECT_EQ(graphs(), 2) << "asked once";
    EXPECT_EQ(forwards() + backwards(), 0);
  }
}

// Too little memory may pass, and what computes must not change in the run.
TEST_F(FusedAttention, ThatFailsEndsWithTheOpAndTheCause) {
  const Shape shape = {.batch = 2, .length = 9, .heads = 2, .kv_heads = 1};
  const struct {
    const char *setting, *call, *cause;
  } kFaults[] = {{"graph@1", "attention 2x9", "ALLOCATION_FAILED"},
                 {"graph@2", "attention backward 2x9", "ALLOCATION_FAILED"},
                 {"fused@1", "attention 2x9", "EXECUTION_FAILED"},
                 {"fused@2", "attention backward 2x9", "EXECUTION_FAILED"}};
  for (const auto& [setting, call, cause] : kFaults) {
    SCOPED_TRACE(setting);
    start(setting, DType::kBF16);
    try {
      (void)run(device_backend(*device_, ref_backend()), aligned(DType::kBF16), shape);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      const std::string said = error.what();
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
      EXPECT_TRUE(said.starts_with(std::string("cuda: op under test on test: cuDNN: ") + call))
          << said;
      EXPECT_NE(said.find(cause), std::string::npos) << said;
    }
    start("", DType::kBF16);
    expect_near(aligned(DType::kBF16), shape);
    EXPECT_EQ(backwards(), 1);
  }
}

// The library is loaded once in a process, so each of these is a process of its own.
[[noreturn]] void say_and_exit(const char* setting) {
  FakeGpu::configure(setting);
  std::string why;
  const std::vector<DeviceFacts> devices = FakeGpu::plugin().devices(why);
  std::fprintf(stderr, "[%s]\n", devices.at(0).software.c_str());
  std::_Exit(0);
}

TEST_F(FusedAttention, IsOfAVersionOrSaysWhyNot) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ends_well = testing::ExitedWithCode(0);
  EXPECT_EXIT(say_and_exit("cudnn=91002"), ends_well, "cuDNN 9.10.2\\]");
  EXPECT_EXIT(say_and_exit("cudnn=0"), ends_well,
              "no cuDNN, so attention is slower: libcudnn_graph.so.9: cannot open.*install cuDNN");
}

}  // namespace
}  // namespace strata::kernels
