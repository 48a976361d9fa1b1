// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL over the fake device.
#include <nccl.h>

#include <atomic>
#include <cstring>

#include "tests/fake_cuda/fake_device.h"
#include "tests/fake_cuda/fake_nccl.h"

struct ncclComm {
  std::shared_ptr<fake_cuda::Member> member;
};

namespace {

using namespace fake_cuda;  // NOLINT: the functions below are outside of any namespace

constexpr char kMagic[] = "fake NCCL";

// The calls between ncclGroupStart() and ncclGroupEnd() of a thread.
struct Group {
  struct Part {
    std::shared_ptr<Member> member;
    cudaStream_t stream;
    std::vector<Transfer> transfers;
  };
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Part> parts;
};
thread_local Group group;

Device& device() {
  return Device::instance();
}

// Counts a call. Returns an error where it is the one that fails.
ncclResult_t refusal(const char* name) {
  device().faults.count_call(name);
  if (!device().faults.fails("nccl")) return ncclSuccess;
  return nccl_error(ncclSystemError, std::string("the fault nccl in ") + name);
}

#define STRATA_FAKE_CALL()                                                      \
  if (const ncclResult_t refused = refusal(__func__); refused != ncclSuccess) { \
    return refused;                                                             \
  }

// Returns null where ranks disagree about the size.
std::shared_ptr<Clique> clique_of(const ncclUniqueId& id, int size) {
  static std::mutex mu;
  static std::map<std::string, std::weak_ptr<Clique>> cliques;
  const std::lock_guard lock(mu);
  std::weak_ptr<Clique>& known = cliques[std::string(id.internal, sizeof(id.internal))];
  std::shared_ptr<Clique> clique = known.lock();
  if (clique == nullptr) known = clique = std::make_shared<Clique>(size);
  return clique->size == size ? clique : nullptr;
}

ncclResult_t problem_of(const char* name, Transfer& transfer, ncclComm_t comm,
                        cudaStream_t stream) {
  const auto refuse = [&](ncclResult_t error, const std::string& text) {
    return nccl_error(error, std::string(name) + " : " + text);
  };
  if (comm == nullptr || stream == nullptr) return refuse(ncclInvalidArgument, "a null argument");
  if (group.depth == 0) return refuse(ncclInvalidUsage, "the fake has it only in groups");
  const Member& member = *comm->member;
  if (transfer.peer < 0 || transfer.peer >= member.size()) {
    return refuse(ncclInvalidArgument, "invalid root " + std::to_string(transfer.peer) +
                                           " (root should be in the 0.." +
                                           std::to_string(member.size()) + " range)");
  }
  transfer.mapped = device().mapped_on(member.gpu(), transfer.data, transfer.bytes);
  if (transfer.mapped == nullptr) {
    return refuse(ncclInvalidArgument,
                  "the buffer is not memory of device " + std::to_string(member.gpu()));
  }
  const ncclResult_t state = comm->member->state();
  if (state != ncclInProgress) return state;
  return refuse(ncclInvalidArgument,
                "Attempt to use communicator before the previous operation returned ncclSuccess");
}

ncclResult_t add(const char* name, Transfer transfer, ncclDataType_t type, ncclComm_t comm,
                 cudaStream_t stream) {
  ncclResult_t error = refusal(name);
  if (type != ncclUint8) error = nccl_error(ncclInvalidArgument, "the fake has only ncclUint8");
  if (error == ncclSuccess) error = problem_of(name, transfer, comm, stream);
  if (error != ncclSuccess) {
    if (comm != nullptr) comm->member->fail(error);
    group.error = error;
    return error;
  }
  for (Group::Part& part : group.parts) {
    if (part.member != comm->member) continue;
    part.transfers.push_back(transfer);
    return ncclSuccess;
  }
  group.parts.push_back({comm->member, stream, {transfer}});
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = static_cast<int>(device().faults.setting("nccl"));
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  STRATA_FAKE_CALL();
  static std::atomic<int64_t> made = 0;
  const int64_t number = ++made;
  *id = {};
  std::memcpy(id->internal, kMagic, sizeof(kMagic));
  std::memcpy(id->internal + sizeof(id->internal) - sizeof(number), &number, sizeof(number));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *comm = nullptr;
  STRATA_FAKE_CALL();
  if (rank < 0 || rank >= ranks || std::memcmp(id.internal, kMagic, sizeof(kMagic)) != 0) {
    return nccl_error(ncclInvalidArgument, "no such rank or id");
  }
  if (config == nullptr || config->blocking != 0 || config->maxCTAs < 1) {
    return nccl_error(ncclInvalidArgument,
                      "the fake has only communicators that do not block, with limited blocks");
  }
  int gpu = 0;
  if (cudaGetDevice(&gpu) != cudaSuccess) return ncclUnhandledCudaError;
  std::shared_ptr<Clique> clique = clique_of(id, ranks);
  if (clique == nullptr) return nccl_error(ncclInvalidArgument, "ranks give different sizes");
  *comm = new ncclComm{std::make_shared<Member>(std::move(clique), rank, gpu)};
  const ncclResult_t result = (*comm)->member->meet();
  if (result != ncclInProgress) (*comm)->member->fail(result);
  return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  *result = comm->member->state();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  STRATA_FAKE_CALL();
  const ncclResult_t state = comm->member->state();
  return state == ncclSuccess ? comm->member->finalize() : state;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  device().faults.count_call(__func__);
  if (comm->member->state() == ncclInProgress) {
    return nccl_error(ncclInvalidArgument, "destroyed before the last call is done");
  }
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  device().faults.count_call(__func__);
  comm->member->abort();
  delete comm;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  static const std::map<ncclResult_t, const char*> kNames = {
      {ncclSuccess, "no error"},
      {ncclUnhandledCudaError, "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"},
      {ncclSystemError, "unhandled system error (run with NCCL_DEBUG=INFO for details)"},
      {ncclInvalidArgument, "invalid argument (run with NCCL_DEBUG=WARN for details)"},
      {ncclInvalidUsage, "invalid usage (run with NCCL_DEBUG=WARN for details)"},
      {ncclRemoteError, "remote process exited or there was a network error"},
      {ncclInProgress, "NCCL operation in progress"}};
  const auto found = kNames.find(result);
  return found == kNames.end() ? "unknown result code" : found->second;
}

const char* ncclGetLastError(ncclComm_t) {
  thread_local std::string text;
  text = nccl_last_error();
  return text.c_str();
}

// --- transfers -----------------------------------------------------------------------------------

ncclResult_t ncclGroupStart() {
  STRATA_FAKE_CALL();
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  ncclResult_t error = refusal(__func__);
  if (group.depth == 0) return nccl_error(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--group.depth > 0) return error;
  Group ended = std::exchange(group, {});
  if (error == ncclSuccess) error = ended.error;
  for (Group::Part& part : ended.parts) {
    if (error != ncclSuccess) {
      part.member->fail(error);
    } else {
      part.member->exchange(part.stream, std::move(part.transfers));
    }
  }
  return error == ncclSuccess && !ended.parts.empty() ? ncclInProgress : error;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add(__func__, {true, data, nullptr, static_cast<int64_t>(count), peer}, type, comm,
             stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(__func__, {false, data, nullptr, static_cast<int64_t>(count), peer}, type, comm,
             stream);
}

// --- the library, for include/dlfcn.h ------------------------------------------------------------

bool fake_nccl_is_installed() {
  return device().faults.setting("nccl") > 0;
}

void* fake_nccl_function(const char* name) {
  static const std::map<std::string, void*> kFunctions = {
      {"ncclGetVersion", reinterpret_cast<void*>(ncclGetVersion)},
      {"ncclGetUniqueId", reinterpret_cast<void*>(ncclGetUniqueId)},
      {"ncclCommInitRankConfig", reinterpret_cast<void*>(ncclCommInitRankConfig)},
      {"ncclCommGetAsyncError", reinterpret_cast<void*>(ncclCommGetAsyncError)},
      {"ncclCommFinalize", reinterpret_cast<void*>(ncclCommFinalize)},
      {"ncclCommDestroy", reinterpret_cast<void*>(ncclCommDestroy)},
      {"ncclCommAbort", reinterpret_cast<void*>(ncclCommAbort)},
      {"ncclGetErrorString", reinterpret_cast<void*>(ncclGetErrorString)},
      {"ncclGetLastError", reinterpret_cast<void*>(ncclGetLastError)},
      {"ncclGroupStart", reinterpret_cast<void*>(ncclGroupStart)},
      {"ncclGroupEnd", reinterpret_cast<void*>(ncclGroupEnd)},
      {"ncclSend", reinterpret_cast<void*>(ncclSend)},
      {"ncclRecv", reinterpret_cast<void*>(ncclRecv)}};
  const auto found = kFunctions.find(name);
  return found == kFunctions.end() ? nullptr : found->second;
}

}  // extern "C"
