// SPDX-License-Identifier: Apache-2.0
#include "kernels/convert.h"

#include <cstring>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/ref/ops.h"

namespace strata::kernels::cpu {
namespace {

constexpr int64_t kBlock = 32768;

template <typename T>
T* at(T* plane, int64_t begin) {
  return plane ? plane + begin : nullptr;
}

}  // namespace

// The disk is what bounds these two: the plain loops on several threads, and plain copies where the
// bits do not change.
void convert_in(const ConvertIn& op) {
  parallel_blocks(op.count, kBlock, [&](int64_t begin, int64_t end) {
    ConvertIn part = op;
    part.count = end - begin;
    part.src = static_cast<const char*>(op.src) + begin * bytes_of(op.dtype);
    part.master = at(op.master, begin);
    part.hi = at(op.hi, begin);
    part.lo = at(op.lo, begin);
    if (op.dtype == DType::kBF16 && op.hi && !op.lo) {
      std::memcpy(part.hi, part.src, static_cast<size_t>(2 * part.count));
    } else if (op.dtype == DType::kF32 && op.master) {
      std::memcpy(part.master, part.src, static_cast<size_t>(4 * part.count));
    } else {
      ref::convert_in(part);
    }
  });
}

void convert_out(const ConvertOut& op) {
  parallel_blocks(op.count, kBlock, [&](int64_t begin, int64_t end) {
    ConvertOut part = op;
    part.count = end - begin;
    part.master = at(op.master, begin);
    part.hi = at(op.hi, begin);
    part.lo = at(op.lo, begin);
    part.dst = static_cast<char*>(op.dst) + begin * bytes_of(op.dtype);
    ref::convert_out(part);
  });
}

}  // namespace strata::kernels::cpu
