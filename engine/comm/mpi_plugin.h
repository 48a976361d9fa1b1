// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/plugin.h"
#include "engine/comm/transport.h"

// MPI is a plugin (engine/base/plugin.h): the program runs on machines without it too.
namespace strata::comm {

struct MpiLink {
  std::vector<int> ranks = {};                   // of MPI, in the order of the group
  int own = 0;                                   // the place of this process among them
  int number = 0;                                // the same for all ranks; no other group has it
  int64_t message_bytes_max = int64_t{1} << 30;  // MPI counts bytes as int
};

// MPI in this process, from its initialization on, which a process can do once. Threads: any;
// finish() only the one that started it.
class MpiProcess {
 public:
  virtual ~MpiProcess() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int number_max() const = 0;  // of links
  // Does not wait. Connections are MPI's own.
  virtual std::unique_ptr<Transport> link(const MpiLink& options) = 0;
  // Ends MPI; waits until all ranks do. A process that ends without it makes MPI end all ranks.
  virtual void finish() = 0;
};

// What the plugin's one exported function returns.
struct MpiPlugin {
  const char* build;
  std::string (*version)();  // "Open MPI v4.1.4, MPI 3.1"; starts nothing
  // Initializes MPI, which may wait for all ranks. Throws Error{kConfig}.
  std::unique_ptr<MpiProcess> (*start)();
};

// Identifies the interface: the version of these headers, and the size of what crosses it.
inline std::string mpi_plugin_build() {
  return "1 " + std::to_string(sizeof(MpiLink));
}

inline constexpr PluginName kMpiPlugin = {.file = "libstrata_mpi.so",
                                          .entry = "strata_mpi_plugin_1",
                                          .needs = "an MPI library",
                                          .shares_libraries = true};

}  // namespace strata::comm
