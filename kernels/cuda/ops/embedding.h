// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/ops/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/position.h"

// Embeddings. In the backward of tokens, the block of a token's first row adds all rows of that
// token, ascending, so that no two blocks write one row of the gradient. It looks for them only in
// the stretches of rows that have one.
namespace strata::kernels::cuda {

template <typename T, bool kWhole>
struct EmbeddingForwardPack {
  const int32_t* tokens;
  const typename T::Stored* w;
  typename T::Stored* out;
  int64_t cols, vocabulary, first, end;
  float scale;
  STRATA_HOST_DEVICE void operator()(int64_t row, int64_t col) const {
    STRATA_KERNEL_CHECK(tokens[row] >= 0 && tokens[row] < end);
    const int64_t own = tokens[row] - first;
    Four four = {};
    if (own >= 0 && own < vocabulary) {
      four = load_four<T, kWhole>(w + own * cols + col, cols - col);
    }
    for (int i = 0; i < kPack; ++i) four.at[i] = scale * four.at[i];
    store_four<T, kWhole>(out + row * cols + col, cols - col, four);
  }
};

template <typename T, bool kWhole>
struct EmbeddingBackwardRow {
  const int32_t* tokens;
  const typename T::Stored* dy;
  float* dw;
  int64_t rows, cols, vocabulary, first, end;
  float scale;
  int32_t ignored;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t row) const {
    const int32_t token = tokens[row];
    STRATA_KERNEL_CHECK(token >= 0 && token < end);
    const int64_t own = token - first;
    if (token == ignored || own < 0 || own >= vocabulary) return;
    const int64_t stretch = ceil_div(rows, int64_t{kStretches});
    const uint64_t found = block.reduce(
        [&](int thread) {
          uint64_t bits = 0;
          for (int64_t r = thread; r < rows; r += block.threads) {
            if (tokens[r] == token) bits |= r < row ? kEarlier : uint64_t{1} << (r / stretch);
          }
          return bits;
        },
        Either());
    if ((found & kEarlier) != 0) return;
    block.each([&](int thread) {
      each_pack(thread, block.threads, cols, [&](int64_t col) {
        float* to = dw + own * cols + col;
        Four sum = load_pack<kWhole>(to, cols - col);
        for (int i = 0; i < kStretches; ++i) {
          if ((found >> i & 1) != 0) add_stretch(token, i * stretch, stretch, col, sum);
        }
        store_pack<kWhole>(to, cols - col, sum);
      });
    });
  }

  STRATA_HOST_DEVICE void add_stretch(int32_t token, int64_t begin, int64_t count, int64_t col,
                                      Four& sum) const {
    for (int64_t r = begin; r < begin + count && r < rows; ++r) {
      if (tokens[r] != token) continue;
      const Four term = load_four<T, kWhole>(dy + r * cols + col, cols - col);
      for (int i = 0; i < kPack; ++i) sum.at[i] += scale * term.at[i];
    }
  }

  static constexpr int kStretches = 63;
  static constexpr uint64_t kEarlier = uint64_t{1} << kStretches;
};

template <typename T, bool kWhole>
struct PositionForwardPack {
  const typename T::Stored* p;
  typename T::Stored* y;
  const int32_t* starts;     // may be null
  const int32_t* positions;  // may be null
  int64_t cols, length;
  ContextPart context;
  STRATA_HOST_DEVICE void operator()(int64_t row, int64_t col) const {
    auto* to = y + row * cols + col;
    const int64_t counted =
        context.position(row % length, length) - (starts == nullptr ? 0 : starts[row]);
    const int64_t position = positions == nullptr ? counted : positions[row];
    Four sum = load_four<T, kWhole>(to, cols - col);
    sum = SumFour()(sum, load_four<T, kWhole>(p + position * cols + col, cols - col));
    store_four<T, kWhole>(to, cols - col, sum);
  }
};

