// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/model/spec.h"

// Tensor parallelism: every block is divided among the ranks of a group. A rank has some heads of
// attention and some columns of the MLP: rows of the first matrices (q, k, v, gate, up) and of
// their biases, and columns of the last one (output, down). What the ranks' last products add up
// to is the branch's output. Norms and the last matrix's bias are whole on every rank, but for
// norms over all heads, which are cut as the heads are. Between the products a rank computes own
// rows (own_rows in footprint.h). Where there are fewer key-value heads than ranks, k and v are
// whole too, and each rank computes those of one head. Of the embedding and of the head's matrix a
// rank has the rows of its own tokens.
namespace strata::model {

// The tokens of the vocabulary whose rows a rank has: where it is cut, parts that follow each other
// and differ by at most one token; else all.
struct TokenRange {
  int64_t first = 0;
  int64_t count = 0;
  int64_t most = 0;  // that a rank of the group has
};
TokenRange own_tokens(const ModelSpec& spec);

// Throws Error (kConfig) when the blocks of a model cannot be divided among so many ranks.
void require_sliceable(const Architecture& architecture, int ranks);

// What rank `slice.rank` has of a model, without offsets. The vocabulary is cut unless
// `cuts_vocabulary` is false (old checkpoints). Throws as require_sliceable, and where there is no
// token for each rank.
ModelSpec tensor_slice(const ModelSpec& whole, const TensorSlice& slice,
                       bool cuts_vocabulary = true);

// What each of so many ranks has of it, with the offsets of `shard_count` ranks that share a slice.
std::vector<ModelSpec> tensor_slices(const ModelSpec& whole, int ranks, int shard_count,
                                     bool cuts_vocabulary = true);

}  // namespace strata::model
