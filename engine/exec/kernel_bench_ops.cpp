// SPDX-License-Identifier: Apache-2.0
// The ops that the device's memory limits.
#include "engine/exec/kernel_bench_ops.h"

#include <algorithm>

#include "engine/base/units.h"

namespace strata::exec {

using kernels::DeviceOps;

void* Operands::values(int64_t count, DType type) {
  std::byte* data = take(count * bytes_of(type));
  filled_.push_back({data, count * bytes_of(type), type});
  return data;
}

int32_t* Operands::ids(std::vector<int32_t> ids) {
  std::byte* data = take(std::ssize(ids) * 4);
  ids_.emplace_back(data, std::move(ids));
  return reinterpret_cast<int32_t*>(data);
}

std::byte* Operands::take(int64_t bytes) {
  std::byte* taken = memory_ == nullptr ? nullptr : memory_ + used_;
  used_ += round_up(bytes, workspace_alignment(device_));
  return taken;
}

// On the host, a copy of a queue takes one thread, and a cast all.
BenchedKernel KernelList::copy() const {
  const int64_t bytes = 16 * sizes_.count();
  const auto amount = 2.0 * static_cast<double>(bytes);
  const char* name = "copy within the device";
  if (device_.kernels != kernels::KernelSet::kCuda) {
    return kernel<&DeviceOps::cast>(name, Roof::kBytes, amount, [=](Operands& m) {
      return kernels::Cast{.dtype = DType::kF32,
                           .count = bytes / 4,
                           .x = m.floats(bytes / 4),
                           .y = m.floats(bytes / 4)};
    });
  }
  const auto place = [bytes](Operands& m) -> OpTimer::Issue {
    std::byte *const from = m.take(bytes), *const to = m.take(bytes);
    return [=](kernels::Queue& queue) { queue.copy(to, from, bytes); };
  };
  return {name, Roof::kBytes, amount, place};
}

std::vector<BenchedKernel> KernelList::limited_by_memory() const {
  const int64_t count = sizes_.count(), rows = sizes_.rows(), cols = sizes_.hidden;
  const auto all = static_cast<double>(count);
  const double outer = outer_bytes() * all, inner = inner_bytes() * all;
  const DType type = weights_;
  std::vector<BenchedKernel> list;
  list.push_back(kernel<&DeviceOps::add_residual>(
      "add residual", Roof::kBytes, 2 * outer + inner, [=](Operands& m) {
        return kernels::AddResidual{.dtype = type,
                                    .count = count,
                                    .x = m.outer(count),
                                    .a = m.inner(count),
                                    .y = m.outer(count)};
      }));
  list.push_back(kernel<&DeviceOps::add>("add gradients", Roof::kBytes, 12 * all, [=](Operands& m) {
    return kernels::Add{.count = count, .a = m.floats(count), .y = m.floats(count)};
  }));
  list.push_back(
      kernel<&DeviceOps::cast>("cast to f32", Roof::kBytes, outer + 4 * all, [=](Operands& m) {
        return kernels::Cast{
            .dtype = type, .count = count, .x = m.outer(count), .y = m.floats(count)};
      }));
  add_norms(list);
  list.push_back(kernel<&DeviceOps::rope>("rope", Roof::kBytes, 2 * inner, [=](Operands& m) {
    constexpr int64_t kHeadSize = 64;
    return kernels::Rope{.rows = rows,
                         .length = cols,
                         .heads = cols / kHeadSize,
                         .head_size = kHeadSize,
                         .x = m.inner(count),
                         .cos = m.floats(cols * kHeadSize / 2),
                         .sin = m.floats(cols * kHeadSize / 2)};
  }));
  list.push_back(
      kernel<&DeviceOps::glu_forward>("glu forward", Roof::kBytes, 3 * inner, [=](Operands& m) {
        return kernels::GluForward{.rows = rows,
                                   .cols = cols,
                                   .g = m.inner(count),
                                   .u = m.inner(count),
                                   .h = m.inner(count)};
      }));
  list.push_back(
      kernel<&DeviceOps::glu_backward>("glu backward", Roof::kBytes, 5 * inner, [=](Operands& m) {
        return kernels::GluBackward{.rows = rows,
                                    .cols = cols,
                                    .g = m.inner(count),
                                    .u = m.inner(count),
                                    .dh = m.inner(count),
                                    .dg = m.inner(count),
                                    .du = m.inner(count)};
      }));
  add_updates(list);
  add_embeddings(list);
  return list;
}

void KernelList::add_norms(std::vector<BenchedKernel>& list) const {
  const int64_t count = sizes_.count(), rows = sizes_.rows(), cols = sizes_.hidden;
  const double outer = outer_bytes() * static_cast<double>(count);
  const double inner = inner_bytes() * static_cast<double>(count);
  const DType type = weights_;
  list.push_back(kernel<&DeviceOps::rms_norm_forward>(
      "rms norm forward", Roof::kBytes, outer + inner, [=](Operands& m) {
        return kernels::RmsNormForward{.dtype = type,
                                       .rows = rows,
                                       .cols = cols,
                                       .x = m.outer(count),
                                       .w = m.outer(cols),
                                       .y = m.inner(count),
                                       .rstd = m.floats(rows)};
      }));
  list.push_back(kernel<&DeviceOps::rms_norm_backward>(
      "rms norm backward", Roof::kBytes, 3 * outer + inner, [=](Operands& m) {
        return kernels::RmsNormBackward{.dtype = type,
                                        .rows = rows,
                                        .cols = cols,
                                        .x = m.outer(count),
                                        .w = m.outer(cols),
                                        .rstd = m.floats(rows),
                                        .dy = m.inner(count),
                                        .dres = m.outer(count),
                                        .dx = m.outer(count),
                                        .dw = m.floats(cols)};
      }));
  const int64_t size = std::min<int64_t>(128, cols), heads = cols / size;
  list.push_back(kernel<&DeviceOps::rms_norm_backward>(
      "rms norm of heads backward", Roof::kBytes, 3 * inner, [=](Operands& m) {
        return kernels::RmsNormBackward{.dtype = type,
                                        .inside = true,
                                        .rows = rows,
                                        .groups = heads,
                                        .cols = size,
                                        .x = m.inner(count).data,
                                        .w = m.outer(size),
                                        .rstd = m.floats(rows * heads),
                                        .dy = m.inner(count),
                                        .dx = m.inner(count).data,
                                        .dw = m.floats(size)};
      }));
  list.push_back(kernel<&DeviceOps::layer_norm_forward>(
      "layer norm forward", Roof::kBytes, outer + inner, [=](Operands& m) {
        return kernels::LayerNormForward{.dtype = type,
                                         .rows = rows,
                                         .cols = cols,
                                         .x = m.outer(count),
                                         .w = m.outer(cols),
                                         .b = m.outer(cols),
                                         .y = m.inner(count),
                                         .mean = m.floats(rows),
                                         .rstd = m.floats(rows)};
      }));
  list.push_back(kernel<&DeviceOps::layer_norm_backward>(
      "layer norm backward", Roof::kBytes, 3 * outer + inner, [=](Operands& m) {
        return kernels::LayerNormBackward{.dtype = type,
                                          .rows = rows,
                                          .cols = cols,
                                          .x = m.outer(count),
                                          .w = m.outer(cols),
                                          .mean = m.floats(rows),
                                          .rstd = m.floats(rows),
                                          .dy = m.inner(count),
                                          .dres = m.outer(count),
                                          .dx = m.outer(count),
                                          .dw = m.floats(cols),
                                          .db = m.floats(cols)};
      }));
}

void KernelList::add_updates(std::vector<BenchedKernel>& list) const {
  const int64_t count = sizes_.count();
  const auto all = static_cast<double>(count);
  const DType type = weights_;
  const double bytes = type == DType::kF16 ? 30 : 28;
  list.push_back(kernel<&DeviceOps::adamw>("adamw", Roof::kBytes, bytes * all, [=](Operands& m) {
    kernels::AdamW op = {.count = count,
                         .exp_avg = m.floats(count),
                         .exp_avg_sq = m.floats(count),
                         .grad = m.floats(count)};
    if (type != DType::kF32) op.hi = static_cast<uint16_t*>(m.outer(count));
    if (type == DType::kBF16) op.lo = static_cast<uint16_t*>(m.outer(count));
    if (type != DType::kBF16) op.master = m.floats(count);
    return op;
  }));
  const int64_t floats = 4 * count;
  list.push_back(kernel<&DeviceOps::sum_squares>(
      "sum of squares", Roof::kBytes, 4 * static_cast<double>(floats), [=](Operands& m) {
        std::byte* out = m.take(sizeof(kernels::SquaresPartial));
        return kernels::SumSquares{.count = floats,
                                   .x = m.floats(floats),
                                   .out = reinterpret_cast<kernels::SquaresPartial*>(out)};
      }));
}

namespace {

// Ids below a limit, in no order.
std::vector<int32_t> scattered_ids(int64_t count, int64_t limit) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    ids[static_cast<size_t>(i)] = static_cast<int32_t>(i * int64_t{2654435761} % limit);
  }
  return ids;
}

}  // namespace

