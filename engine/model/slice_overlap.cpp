// SPDX-License-Identifier: Apache-2.0
#include "engine/model/slice_overlap.h"

#include <algorithm>

#include "engine/base/check.h"

namespace strata::model {
namespace {

// The part of the whole parameter's matrix that a slice has.
struct Part {
  int64_t row = 0;
  int64_t rows = 0;
  int64_t input = 0;
  int64_t inputs = 0;
  int64_t whole_inputs = 0;
};

Part part_of(const Parameter& parameter) {
  Part part;
  part.rows = parameter.shape[0];
  part.inputs = parameter.numel / part.rows;
  part.whole_inputs = parameter.whole_inputs > 0 ? parameter.whole_inputs : part.inputs;
  part.row = parameter.whole_first / part.whole_inputs;
  part.input = parameter.whole_first % part.whole_inputs;
  return part;
}

}  // namespace

void for_each_overlap(const Parameter& here, int64_t first, int64_t count, const Parameter& there,
                      const std::function<void(const SliceOverlap&)>& visit) {
  const Part ours = part_of(here);
  const Part theirs = part_of(there);
  STRATA_CHECK(ours.whole_inputs == theirs.whole_inputs);
  // Where both have whole rows, these follow each other: they are one row.
  const bool flat = ours.inputs == ours.whole_inputs && theirs.inputs == theirs.whole_inputs;
  if (count == 0) return;
  if (flat) {
    const int64_t shift = (ours.row - theirs.row) * ours.inputs;  // there, of element 0 here
    const int64_t begin = std::max(first, -shift);
    const int64_t end = std::min(first + count, there.numel - shift);
    if (begin < end) visit({begin, begin + shift, end - begin});
    return;
  }
  const int64_t left = std::max(ours.input, theirs.input);
  const int64_t right = std::min(ours.input + ours.inputs, theirs.input + theirs.inputs);
  const int64_t row_end =
      std::min((first + count - 1) / ours.inputs + 1, theirs.row + theirs.rows - ours.row);
  for (int64_t row = std::max(first / ours.inputs, theirs.row - ours.row); row < row_end; ++row) {
    const int64_t of_row = row * ours.inputs - ours.input;  // of input 0 of the whole row
    const int64_t begin = std::max(first, of_row + left);
    const int64_t end = std::min(first + count, of_row + right);
    if (begin >= end) continue;
    const int64_t input = begin - of_row;
    visit(
        {begin, (row + ours.row - theirs.row) * theirs.inputs + input - theirs.input, end - begin});
  }
}

}  // namespace strata::model
