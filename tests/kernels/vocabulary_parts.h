// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/typed.h"
#include "tests/kernels/kernel_case.h"

// Computes a LinearCrossEntropy as ranks do that have a part of the vocabulary each.
namespace strata::kernels {

// Where the part of a rank begins. Parts rise in size: 1, 2, 3, ... shares.
inline int64_t part_begin(int64_t vocabulary, int rank, int ranks) {
  return vocabulary * rank * (rank + 1) / (int64_t{ranks} * (ranks + 1));
}

inline LinearCrossEntropy part_of(LinearCrossEntropy op, int rank, int ranks) {
  op.first = part_begin(op.vocabulary, rank, ranks);
  op.vocabulary_end = op.vocabulary;
  op.vocabulary = part_begin(op.vocabulary_end, rank + 1, ranks) - op.first;
  const int64_t begin = op.first * op.cols;
  op.w = static_cast<const std::byte*>(op.w) + begin * bytes_of(op.dtype);
  if (op.dw) op.dw += begin;
  return op;
}

struct ResultsOfParts {
  Floats scores = {};             // [ranks, N, 3]
  std::vector<double> loss = {};  // of each rank
  std::vector<Floats> dh = {};
};

// Calls run(op) for the two calls of each rank. Writes dw of `whole`, but not its loss_sum and dh.
// Where dh is h there, each rank's is its own copy of h.
template <typename Run>
ResultsOfParts run_by_parts(const LinearCrossEntropy& whole, int ranks, const Run& run) {
  const int64_t count = whole.rows * kScoresOfRow;
  ResultsOfParts results = {.scores = Floats(static_cast<size_t>(ranks * count), 9.0f)};
  for (int rank = 0; rank < ranks; ++rank) {
    LinearCrossEntropy op = part_of(whole, rank, ranks);
    op.scores = results.scores.data() + rank * count;
    op.loss_sum = nullptr;
    op.dh = {};
    op.dw = nullptr;
    run(op);
  }
  Floats h;
  for (int64_t i = 0; i < whole.rows * whole.cols; ++i) h.push_back(load(whole.h, i));
  const bool in_place = whole.dh.data == whole.h.data;
  for (int rank = 0; rank < ranks; ++rank) {
    Typed dh(whole.h.dtype, in_place ? h : Floats(h.size(), 9.0f));
    double loss = -1.0;
    LinearCrossEntropy op = part_of(whole, rank, ranks);
    op.all_scores = results.scores.data();
    op.ranks = ranks;
    op.loss_sum = &loss;
    if (op.dh) op.dh = {dh.data(), op.h.dtype};
    if (in_place) op.h = op.dh;
    if (!op.needs_logits()) {
      op.h.data = nullptr;
      op.w = nullptr;
    }
    run(op);
    results.loss.push_back(loss);
    results.dh.push_back(dh.values());
  }
  return results;
}

}  // namespace strata::kernels