template <typename T, bool kWhole>
struct PositionBackwardPack {
  const typename T::Stored* dy;
  float* dp;
  const int32_t* starts;  // may be null
  int64_t rows, cols, length;
  ContextPart context;
  bool accumulate;
  STRATA_HOST_DEVICE void operator()(int64_t position, int64_t col) const {
    float* to = dp + position * cols + col;
    Four sum = {};
    if (accumulate) sum = load_pack<kWhole>(to, cols - col);
    // Without documents a sequence has the position once, if it does here.
    const bool everywhere = starts != nullptr;
    const int64_t first = everywhere ? 0 : context.token(position, length);
    for (int64_t row = first; row >= 0 && row < rows; row += everywhere ? 1 : length) {
      if (everywhere && context.position(row % length, length) - starts[row] != position) continue;
      sum = SumFour()(sum, load_four<T, kWhole>(dy + row * cols + col, cols - col));
    }
    store_pack<kWhole>(to, cols - col, sum);
  }
};

template <typename Op>
int64_t tokens_end(const Op& op) {
  return op.vocabulary_end > 0 ? op.vocabulary_end : op.vocabulary;
}

template <typename On>
void embedding_forward(On& on, const EmbeddingForward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0);
  with_boundary(op.dtype, [&](auto t) {
    using T = decltype(t);
    const auto* w = elements<T>(op.w);
    auto* out = elements<T>(op.out);
    with_flag(op.cols % kPack == 0 && is_packed(w) && is_packed(out), [&](auto flag) {
      on.grid(op.rows, op.cols,
              EmbeddingForwardPack<T, decltype(flag)::value>{
                  op.tokens, w, out, op.cols, op.vocabulary, op.first, tokens_end(op), op.scale});
    });
  });
}

template <typename On>
void embedding_backward(On& on, const EmbeddingBackward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0);
  if (!op.accumulate) fill(on, {.count = op.vocabulary * op.cols, .y = op.dw});
  with_boundary(op.dtype, [&](auto t) {
    using T = decltype(t);
    const auto* dy = elements<T>(op.dy);
    with_flag(op.cols % kPack == 0 && is_packed(dy) && is_packed(op.dw), [&](auto flag) {
      on.blocks(op.rows, row_threads(op.cols),
                EmbeddingBackwardRow<T, decltype(flag)::value>{
                    op.tokens, dy, op.dw, op.rows, op.cols, op.vocabulary, op.first, tokens_end(op),
                    op.scale, op.ignored});
    });
  });
}

template <typename On>
void position_forward(On& on, const PositionForward& op) {
  STRATA_CHECK(has_positions(op.rows, op.length, op.positions));
  with_boundary(op.dtype, [&](auto t) {
    using T = decltype(t);
    const auto* p = elements<T>(op.p);
    auto* y = elements<T>(op.y);
    with_flag(op.cols % kPack == 0 && is_packed(p) && is_packed(y), [&](auto flag) {
      on.grid(op.rows, op.cols,
              PositionForwardPack<T, decltype(flag)::value>{p, y, op.starts, op.positions, op.cols,
                                                            op.length, op.context});
    });
  });
}

template <typename On>
void position_backward(On& on, const PositionBackward& op) {
  STRATA_CHECK(op.length > 0 && op.rows % op.length == 0 &&
               op.length * op.context.ranks <= op.positions);
  with_boundary(op.dtype, [&](auto t) {
    using T = decltype(t);
    const auto* dy = elements<T>(op.dy);
    with_flag(op.cols % kPack == 0 && is_packed(dy) && is_packed(op.dp), [&](auto flag) {
      on.grid(op.positions, op.cols,
              PositionBackwardPack<T, decltype(flag)::value>{dy, op.dp, op.starts, op.rows, op.cols,
                                                             op.length, op.context, op.accumulate});
    });
  });
}

}  // namespace strata::kernels::cuda
