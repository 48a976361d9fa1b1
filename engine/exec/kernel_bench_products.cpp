// SPDX-License-Identifier: Apache-2.0
// The ops that arithmetic limits, and those that generate text.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/base/units.h"
#include "engine/exec/kernel_bench_ops.h"

namespace strata::exec {
namespace {

using kernels::DeviceOps;

constexpr int64_t kHeadsOfKey = 4;
constexpr float kScale = 0.09f;

double cube(int64_t size) {
  return static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
}

int64_t power_of_two_below(double value) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max(1.0, value))));
}

const char* word_of(DType type) {
  return type == DType::kF32 ? "fp32" : type == DType::kBF16 ? "bf16" : "fp16";
}

}  // namespace

BenchedKernel KernelList::product(int64_t size, bool in_f32) const {
  const DType type = in_f32 ? DType::kF32 : weights_;
  const DType interior = in_f32 ? DType::kF32 : device_.interior;
  BenchedKernel product = kernel<&DeviceOps::matmul_forward>(
      fmt::format("product {0}x{0}x{0} {1}", size, word_of(type)), Roof::kFlops, 2 * cube(size),
      [=](Operands& m) {
        return kernels::MatMulForward{.dtype = type,
                                      .rows = size,
                                      .outputs = size,
                                      .inputs = size,
                                      .x = {m.values(size * size, interior), interior},
                                      .w = m.values(size * size, type),
                                      .y = {m.values(size * size, interior), interior}};
      });
  product.has_share = type == weights_;
  return product;
}

std::vector<BenchedKernel> KernelList::gradients_of_product(int64_t size) const {
  const DType type = weights_;
  const int64_t count = size * size;
  return {kernel<&DeviceOps::matmul_input>("product, gradient of x", Roof::kFlops, 2 * cube(size),
                                           [=](Operands& m) {
                                             return kernels::MatMulInput{.dtype = type,
                                                                         .rows = size,
                                                                         .outputs = size,
                                                                         .inputs = size,
                                                                         .dy = m.inner(count),
                                                                         .w = m.outer(count),
                                                                         .dx = m.inner(count)};
                                           }),
          kernel<&DeviceOps::matmul_weight>("product, gradient of w", Roof::kFlops, 2 * cube(size),
                                            [=](Operands& m) {
                                              return kernels::MatMulWeight{.rows = size,
                                                                           .outputs = size,
                                                                           .inputs = size,
                                                                           .dy = m.inner(count),
                                                                           .x = m.inner(count),
                                                                           .dw = m.floats(count),
                                                                           .accumulate = true};
                                            })};
}

std::vector<BenchedKernel> KernelList::limited_by_arithmetic() const {
  std::vector<BenchedKernel> list;
  add_loss(list);
  for (const int64_t head_size : {64, 128}) {
    add_attention(list, 1, sizes_.hidden, head_size);
    add_attention(list, 8, sizes_.hidden / 2, head_size);
  }
  return list;
}

