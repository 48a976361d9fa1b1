// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>

#include "engine/config/option_table.h"

// What the rows of the table of options are written with. A row stands in the file of its heading.
namespace strata::config::rows {

std::span<const OptionRow> of_training();  // model, data, length, optimizer
std::span<const OptionRow> of_running();   // memory, devices, ranks, evaluation, checkpoints
std::span<const OptionRow> of_others();    // what other commands have beside these

using enum OptionType;
using O = Options;

constexpr uint32_t bit(Command command) {
  return 1u << static_cast<int>(command);
}
inline constexpr uint32_t kInit = bit(Command::kInit);
inline constexpr uint32_t kTrain = bit(Command::kTrain);
inline constexpr uint32_t kLaunch = bit(Command::kLaunch);
inline constexpr uint32_t kPlan = bit(Command::kPlan);
inline constexpr uint32_t kEval = bit(Command::kEval);
inline constexpr uint32_t kDoctor = bit(Command::kDoctor);
inline constexpr uint32_t kExport = bit(Command::kExport);
inline constexpr uint32_t kGenerate = bit(Command::kGenerate);
inline constexpr uint32_t kTokenize = bit(Command::kTokenize);
inline constexpr uint32_t kModels = bit(Command::kModels);
inline constexpr uint32_t kBench = bit(Command::kBench);
inline constexpr uint32_t kBenchLink = bit(Command::kBenchLink);
inline constexpr uint32_t kBenchKernels = bit(Command::kBenchKernels);
inline constexpr uint32_t kReport = bit(Command::kReport);
inline constexpr uint32_t kStep = kTrain | kPlan;             // commands about training steps
inline constexpr uint32_t kRead = kStep | kEval | kTokenize;  // commands that read records
inline constexpr uint32_t kRuns = kStep | kEval | kGenerate;  // commands that run a model
inline constexpr uint32_t kBenchDevice = kBenchLink | kBenchKernels;
inline constexpr uint32_t kAll =
    kInit | kRuns | kDoctor | kExport | kTokenize | kBench | kBenchDevice;

template <auto Member>
constexpr EnumField enum_field() {
  return {[](Options& options, int value) {
            using Enum = std::remove_reference_t<decltype(options.*Member)>;
            options.*Member = static_cast<Enum>(value);
          },
          [](const Options& options) { return static_cast<int>(options.*Member); }};
}

// Words in the order of the enumerators, of which `Last` is the last.
template <auto Last, typename... Word>
constexpr auto words(Word... word) {
  static_assert(sizeof...(word) == static_cast<size_t>(Last) + 1);
  return std::array<std::string_view, sizeof...(word)>{word...};
}

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr OptionRange kAny = {};
inline constexpr OptionRange kFromOne = {1, kInfinity};
inline constexpr OptionRange kRatio = {0, 1};
inline constexpr OptionRange kAboveZeroToOne = {0, 1, true, false};
constexpr OptionRange up_to(double high) {
  return {1, high};
}

}  // namespace strata::config::rows
