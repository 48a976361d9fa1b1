// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/exec/kernel_bench.h"
#include "engine/exec/op_timer.h"

// The ops that are measured, and where their operands lie.
namespace strata::exec {

// The sizes of ops.
struct KernelSizes {
  int64_t hidden = 0;
  double flops = 0;  // of an op that arithmetic limits, about

  int64_t rows() const { return 4 * hidden; }
  int64_t count() const { return rows() * hidden; }
  int64_t vocabulary() const { return 8 * hidden; }
};

// Places the operands of one op one after the other; where there is no memory yet, it counts them.
class Operands {
 public:
  Operands(const kernels::DeviceDescription& device, DType weights, std::byte* memory)
      : device_(device), weights_(weights), memory_(memory) {}

  int64_t bytes() const { return used_; }

  // Elements at the boundary of segments or weights, elements inside, and others.
  void* outer(int64_t count) { return values(count, weights_); }
  kernels::Interior inner(int64_t count) {
    return {values(count, device_.interior), device_.interior};
  }
  void* values(int64_t count, DType type);
  float* floats(int64_t count) { return static_cast<float*>(values(count, DType::kF32)); }
  int32_t* ids(std::vector<int32_t> ids);
  std::byte* take(int64_t bytes);
  template <typename Op>
  void lend(Op& op) {
    const int64_t bytes = workspace_bytes(op, device_);
    op.workspace = {take(bytes), bytes};
  }

  // What the operands hold before the op runs.
  struct Filled {
    std::byte* data;
    int64_t bytes;
    DType type;
  };
  const std::vector<Filled>& filled() const { return filled_; }
  const std::vector<std::pair<std::byte*, std::vector<int32_t>>>& all_ids() const { return ids_; }

 private:
  const kernels::DeviceDescription& device_;
  const DType weights_;
  std::byte* const memory_;
  int64_t used_ = 0;
  std::vector<Filled> filled_;
  std::vector<std::pair<std::byte*, std::vector<int32_t>>> ids_;
};

// An op: what it reads and writes, or computes, and how it is issued with its operands placed.
struct BenchedKernel {
  std::string name;
  Roof roof = Roof::kBytes;
  double amount = 0;
  std::function<OpTimer::Issue(Operands&)> place;
  bool has_share = true;
};

// Makes the list of ops of a device.
class KernelList {
 public:
  KernelList(const kernels::Device& device, DType weights, const KernelSizes& sizes)
      : ops_(device.ops()), device_(device.description()), weights_(weights), sizes_(sizes) {}

  BenchedKernel copy() const;
  // A product of square matrices: in the types of the recipe, or in f32.
  BenchedKernel product(int64_t size, bool in_f32 = false) const;
  std::vector<BenchedKernel> gradients_of_product(int64_t size) const;
  std::vector<BenchedKernel> limited_by_memory() const;
  std::vector<BenchedKernel> limited_by_arithmetic() const;
  std::vector<BenchedKernel> of_generation() const;

 private:
  template <auto Member, typename Build>
  BenchedKernel kernel(std::string name, Roof roof, double amount, Build build) const;
  void add_norms(std::vector<BenchedKernel>& list) const;
  void add_updates(std::vector<BenchedKernel>& list) const;
  void add_embeddings(std::vector<BenchedKernel>& list) const;
  void add_loss(std::vector<BenchedKernel>& list) const;
  void add_attention(std::vector<BenchedKernel>& list, int64_t batch, int64_t longest,
                     int64_t head_size) const;

  double outer_bytes() const { return static_cast<double>(bytes_of(weights_)); }
  double inner_bytes() const { return static_cast<double>(bytes_of(device_.interior)); }

  const kernels::DeviceOps& ops_;
  const kernels::DeviceDescription& device_;
  const DType weights_;
  const KernelSizes sizes_;
};

// `build` returns the op with its operands placed, but for its workspace.
template <auto Member, typename Build>
BenchedKernel KernelList::kernel(std::string name, Roof roof, double amount, Build build) const {
  const auto place = [&ops = ops_, build](Operands& operands) -> OpTimer::Issue {
    auto op = build(operands);
    if constexpr (requires { op.workspace; }) operands.lend(op);
    return [&ops, op](kernels::Queue& queue) { (ops.*Member)(queue, op); };
  };
  return {std::move(name), roof, amount, place};
}

}  // namespace strata::exec
