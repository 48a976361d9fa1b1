// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/recipe.h"
#include "kernels/device.h"

// Measures the ops of a device, each alone.
namespace strata::exec {

// What limits an op: traffic of the device's memory, or arithmetic.
enum class Roof : uint8_t { kBytes, kFlops };

struct KernelRow {
  std::string name;
  double seconds = 0;  // the median of an op
  double rate = 0;     // bytes or operations a second
  Roof roof = Roof::kBytes;
  double share = 0;  // of a copy, or of the best product; 0: compared with neither
};

struct KernelFigures {
  std::vector<KernelRow> rows;
  double copy_bytes_per_s = 0;     // within the device's memory, read and written
  double product_flops_per_s = 0;  // the best of the recipe's products
  int64_t memory_bytes = 0;        // the most that the operands of an op took
};

struct KernelBench {
  Recipe recipe = Recipe::kBf16;
  int64_t bytes = 0;   // the memory that operands may take, about; sizes follow it
  double seconds = 5;  // about, where ops are short
};

// Sizes follow the memory given and the rates of a copy and a product, so that an op of a slow
// device is short too. The host is a device that has the memory of the host. Throws Error as the
// device does, and Error{kDoesNotFit} where its memory is taken.
KernelFigures bench_kernels(kernels::Device& device, const KernelBench& bench);

}  // namespace strata::exec
