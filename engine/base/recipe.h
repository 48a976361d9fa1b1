// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "engine/base/check.h"
#include "engine/base/dtype.h"

// What the training state of a parameter consists of: a recipe is a table of planes, arrays with
// one element for each parameter. Planner, verifier, volume and checkpoints take widths from here.
namespace strata {

enum class Recipe : uint8_t { kFp32, kBf16, kFp16 };
inline constexpr int kRecipeCount = 3;

// kHi is the weights that forward and backward read; kLo is what the fp32 master has beyond them.
enum class Plane : uint8_t { kHi, kLo, kExpAvg, kExpAvgSq };
inline constexpr int kPlaneCount = 4;
inline constexpr std::array<Plane, kPlaneCount> kPlanes = {Plane::kHi, Plane::kLo, Plane::kExpAvg,
                                                           Plane::kExpAvgSq};
inline constexpr std::array<const char*, kPlaneCount> kPlaneNames = {"hi", "lo", "exp_avg",
                                                                     "exp_avg_sq"};
static_assert(static_cast<int>(kPlanes.back()) == kPlaneCount - 1 && kPlaneNames.back() != nullptr);

inline const char* name_of(Plane plane) {
  return kPlaneNames[static_cast<size_t>(plane)];
}

// Where kHi comes from.
enum class WeightsFrom : uint8_t {
  kMaster,    // it is the fp32 master; there is no kLo
  kHighHalf,  // it is the upper half of the master, split as split_master() does; kLo is the lower
  kRounded,   // it is rounded from the master, which is kLo
};

struct RecipePlanes {
  Recipe recipe;
  const char* name;
  DType weights;  // of kHi, and of activations between segments
  WeightsFrom from;
  std::array<int8_t, kPlaneCount> width;  // bytes of an element of each plane; 0: no such plane
  constexpr int64_t width_of(Plane plane) const { return width[static_cast<size_t>(plane)]; }
  constexpr int64_t bytes() const {
    return std::accumulate(width.begin(), width.end(), int64_t{0});
  }
};

inline constexpr std::array<RecipePlanes, kRecipeCount> kRecipeTable = {{
    {Recipe::kFp32, "fp32", DType::kF32, WeightsFrom::kMaster, {4, 0, 4, 4}},
    {Recipe::kBf16, "bf16", DType::kBF16, WeightsFrom::kHighHalf, {2, 2, 4, 4}},
    {Recipe::kFp16, "fp16", DType::kF16, WeightsFrom::kRounded, {2, 4, 4, 4}},
}};

constexpr const RecipePlanes& planes_of(Recipe recipe) {
  const RecipePlanes& row = kRecipeTable[static_cast<size_t>(recipe)];
  STRATA_CHECK(row.recipe == recipe);
  return row;
}
constexpr int64_t width_of(Plane plane, Recipe recipe) {
  return planes_of(recipe).width_of(plane);
}
constexpr DType weight_dtype(Recipe recipe) {
  return planes_of(recipe).weights;
}
// Gradients of activations in fp16 are those of a scaled loss.
constexpr bool scales_loss(Recipe recipe) {
  return weight_dtype(recipe) == DType::kF16;
}
inline const char* name_of(Recipe recipe) {
  return planes_of(recipe).name;
}
template <class Name = const char*>
constexpr std::array<Name, kRecipeCount> recipe_names() {
  return {kRecipeTable[0].name, kRecipeTable[1].name, kRecipeTable[2].name};
}

}  // namespace strata
