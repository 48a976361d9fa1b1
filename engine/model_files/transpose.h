// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/spec.h"

// Ranges of a parameter whose transpose is stored: rows of the stored matrix are the parameter's
// inputs, a range of its columns are the parameter's rows.
namespace strata::model {

// Rows and inputs of a parameter.
struct Rectangle {
  int64_t row = 0;
  int64_t row_end = 0;
  int64_t input = 0;
  int64_t input_end = 0;
  int64_t rows() const { return row_end - row; }
  int64_t inputs() const { return input_end - input; }
};

// Elements [first, first + count) as up to three rectangles: the end of a row, whole rows, the
// start of a row.
std::vector<Rectangle> rectangles_of(const Parameter& parameter, int64_t first, int64_t count);

// The same cut so that none has more than `elements`, rows kept together as far as they fit.
std::vector<Rectangle> cut(const Rectangle& whole, int64_t elements);

}  // namespace strata::model
