// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <tbb/global_control.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/rng.h"
#include "kernels/backend.h"
#include "kernels/cuda/twin/backend_twin.h"
#include "kernels/parallel.h"
#include "kernels/typed.h"

// A case of an op: inputs made from a fixed seed, run on any backend, outputs as flat arrays.
namespace strata::kernels {

using Floats = std::vector<float>;
using Halves = std::vector<uint16_t>;

// Uniform in [-1, 1).
inline Floats random_floats(int64_t count, uint64_t seed) {
  const Philox rng(seed);
  Floats values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] =
        static_cast<float>(2.0 * rng.uniform(static_cast<uint64_t>(i)) - 1.0);
  }
  return values;
}

// Sums of at most 1000 terms in f32 against f64, one rounding of the result.
inline constexpr float kF32Tolerance = 2e-6f;
// Half a unit of bf16's 8 bits, and of f16's 11, relative to the largest value: where the f32
// results fall on either side of a rounding boundary.
inline constexpr float kBf16Tolerance = 8e-3f, kF16Tolerance = 1e-3f;

inline float tolerance_of(DType dtype) {
  if (dtype == DType::kF32) return kF32Tolerance;
  return dtype == DType::kBF16 ? kBf16Tolerance : kF16Tolerance;
}

// An array in the element type that a case asks for.
class Typed {
 public:
  Typed(DType type, const Floats& values) : type_(type), floats_(values), halves_(values.size()) {
    for (size_t i = 0; type != DType::kF32 && i < values.size(); ++i) {
      store(type, halves_.data(), static_cast<int64_t>(i), values[i]);
    }
  }
  void* data() {
    return type_ == DType::kF32 ? static_cast<void*>(floats_.data()) : halves_.data();
  }
  Floats values() const {
    if (type_ == DType::kF32) return floats_;
    Floats wide;
    for (int64_t i = 0; i < std::ssize(halves_); ++i)
      wide.push_back(load(type_, halves_.data(), i));
    return wide;
  }

 private:
  DType type_;
  Floats floats_;
  Halves halves_;
};

// Aligned scratch, filled with NaN so that a kernel that reads before it writes shows.
class Scratch {
 public:
  explicit Scratch(int64_t bytes, int64_t alignment = 64)
      : bytes_(bytes),
        alignment_(static_cast<size_t>(alignment)),
        floats_(static_cast<size_t>(bytes) / 4 + alignment_, std::nanf("")) {}
  Workspace lend() {
    const auto address = reinterpret_cast<uintptr_t>(floats_.data());
    const size_t shift = (alignment_ - address % alignment_) % alignment_;
    return {reinterpret_cast<std::byte*>(floats_.data()) + shift, bytes_};
  }

 private:
  int64_t bytes_;
  size_t alignment_;
  Floats floats_;
};

// For the scratch that an op takes on a backend.
inline DeviceDescription device_of(const Backend& backend, int threads) {
  return {.kernels = backend.kernels, .threads = threads};
}

// The kernels of the CUDA device on the host.
inline const Backend& twin_backend() {
  static const Backend twin = make_cuda_twin(ref_backend());
  return twin;
}

struct KernelCase {
  std::string name;
  // Largest difference to ref, relative to the largest magnitude of the output.
  float tolerance;
  std::function<std::vector<Floats>(const Backend& backend, int threads)> run;
};

inline std::vector<Floats> run_with_threads(const KernelCase& one, const Backend& backend,
                                            int threads) {
  // More workers than cores, so that three threads are three also on a small machine.
  const tbb::global_control allow(tbb::global_control::max_allowed_parallelism, 4);
  const Parallel parallel(threads);
  std::vector<Floats> outputs;
  parallel.run([&] { outputs = one.run(backend, threads); });
  return outputs;
}

inline float largest_difference(const Floats& found, const Floats& wanted) {
  float difference = 0.0f;
  float magnitude = 1e-20f;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!std::isfinite(found[i])) return INFINITY;
    difference = std::max(difference, std::fabs(found[i] - wanted[i]));
    magnitude = std::max(magnitude, std::fabs(wanted[i]));
  }
  return difference / magnitude;
}

inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Where the documents of tokens [batch, length] start: documents of 1 to 40 tokens.
inline std::vector<int32_t> drawn_starts(int64_t batch, int64_t length, uint64_t seed) {
  const Philox random(seed);
  std::vector<int32_t> starts;
  for (int64_t b = 0; b < batch; ++b) {
    int32_t start = 0, end = 0;
    for (int32_t t = 0; t < length; ++t) {
      const uint64_t drawn = random.u64(static_cast<uint64_t>(b * length + t));
      if (t == end) start = std::exchange(end, t + 1 + static_cast<int32_t>(drawn % 40));
      starts.push_back(start);
    }
  }
  return starts;
}

// Limits the cpu backend to one instruction set while it lives (0: the machine's best).
class OnlyTarget {
 public:
  explicit OnlyTarget(int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  ~OnlyTarget() { hwy::SetSupportedTargetsForTest(0); }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;
};

// The promises that every op of the cpu backend makes; the twin of the CUDA device agrees too.
inline void expect_agrees_and_repeats(const std::vector<KernelCase>& cases) {
  for (const KernelCase& one : cases) {
    SCOPED_TRACE(one.name);
    const auto wanted = run_with_threads(one, ref_backend(), 1);
    const auto twins = one.run(twin_backend(), 1);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_LE(largest_difference(twins[i], wanted[i]), one.tolerance)
          << "output " << i << " of the cuda twin";
    }
    for (const int64_t target : {int64_t{HWY_SSE4}, int64_t{HWY_AVX2}}) {
      if ((hwy::SupportedTargets() & target) == 0) continue;
      const OnlyTarget only(target);
      const auto found = run_with_threads(one, cpu_backend(), 2);
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_LE(largest_difference(found[i], wanted[i]), one.tolerance)
            << "output " << i << " with " << hwy::TargetName(target);
      }
    }
    const auto found = run_with_threads(one, cpu_backend(), 1);
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_LE(largest_difference(found[i], wanted[i]), one.tolerance) << "output " << i;
    }
    for (const int threads : {1, 2, 3}) {
      const auto again = run_with_threads(one, cpu_backend(), threads);
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_TRUE(same_bits(again[i], found[i]))
            << "output " << i << ", " << threads << " threads";
      }
    }
  }
}

}  // namespace strata::kernels