void KernelList::add_embeddings(std::vector<BenchedKernel>& list) const {
  const int64_t rows = sizes_.rows(), cols = sizes_.hidden, vocabulary = sizes_.vocabulary();
  const auto all = static_cast<double>(sizes_.count());
  const DType type = weights_;
  list.push_back(kernel<&DeviceOps::embedding_forward>(
      "embedding forward", Roof::kBytes, 2 * outer_bytes() * all, [=](Operands& m) {
        return kernels::EmbeddingForward{.dtype = type,
                                         .rows = rows,
                                         .cols = cols,
                                         .vocabulary = vocabulary,
                                         .tokens = m.ids(scattered_ids(rows, vocabulary)),
                                         .w = m.outer(vocabulary * cols),
                                         .out = m.outer(rows * cols)};
      }));
  list.push_back(kernel<&DeviceOps::embedding_backward>(
      "embedding backward", Roof::kBytes, (outer_bytes() + 8) * all, [=](Operands& m) {
        return kernels::EmbeddingBackward{.dtype = type,
                                          .rows = rows,
                                          .cols = cols,
                                          .vocabulary = vocabulary,
                                          .tokens = m.ids(scattered_ids(rows, vocabulary)),
                                          .dy = m.outer(rows * cols),
                                          .dw = m.floats(vocabulary * cols),
                                          .accumulate = true};
      }));
}

}  // namespace strata::exec
