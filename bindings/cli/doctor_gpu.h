// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "bindings/cli/doctor.h"

namespace strata::cli {

// The checks of `strata doctor` for GPUs: a line for each, with its memory and versions, or one
// that says why none is used, which is a warning when the machine has a GPU by NVIDIA. Tests set
// `root`, which is put before /sys.
std::vector<DoctorLine> check_gpus(const std::string& plugin_path, const std::string& root = "");

// The NUMA nodes of GPUs by NVIDIA, as the PCI bus says them; -1: of one whose node is not known.
std::set<int> numa_nodes_of_gpus(const std::string& root = "");

}  // namespace strata::cli
