// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace strata::kernels {

// The tokens that one of `ranks` ranks has of each sequence: of 2 * ranks pieces of equal length,
// piece `rank` and piece 2 * ranks - 1 - rank, so that causal attention is equally much work on
// every rank. One rank has the whole sequence.
//
// A rank counts its T tokens of a sequence from 0, in their order. Keys of all ranks lie
// [ranks, B, T]: one rank's after the other's.
struct ContextPart {
  int64_t rank = 0;
  int64_t ranks = 1;
  bool operator==(const ContextPart&) const = default;

  // Below, `length` is T.
  constexpr int64_t piece(int64_t length) const { return ranks == 1 ? length : length / 2; }

  // The position in its sequence of a rank's token.
  constexpr int64_t position(int64_t token, int64_t length) const {
    const int64_t piece_length = piece(length);
    const bool early = token < piece_length;
    return early ? rank * piece_length + token : (2 * ranks - 2 - rank) * piece_length + token;
  }

  // The rank's token that has a position, or -1: another rank has it, or nobody.
  constexpr int64_t token(int64_t position, int64_t length) const {
    const int64_t piece_length = piece(length);
    const int64_t at = position / piece_length;
    if (at == rank) return position % piece_length;
    const bool late = ranks > 1 && at == 2 * ranks - 1 - rank;
    return late ? piece_length + position % piece_length : -1;
  }

  // Where the key of a position of sequence b of B is.
  int64_t key_row(int64_t b, int64_t batch, int64_t position, int64_t length) const {
    if (ranks == 1) return b * length + position;
    const int64_t piece_length = piece(length);
    const int64_t at = position / piece_length;
    const bool early = at < ranks;
    const int64_t owner = early ? at : 2 * ranks - 1 - at;
    return (owner * batch + b) * length + (early ? 0 : piece_length) + position % piece_length;
  }
};

}  // namespace strata::kernels
