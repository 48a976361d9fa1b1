// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "kernels/interior.h"
#include "kernels/workspace.h"

// Output projection and cross entropy in one op, by chunks of rows, so that [N, V] logits are never
// stored.
//
//   z[r,v] = h[r]·w[v]       loss[r] = log sum_v exp(z[r,v]) - z[r, targets[r]]
//   cap > 0: z = cap * tanh(z / cap), and dz below times 1 - (z / cap)^2
//   loss_sum = sum of loss[r] over the rows with a target
//   dz[r,v] = grad_scale * (softmax(z[r])[v] - (v == targets[r])), zero for rows without a target
//   dh[r] = sum_v dz[r,v] * w[v]     dw[v] (+)= sum_r dz[r,v] * h[r]
//
//   h         [N, C]  I    in    normed hidden state, dense
//   w         [V, C]  T    in    T = f32, bf16 or f16, dense
//   targets   [N]     i32  in    -1: the row does not count; otherwise in [0, V), checked
//   loss_sum  [1]     f64  out   overwritten; rows summed in ascending order
//   dh        [N, C]  I    out   overwritten; may be h; null: forward only (dw must be null too);
//                                f32 where ranks add it
//   dw        [V, C]  f32  out   null for a frozen weight
//   accumulate                   dw is added to; otherwise overwritten
//   N = rows, C = cols, V = vocabulary
//
// Where each rank has a part of the vocabulary, V is the number of rows of w that this rank has.
// They are rows [first, first + V) of the whole w, and a target is in [0, vocabulary_end). Each
// rank makes two calls. The first gives the scores of its own logits:
//
//   scores      [N, 3]         f32  out  of each row: the largest z, sum_v exp(z - largest), and
//                                        z of the target, or 0 if another rank has the target;
//                                        zeros for rows without a target
//
// It reads h, w and targets; loss_sum, dh and dw are null. The second call takes the scores of all
// ranks in place of the sums above, and gives the loss of the whole vocabulary:
//
//   all_scores  [ranks, N, 3]  f32  in   scores of every rank, in the same order on all ranks
//
//   largest[r] = the largest over ranks of scores[r, 0]
//   sum[r] = sum over ranks, ascending, of scores[r, 1] * exp(scores[r, 0] - largest[r])
//   log sum_v exp(z[r,v]) = largest[r] + log sum[r]
//   z[r, targets[r]] = sum over ranks of scores[r, 2]
//
// loss_sum has the same bits on every rank. dh is this rank's part: the sum over its own v. dw has
// this rank's rows. Without dh, the second call reads all_scores and targets alone.
//
// In dz, a backend may treat probabilities below 1e-25 of the row's largest as zero.
// Deterministic: the chunk depends only on V (chunk_rows). Logits and products in f32, losses in
// f64. 2*N*V*C operations forward, 6*N*V*C with gradients.
namespace strata::kernels {

struct LinearCrossEntropy {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t vocabulary = 0;
  float cap = 0.0f;
  ConstInterior h = {};
  const void* w = nullptr;
  const int32_t* targets = nullptr;
  int64_t first = 0;           // row of the whole w at which this rank's part begins
  int64_t vocabulary_end = 0;  // rows of the whole w; 0: w is the whole
  float* scores = nullptr;
  const float* all_scores = nullptr;
  int ranks = 1;  // in all_scores
  float grad_scale = 1.0f;
  double* loss_sum = nullptr;
  Interior dh = {};
  float* dw = nullptr;
  bool accumulate = false;
  Workspace workspace = {};

  int64_t targets_end() const { return vocabulary_end == 0 ? vocabulary : vocabulary_end; }
  bool needs_logits() const { return all_scores == nullptr || dh; }
};

inline constexpr int64_t kScoresOfRow = 3;

// Whether the shapes, and the operands that are given, are those of one of the calls above.
inline bool is_one_call(const LinearCrossEntropy& op) {
  if (op.rows <= 0 || op.cols <= 0 || op.vocabulary <= 0 || (op.dw && !op.dh)) return false;
  if (op.first < 0 || op.first + op.vocabulary > op.targets_end()) return false;
  if (op.scores) return !op.all_scores && !op.loss_sum && !op.dh;
  if (op.all_scores) return op.loss_sum && op.ranks >= 1;
  return op.loss_sum && op.vocabulary == op.targets_end();
}

// Rows of a chunk, whose logits are held at the same time.
int64_t cross_entropy_chunk_rows(int64_t vocabulary);

int64_t workspace_bytes(const LinearCrossEntropy& op, int threads);

}  // namespace strata::kernels
