// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/tensor_reader.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/base/check.h"
#include "engine/model_files/transpose.h"
#include "kernels/backend.h"

namespace strata::model {
namespace {

// Elements that are converted at once, on the stack: few enough that one thread is best.
constexpr int64_t kTileElements = int64_t{32} << 10;
constexpr int64_t kTransposeElements = int64_t{256} << 10;
// Whole rows are read when at least 1 in this many of their columns is wanted.
constexpr int64_t kWholeRowsPart = 8;

void convert(DType dtype, const void* raw, int64_t count, const WeightPlanes& planes) {
  kernels::cpu_backend().convert_in({.dtype = dtype,
                                     .weights = planes.weights,
                                     .count = count,
                                     .src = raw,
                                     .master = planes.master,
                                     .hi = planes.hi,
                                     .lo = planes.lo});
}

// Multiplies elements [first, first + count) of an FP8 matrix by the scales of their blocks.
class Scaler {
 public:
  explicit Scaler(const StoredTensor& tensor)
      : tensor_(tensor),
        cols_(tensor.entry->shape[1]),
        row_(static_cast<size_t>(tensor.scales->shape[1])) {}

  void apply(int64_t first, int64_t count, float* values) {
    for (int64_t done = 0; done < count;) {
      const int64_t row = (first + done) / cols_;
      const int64_t col = (first + done) % cols_;
      const int64_t block = col / tensor_.blocks.cols;
      const int64_t end = std::min((block + 1) * tensor_.blocks.cols, cols_);
      const int64_t now = std::min(count - done, end - col);
      const float scale = scale_of(row / tensor_.blocks.rows, block);
      for (int64_t i = 0; i < now; ++i) values[done + i] *= scale;
      done += now;
    }
  }

 private:
  float scale_of(int64_t block_row, int64_t block_col) {
    if (block_row != loaded_) load(block_row);
    return row_[static_cast<size_t>(block_col)];
  }

  void load(int64_t block_row) {
    const TensorEntry& entry = *tensor_.scales;
    const auto count = static_cast<int64_t>(row_.size());
    std::vector<char> raw(static_cast<size_t>(count * bytes_of(entry.dtype)));
    const auto bytes = static_cast<int64_t>(raw.size());
    tensor_.scale_file->read_at(entry.offset + block_row * bytes, raw.data(), bytes);
    convert(entry.dtype, raw.data(), count, {.master = row_.data()});
    loaded_ = block_row;
  }

  const StoredTensor& tensor_;
  const int64_t cols_;
  std::vector<float> row_;
  int64_t loaded_ = -1;
};

// Returns elements as stored: in `room`, or in other memory that is valid until the next call.
const void* raw_elements(const StoredTensor& tensor, int64_t first, int64_t count, void* room) {
  const int64_t width = bytes_of(tensor.entry->dtype);
  const int64_t offset = tensor.entry->offset + first * width;
  if (tensor.ahead != nullptr) return tensor.ahead->get(*tensor.file, offset, count * width, room);
  tensor.file->read_at(offset, room, count * width);
  return room;
}

// Reads elements that are contiguous in the file.
void read_contiguous(const StoredTensor& tensor, int64_t first, int64_t count,
                     const WeightPlanes& planes) {
  const DType dtype = tensor.entry->dtype;
  if (dtype == DType::kF32 && planes.master && !planes.hi) {
    const void* raw = raw_elements(tensor, first, count, planes.master);
    if (raw != planes.master) std::memcpy(planes.master, raw, static_cast<size_t>(count) * 4);
    return;
  }
  alignas(64) char room[kTileElements * 4];
  if (dtype != DType::kF8E4M3) {
    for (int64_t done = 0; done < count; done += kTileElements) {
      const int64_t now = std::min(count - done, kTileElements);
      const void* raw = raw_elements(tensor, first + done, now, room);
      convert(dtype, raw, now, planes.from(done));
    }
    return;
  }
  alignas(64) float wide[kTileElements];
  Scaler scaler(tensor);
  for (int64_t done = 0; done < count; done += kTileElements) {
    const int64_t now = std::min(count - done, kTileElements);
    const void* raw = raw_elements(tensor, first + done, now, room);
    convert(dtype, raw, now, {.master = wide});
    scaler.apply(first + done, now, wide);
    convert(DType::kF32, wide, now, planes.from(done));
  }
}

// Reads a parameter whose transpose is stored.
class TransposedReader {
 public:
  TransposedReader(const StoredTensor& tensor, const Parameter& parameter)
      : tensor_(tensor),
        parameter_(parameter),
        columns_(parameter.stored.shape[1]),
        stored_(static_cast<size_t>(kTransposeElements)),
        turned_(static_cast<size_t>(kTransposeElements)) {}

  // `planes` point to element `origin` of the parameter.
  void read(const Rectangle& all, int64_t origin, const WeightPlanes& planes) {
    // For many columns, whole rows are read, because they are one range of the file.
    const bool whole = all.rows() * kWholeRowsPart >= columns_ && columns_ <= kTransposeElements;
    const int64_t elements =
        whole ? kTransposeElements / columns_ * all.rows() : kTransposeElements;
    for (const Rectangle& part : cut(all, elements)) {
      if (whole) {
        read_contiguous(tensor_, stored_row(part.input) * columns_, part.inputs() * columns_,
                        {.master = stored_.data()});
        turn(part, columns_, parameter_.stored.first + part.row);
      } else {
        load_columns(part);
        turn(part, part.rows(), 0);
      }
      store(part, origin, planes);
    }
  }

 private:
  int64_t stored_row(int64_t input) const { return parameter_.stored.first_input + input; }

  void load_columns(const Rectangle& part) {
    const int64_t column = parameter_.stored.first + part.row;
    for (int64_t input = part.input; input < part.input_end; ++input) {
      read_contiguous(tensor_, stored_row(input) * columns_ + column, part.rows(),
                      {.master = stored_.data() + (input - part.input) * part.rows()});
    }
  }

  void turn(const Rectangle& part, int64_t stride, int64_t skip) {
    for (int64_t row = 0; row < part.rows(); ++row) {
      for (int64_t input = 0; input < part.inputs(); ++input) {
        turned_[static_cast<size_t>(row * part.inputs() + input)] =
            stored_[static_cast<size_t>(input * stride + skip + row)];
      }
    }
  }

  void store(const Rectangle& part, int64_t origin, const WeightPlanes& planes) const {
    for (int64_t row = part.row; row < part.row_end; ++row) {
      const int64_t element = row * parameter_.shape[1] + part.input;
      convert(DType::kF32, turned_.data() + (row - part.row) * part.inputs(), part.inputs(),
              planes.from(element - origin));
    }
  }

  const StoredTensor& tensor_;
  const Parameter& parameter_;
  const int64_t columns_;
  std::vector<float> stored_;
  std::vector<float> turned_;
};

}  // namespace

void read_elements(const StoredTensor& tensor, const Parameter& parameter, int64_t first,
                   int64_t count, const WeightPlanes& planes) {
  STRATA_CHECK(first >= 0 && count >= 0 && first <= parameter.numel - count);
  if (count == 0) return;
  if (!parameter.stored.transposed) {
    for (int64_t done = 0; done < count;) {
      const int64_t now = whole_run(parameter, first + done, count - done);
      read_contiguous(tensor, stored_index(parameter, first + done), now, planes.from(done));
      done += now;
    }
    return;
  }
  TransposedReader reader(tensor, parameter);
  for (const Rectangle& part : rectangles_of(parameter, first, count)) {
    reader.read(part, first, planes);
  }
}

}  // namespace strata::model
