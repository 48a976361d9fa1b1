// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include "tests/kernels/kernel_case.h"

// Cases of an op with shapes, types and addresses drawn from a seed, for backends that take
// interiors in bf16 and f16.
namespace strata::kernels {

// What a case draws: sizes around the pack of 4, the block and the share, and types.
class Draw {
 public:
  Draw(DType weights_in, DType interior_in, uint64_t seed)
      : weights(weights_in), interior(interior_in), seed_(seed), random_(seed ^ 0x5eed) {}

  // Sizes and addresses are such that threads of a GPU load packs of 4, where the range allows it.
  void pack() { aligned = packed_ = true; }

  // From `least` to `most`, often one of the ends or a multiple of 4.
  int64_t size(int64_t least, int64_t most) {
    const int64_t size = any_size(least, most);
    const int64_t packed = std::min(round_up(size, 4), most / 4 * 4);
    return packed_ && packed >= least ? packed : size;
  }
  bool flag() { return random_.u64(next_++) % 2 == 0; }
  int64_t shift() { return aligned || flag() ? 0 : static_cast<int64_t>(random_.u64(next_++) % 4); }
  uint64_t seed() const { return seed_; }

  const DType weights, interior;
  bool aligned = false;  // arrays begin where the allocator puts them

 private:
  int64_t any_size(int64_t least, int64_t most) {
    const uint64_t value = random_.u64(next_++);
    const auto span = static_cast<uint64_t>(most - least + 1);
    const int64_t size = least + static_cast<int64_t>(value / 8 % span);
    if (value % 8 == 0) return least;
    if (value % 8 == 1) return most;
    return value % 8 < 5 ? std::max(least, size / 4 * 4) : size;
  }

  bool packed_ = false;
  const uint64_t seed_;
  const Philox random_;
  uint64_t next_ = 0;
};

// An array of random values at an address that may be off the alignment of packs by whole elements.
class Drawn {
 public:
  Drawn(Draw& draw, DType type, int64_t count, uint64_t seed, float scale = 1.0f)
      : type_(type), count_(count), shift_(draw.shift()), typed_(type, values_of(seed, scale)) {}

  void* data() { return static_cast<std::byte*>(typed_.data()) + shift_ * bytes_of(type_); }
  float* floats() { return static_cast<float*>(data()); }
  operator Interior() { return {data(), type_}; }
  operator ConstInterior() { return {data(), type_}; }
  Floats values() const {
    Floats all = typed_.values();
    return {all.begin() + shift_, all.begin() + shift_ + count_};
  }

 private:
  Floats values_of(uint64_t seed, float scale) const {
    Floats values = random_floats(count_ + shift_, seed);
    for (float& value : values) value *= scale;
    return values;
  }

  const DType type_;
  const int64_t count_, shift_;
  Typed typed_;
};

using DrawnRun = std::vector<Floats> (*)(const Backend& backend, Draw& draw);

// How far an op may be from ref where all of its types are f32; 0: the same bits for every type.
struct DrawnOp {
  const char* name;
  DrawnRun run;
  float tolerance;
  bool products = false;  // of weights and interiors: no f32 weights with interiors of 16 bits
  int draws = 12;         // for each pair of types; a third of them for f16
  float roundings = 1;    // to 16 bits, one after the other
  bool f16 = true;        // takes it
};

// Types that weights and interiors have together.
struct TypePair {
  DType weights, interior;
  bool has(DType type) const { return weights == type || interior == type; }
};
inline constexpr TypePair kTypePairs[] = {{DType::kF32, DType::kF32},  {DType::kF32, DType::kBF16},
                                          {DType::kBF16, DType::kF32}, {DType::kBF16, DType::kBF16},
                                          {DType::kF32, DType::kF16},  {DType::kF16, DType::kF32},
                                          {DType::kF16, DType::kF16}};

inline std::vector<KernelCase> drawn_cases(const DrawnOp& op) {
  std::vector<KernelCase> cases;
  for (const TypePair& types : kTypePairs) {
    const auto& [weights, interior] = types;
    if (op.products && weights == DType::kF32 && interior != DType::kF32) continue;
    if (!op.f16 && types.has(DType::kF16)) continue;
    const float rounding = std::max(tolerance_of(weights), tolerance_of(interior));
    const bool halves = weights != DType::kF32 || interior != DType::kF32;
    const int draws = types.has(DType::kF16) ? op.draws / 3 : op.draws;
    for (int i = 0; i < draws; ++i) {
      const auto seed = static_cast<uint64_t>(i + 1);
      cases.push_back(
          {fmt::format("{} {} in {}, seed {}", op.name, name_of(weights), name_of(interior), seed),
           halves && op.tolerance > 0 ? op.roundings * rounding : op.tolerance,
           [=](const Backend& backend, int) {
             Draw draw(types.weights, types.interior, seed);
             if (seed % 2 == 0) draw.pack();
             return op.run(backend, draw);
           }});
    }
  }
  return cases;
}

// Runs an op with the scratch that it takes on the backend.
template <auto Member, typename Op>
void run_op(const Backend& backend, const Draw& draw, Op op) {
  DeviceDescription device = device_of(backend, 1);
  device.interior = draw.interior;
  Scratch scratch(workspace_bytes(op, device), workspace_alignment(device));
  op.workspace = scratch.lend();
  (backend.*Member)(op);
}

}  // namespace strata::kernels