void KernelList::add_loss(std::vector<BenchedKernel>& list) const {
  const int64_t cols = sizes_.hidden, vocabulary = sizes_.vocabulary();
  const double flops_of_row = 2.0 * static_cast<double>(cols * vocabulary);
  const int64_t rows =
      std::clamp(power_of_two_below(sizes_.flops / (3 * flops_of_row)), int64_t{16}, 2 * cols);
  for (const bool gradients : {false, true}) {
    const double flops = flops_of_row * static_cast<double>(rows) * (gradients ? 3 : 1);
    list.push_back(kernel<&DeviceOps::linear_cross_entropy>(
        fmt::format("loss {}x{}x{}{}", rows, cols, vocabulary, gradients ? " and gradients" : ""),
        Roof::kFlops, flops, [=, type = weights_](Operands& m) {
          std::vector<int32_t> targets(static_cast<size_t>(rows));
          for (size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<int32_t>(i);
          kernels::LinearCrossEntropy op = {
              .dtype = type,
              .rows = rows,
              .cols = cols,
              .vocabulary = vocabulary,
              .h = m.inner(rows * cols),
              .w = m.outer(vocabulary * cols),
              .targets = m.ids(std::move(targets)),
              .loss_sum = reinterpret_cast<double*>(m.take(sizeof(double)))};
          if (gradients) op.dh = m.inner(rows * cols);
          if (gradients) op.dw = m.floats(vocabulary * cols);
          return op;
        }));
  }
}

// Causal, with as many heads as the rows of a segment have.
void KernelList::add_attention(std::vector<BenchedKernel>& list, int64_t batch, int64_t longest,
                               int64_t head_size) const {
  const int64_t heads = std::max(kHeadsOfKey, sizes_.hidden / 128);
  const int64_t kv_heads = heads / kHeadsOfKey;
  const double flops_of_square = 2.0 * static_cast<double>(batch * heads * head_size);
  const int64_t length = std::clamp(
      power_of_two_below(std::sqrt(sizes_.flops / (2.5 * flops_of_square))), int64_t{16}, longest);
  const double flops = flops_of_square * static_cast<double>(length * length);
  const int64_t rows = batch * length, q = rows * heads * head_size, k = q / kHeadsOfKey;
  const std::string shape = fmt::format("{}x{}x{}", batch, length, head_size);
  list.push_back(kernel<&DeviceOps::attention_forward>(
      "attention forward " + shape, Roof::kFlops, flops, [=](Operands& m) {
        return kernels::AttentionForward{.batch = batch,
                                         .length = length,
                                         .heads = heads,
                                         .kv_heads = kv_heads,
                                         .head_size = head_size,
                                         .scale = kScale,
                                         .q = m.inner(q),
                                         .k = m.inner(k),
                                         .v = m.inner(k),
                                         .o = m.inner(q),
                                         .lse = m.floats(rows * heads)};
      }));
  list.push_back(kernel<&DeviceOps::attention_backward>(
      "attention backward " + shape, Roof::kFlops, 2.5 * flops, [=](Operands& m) {
        return kernels::AttentionBackward{.batch = batch,
                                          .length = length,
                                          .heads = heads,
                                          .kv_heads = kv_heads,
                                          .head_size = head_size,
                                          .scale = kScale,
                                          .q = m.inner(q),
                                          .k = m.inner(k),
                                          .v = m.inner(k),
                                          .o = m.inner(q),
                                          .lse = m.floats(rows * heads),
                                          .d_o = m.inner(q),
                                          .dq = m.inner(q),
                                          .dk = m.inner(k),
                                          .dv = m.inner(k)};
      }));
}

// Products by row, of few tokens and of a prompt; one new token of each text over a long cache.
std::vector<BenchedKernel> KernelList::of_generation() const {
  const int64_t inputs = sizes_.hidden, outputs = 4 * sizes_.hidden;
  const auto weights = static_cast<double>(inputs * outputs);
  const int64_t prompt =
      std::clamp<int64_t>(power_of_two_below(sizes_.flops / (2 * weights)), 32, 1024);
  std::vector<BenchedKernel> list;
  for (const int64_t rows : {int64_t{1}, int64_t{8}, int64_t{16}, prompt}) {
    const bool few = rows <= 16;
    const double amount = few ? outer_bytes() * weights : 2 * weights * static_cast<double>(rows);
    list.push_back(kernel<&DeviceOps::matmul_forward>(
        fmt::format("product by row, {} row{}", rows, rows == 1 ? "" : "s"),
        few ? Roof::kBytes : Roof::kFlops, amount, [=, type = weights_](Operands& m) {
          return kernels::MatMulForward{.dtype = type,
                                        .rows = rows,
                                        .outputs = outputs,
                                        .inputs = inputs,
                                        .x = m.inner(rows * inputs),
                                        .w = m.outer(outputs * inputs),
                                        .y = m.inner(rows * outputs),
                                        .by_row = true};
        }));
  }
  const int64_t size = 128, length = 2 * sizes_.hidden;
  const int64_t heads = std::max(kHeadsOfKey, sizes_.hidden / size), keys = heads / kHeadsOfKey;
  for (const int64_t texts : {1, 16}) {
    const double bytes = 2 * inner_bytes() * static_cast<double>(texts * length * keys * size);
    list.push_back(kernel<&DeviceOps::cached_attention>(
        fmt::format("attention over a cache, {} x {}", texts, length), Roof::kBytes, bytes,
        [=, interior = device_.interior](Operands& m) {
          const auto last = static_cast<int32_t>(length - 1);
          std::vector<int32_t> row;
          for (int32_t i = 0; i < texts; ++i) row.push_back(i);
          kernels::CachedAttention op = {
              .tokens = texts,
              .heads = heads,
              .kv_heads = keys,
              .head_size = size,
              .rows = texts,
              .positions = round_up(length, kernels::kCacheTile),
              .scale = kScale,
              .row = m.ids(std::move(row)),
              .position = m.ids(std::vector<int32_t>(static_cast<size_t>(texts), last)),
              .q = m.inner(texts * heads * size),
              .k = m.inner(texts * keys * size),
              .v = m.inner(texts * keys * size),
              .o = m.inner(texts * heads * size)};
          op.cache = {m.values(cache_bytes(op, interior) / bytes_of(interior), interior), interior};
          return op;
        }));
  }
  return list;
}

}  // namespace strata::exec
