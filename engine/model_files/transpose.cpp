// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/transpose.h"

#include <algorithm>

#include "engine/base/check.h"

namespace strata::model {

std::vector<Rectangle> rectangles_of(const Parameter& parameter, int64_t first, int64_t count) {
  STRATA_CHECK(parameter.stored.transposed && parameter.shape.size() == 2);
  const int64_t inputs = parameter.shape[1];
  std::vector<Rectangle> parts;
  const int64_t end = first + count;
  while (first < end) {
    const int64_t row = first / inputs;
    const int64_t input = first % inputs;
    if (input == 0 && end - first >= inputs) {
      parts.push_back({row, end / inputs, 0, inputs});
      first = end / inputs * inputs;
    } else {
      const int64_t now = std::min(end - first, inputs - input);
      parts.push_back({row, row + 1, input, input + now});
      first += now;
    }
  }
  return parts;
}

std::vector<Rectangle> cut(const Rectangle& whole, int64_t elements) {
  std::vector<Rectangle> parts;
  for (int64_t row = whole.row; row < whole.row_end; row += elements) {
    const int64_t row_end = std::min(row + elements, whole.row_end);
    const int64_t inputs = std::max<int64_t>(1, elements / (row_end - row));
    for (int64_t input = whole.input; input < whole.input_end; input += inputs) {
      parts.push_back({row, row_end, input, std::min(input + inputs, whole.input_end)});
    }
  }
  return parts;
}

}  // namespace strata::model
