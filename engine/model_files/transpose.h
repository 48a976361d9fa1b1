// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/spec.h"

// Ranges of a parameter whose transpose is stored: the rows of the stored matrix are the
// parameter's inputs, and its columns the parameter's rows.
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

// Cuts a rectangle into pieces of at most `elements`, which keep rows whole if they fit.
std::vector<Rectangle> cut(const Rectangle& whole, int64_t elements);

}  // namespace strata::model
