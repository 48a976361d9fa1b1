// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/options.h"

namespace strata::config {

// Two options that exclude each other.
struct ExclusivePair {
  std::string_view first;
  std::string_view second;
  std::string_view reason;  // follows their names
};

std::span<const ExclusivePair> exclusive_options();

// An option that refines another one and has no meaning without it. A file may have it alone,
// because other commands may use it or a flag may give the other option.
struct DetailOf {
  Command command;
  std::string_view detail;
  std::string_view of;
};

std::span<const DetailOf> option_details();

// Finds options that contradict each other although each is in range, and missing options that a
// command needs. Returns one text for each problem.
std::vector<std::string> find_conflicts(Command command, const Options& options);

// Whether --device-memory means something: for a device with memory of its own, and for `bench
// kernels`. A profile to plan for may have such a device; what is here by itself is the CPU.
bool may_have_device(Command command, const Options& options);

// Whether `bench io` measures what a machine profile needs: read, write and mixed rates, with
// checksums.
bool measures_drives(const Options& options);

// Throws all problems as one Error (kUsage): "cannot use the options: ...".
[[noreturn]] void refuse_options(const std::vector<std::string>& problems);

}  // namespace strata::config
