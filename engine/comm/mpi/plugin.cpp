// SPDX-License-Identifier: Apache-2.0
// MPI of this process, and the one symbol that the library exports (plugin.map).
#include <fmt/core.h>

#include <string_view>

#include "engine/base/error.h"
#include "engine/comm/mpi/transport_mpi.h"

namespace strata::comm {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kConfig, "collectives: mpi: " + why);
}

class Process final : public MpiProcess {
 public:
  Process() {
    start();
    check_mpi("error handler", MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    check_mpi("communicator", MPI_Comm_dup(MPI_COMM_WORLD, &calls_.comm));
    check_mpi("rank", MPI_Comm_rank(calls_.comm, &rank_));
    check_mpi("size", MPI_Comm_size(calls_.comm, &size_));
    void* tags = nullptr;
    int found = 0;
    check_mpi("tags", MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tags, &found));
    if (found != 0) number_max_ = *static_cast<int*>(tags);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int number_max() const override { return number_max_; }
  std::unique_ptr<Transport> link(const MpiLink& options) override {
    return make_mpi_transport(calls_, options);
  }
  void finish() override {
    const std::lock_guard lock(calls_.mu);
    check_mpi("communicator", MPI_Comm_free(&calls_.comm));
    check_mpi("end", MPI_Finalize());
  }

 private:
  static void start() {
    int started = 0;
    MPI_Initialized(&started);
    if (started != 0) refuse("another part of this process has started MPI (run strata train)");
    int level = MPI_THREAD_SINGLE;
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
    if (code != MPI_SUCCESS) refuse("MPI does not start (look at what it prints)");
    if (level < MPI_THREAD_SERIALIZED) {
      refuse(
          "this MPI serves one thread of a process alone (install one with "
          "MPI_THREAD_SERIALIZED)");
    }
  }

  // Constant after construction
  MpiCalls calls_;
  int rank_ = 0;
  int size_ = 1;
  int number_max_ = 32767;  // which the standard guarantees
};

// "Open MPI v4.1.4, package: ..." is a line for people who package it.
std::string version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0, major = 0, minor = 0;
  MPI_Get_library_version(text, &length);
  MPI_Get_version(&major, &minor);
  const std::string_view library(text);
  return fmt::format("{}, MPI {}.{}", library.substr(0, library.find_first_of(",\n")), major,
                     minor);
}

std::unique_ptr<MpiProcess> start_process() {
  return std::make_unique<Process>();
}

}  // namespace
}  // namespace strata::comm

extern "C" __attribute__((visibility("default"))) const strata::comm::MpiPlugin*
strata_mpi_plugin_1() {
  static const std::string build = strata::comm::mpi_plugin_build();
  static const strata::comm::MpiPlugin plugin = {build.c_str(), strata::comm::version,
                                                 strata::comm::start_process};
  return &plugin;
}
