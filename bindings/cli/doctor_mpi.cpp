// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/doctor_mpi.h"

#include "engine/comm/group_mpi.h"

namespace strata::cli {

DoctorLine check_mpi(const std::string& plugin_path) {
  std::string why;
  const comm::MpiPlugin* plugin = comm::load_mpi_plugin(plugin_path, why);
  const std::string text = plugin != nullptr ? plugin->version() + ", for --collectives mpi"
                                             : "none for --collectives mpi: " + why;
  return {DoctorLine::Status::kOk, "mpi", text, ""};
}

}  // namespace strata::cli
