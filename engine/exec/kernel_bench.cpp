// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/kernel_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/exec/device_probe.h"
#include "engine/exec/kernel_bench_ops.h"
#include "engine/exec/probe_values.h"

namespace strata::exec {
namespace {

constexpr double kRows = 40;  // about, that share the time
constexpr int64_t kHiddenMin = 64;
constexpr int64_t kHiddenMax = 4096;

// The operands of no op take more than 256 times the square of this, but for scratch.
int64_t hidden_of(int64_t bytes) {
  const auto most = static_cast<uint64_t>(std::sqrt(static_cast<double>(bytes) / 256));
  return std::clamp(static_cast<int64_t>(std::bit_floor(most)), kHiddenMin, kHiddenMax);
}

class Runner {
 public:
  Runner(kernels::Device& device, const KernelBench& bench)
      : device_(device),
        weights_(weight_dtype(bench.recipe)),
        part_s_(bench.seconds / kRows),
        sizes_{.hidden = hidden_of(bench.bytes)},
        timer_(device) {}

  KernelFigures run() {
    const KernelList list(device_, weights_, sizes_);
    figures_.copy_bytes_per_s = add(list.copy());
    add_products(list);
    sizes_.flops = figures_.product_flops_per_s * part_s_ / 4;
    const KernelList others(device_, weights_, sizes_);
    for (const auto& kernels :
         {others.limited_by_memory(), others.limited_by_arithmetic(), others.of_generation()}) {
      for (const BenchedKernel& kernel : kernels) add(kernel);
    }
    for (KernelRow& row : figures_.rows) {
      row.share *= row.rate / (row.roof == Roof::kBytes ? figures_.copy_bytes_per_s
                                                        : figures_.product_flops_per_s);
    }
    return figures_;
  }

 private:
  // Returns the rate. Its share is set when all is known with which it is compared.
  double add(const BenchedKernel& kernel) {
    const OpTimer::Issue issue = place(kernel);
    const kernels::MemoryRange range = whole();
    const int64_t fused = device_.fused_ops();
    const double seconds = timer_.median(kernel.name.c_str(), {&range, 1}, issue, part_s_);
    const double rate = kernel.amount / seconds;
    const std::string name = kernel.name + (device_.fused_ops() > fused ? ", fused" : "");
    figures_.rows.push_back({name, seconds, rate, kernel.roof, kernel.has_share ? 1.0 : 0.0});
    return rate;
  }

  void add_products(const KernelList& list) {
    const auto seconds_of = [&](int64_t size) {
      const BenchedKernel product = list.product(size);
      const OpTimer::Issue issue = place(product);
      const kernels::MemoryRange range = whole();
      return timer_.once(product.name.c_str(), {&range, 1}, issue);
    };
    const int64_t size = product_size(seconds_of, part_s_ / 4, 2 * sizes_.hidden);
    std::vector<BenchedKernel> products = list.gradients_of_product(size);
    products.insert(products.begin(), list.product(size));
    if (size > 2 * kHiddenMin) products.insert(products.begin(), list.product(size / 2));
    for (const BenchedKernel& product : products) {
      figures_.product_flops_per_s = std::max(figures_.product_flops_per_s, add(product));
    }
    if (weights_ != DType::kF32) add(list.product(size, true));
  }

  OpTimer::Issue place(const BenchedKernel& kernel) {
    Operands counted(device_.description(), weights_, nullptr);
    kernel.place(counted);
    grow(kernel.name, counted.bytes());
    Operands operands(device_.description(), weights_, block_->data());
    OpTimer::Issue issue = kernel.place(operands);
    for (const Operands::Filled& one : operands.filled()) fill(one);
    for (const auto& [data, ids] : operands.all_ids()) set(data, ids);
    return issue;
  }

  void grow(const std::string& name, int64_t bytes) {
    if (bytes <= figures_.memory_bytes) return;
    block_.reset();
    try {
      block_ = std::make_unique<DeviceBlock>(device_, bytes);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDoesNotFit) throw;
      throw Error(ErrorCode::kDoesNotFit,
                  fmt::format("bench kernels: {}: its operands take {} of memory, and so much is "
                              "not free (lower --device-memory)",
                              name, format_bytes(bytes)));
    }
    figures_.memory_bytes = bytes;
  }

  void fill(const Operands::Filled& one) {
    auto& values = values_[one.type];
    if (values == nullptr) values = std::make_unique<ProbeValues>(device_, one.type);
    const kernels::MemoryRange ranges[] = {whole(), values->range()};
    timer_.once("fill", ranges, [&](auto& queue) { values->fill(queue, one.data, one.bytes); });
  }

  void set(std::byte* data, const std::vector<int32_t>& ids) {
    const PinnedBlock staged(device_, std::ssize(ids) * 4);
    std::memcpy(staged.data(), ids.data(), ids.size() * 4);
    const kernels::MemoryRange ranges[] = {whole(), staged.range()};
    timer_.once("ids", ranges,
                [&](auto& queue) { queue.copy(data, staged.data(), std::ssize(ids) * 4); });
  }

  kernels::MemoryRange whole() const { return {block_->data(), figures_.memory_bytes, true}; }

  kernels::Device& device_;
  const DType weights_;
  const double part_s_;
  KernelSizes sizes_;
  std::unique_ptr<DeviceBlock> block_;
  std::map<DType, std::unique_ptr<ProbeValues>> values_;
  OpTimer timer_;
  KernelFigures figures_;
};

}  // namespace

KernelFigures bench_kernels(kernels::Device& device, const KernelBench& bench) {
  return Runner(device, bench).run();
}

}  // namespace strata::exec
