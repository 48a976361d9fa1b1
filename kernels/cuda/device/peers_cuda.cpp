// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device/peers_cuda.h"

#include "engine/base/error.h"

#ifdef STRATA_NCCL
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "kernels/cuda/device/nccl_library.h"
#include "kernels/cuda/device/queue_cuda.h"
#include "kernels/cuda/device/runtime.h"

namespace strata::kernels::cuda {
namespace {

static_assert(sizeof(PeersId) == NCCL_UNIQUE_ID_BYTES);

// Each block of a kernel that exchanges keeps a processor of the GPU busy, also while it waits for
// a peer, and NCCL may take 64. The kernels of three groups (data, inner, stages) must fit beside
// each other; otherwise ranks could wait for each other in a circle.
constexpr int kMostBlocks = 16, kGroups = 3;
int most_blocks(int index) {
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, index), "processors");
  return std::clamp(properties.multiProcessorCount / kGroups, 1, kMostBlocks);
}

// A call is mostly done within 0.1 ms; it takes longer where ranks meet or a peer is late.
constexpr int kPollsAtOnce = 1000;
constexpr auto kPause = std::chrono::microseconds(200);
constexpr double kFinalizeS = 5;  // what is under way then is aborted

const char* advice_on(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
      return "lower --device-memory where memory is short, or run `dmesg | grep NVRM` for faults "
             "of the GPU and start again from the checkpoint";
    case ncclSystemError:
    case ncclRemoteError:
      return "see whether another rank ended and check the network, or give --device-exchange host";
    case ncclInvalidUsage:
      return "give each rank a GPU of its own, or give --device-exchange host";
    default:
      return "set NCCL_DEBUG=INFO to see more, or give --device-exchange host";
  }
}

bool is_error(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

// "invalid usage: Duplicate GPU detected (...)": the last warning of NCCL has the details.
std::string text_of(const NcclLibrary& nccl, const std::string& what, ncclResult_t result,
                    ncclComm_t group) {
  const std::string_view name = nccl.GetErrorString(result);
  std::string cause(name.substr(0, name.find(" (")));  // without NCCL's own advice
  const std::string_view details = nccl.GetLastError(group);
  if (!details.empty()) cause += fmt::format(": {}", details);
  return fmt::format("cuda: NCCL: {}: {} ({})", what, cause, advice_on(result));
}

// The place of a device in a group is a communicator of NCCL. Its calls return before they are
// done, so that no thread waits in NCCL for a rank that does not come: is_done() asks.
class CudaPeers : public Peers {
 public:
  CudaPeers(const NcclLibrary& nccl, int index, const PeersOptions& options)
      : nccl_(nccl),
        index_(index),
        options_(options),
        who_(fmt::format("rank {} of {} on device {}", options.rank, options.size, index)) {}
  ~CudaPeers() override;
  CudaPeers(const CudaPeers&) = delete;
  CudaPeers& operator=(const CudaPeers&) = delete;

  void join();
  void exchange(Queue& queue, std::span<const Transfer> sends,
                std::span<const Transfer> receives) override;
  void check() override { (void)is_done("exchange"); }
  void abort() override;

 private:
  void meet();
  void issue(cudaStream_t stream, std::span<const Transfer> sends,
             std::span<const Transfer> receives);
  template <typename Done>
  void wait(const Done& done) const;
  bool is_done(const char* what);
  void require(ncclResult_t result, const char* what);
  void throw_if_ended() const;
  void end(const std::string& why);
  bool is_finalized();

  // Constant after construction
  const NcclLibrary& nccl_;
  const int index_;  // of the device
  const PeersOptions options_;
  const std::string who_;  // for messages

  // NCCL does not allow two threads in calls of one communicator.
  std::mutex mu_;
  ncclComm_t group_ = nullptr;  // Guarded by mu_, like all below; null before and after its use
  bool joined_ = false;
  std::string why_ended_;
};

CudaPeers::~CudaPeers() {
  if (group_ == nullptr) return;
  const OnDevice scope(index_);
  if (joined_ && is_finalized()) {
    nccl_.CommDestroy(group_);
  } else {
    nccl_.CommAbort(group_);
  }
}

bool CudaPeers::is_finalized() {
  ncclResult_t state = nccl_.CommFinalize(group_);
  const double deadline_s = now_s() + kFinalizeS;
  while (state == ncclInProgress && now_s() < deadline_s) {
    std::this_thread::sleep_for(kPause);
    if (nccl_.CommGetAsyncError(group_, &state) != ncclSuccess) return false;
  }
  return state == ncclSuccess;
}

void CudaPeers::join() {
  STRATA_CHECK(0 <= options_.rank && options_.rank < options_.size);
  const OnDevice scope(index_, who_);
  meet();
  wait([&] { return is_done("joining"); });
  const std::lock_guard lock(mu_);
  joined_ = true;
}

void CudaPeers::meet() {
  ncclUniqueId id;
  std::memcpy(&id, options_.id.data(), sizeof(id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = most_blocks(index_);
  const std::lock_guard lock(mu_);
  require(nccl_.CommInitRankConfig(&group_, options_.size, id, options_.rank, &config), "joining");
}

// Work is on the stream when the calls are done, not before: the event at the op's end must follow.
void CudaPeers::exchange(Queue& queue, std::span<const Transfer> sends,
                         std::span<const Transfer> receives) {
  const auto& on = static_cast<const CudaQueue&>(queue);
  try {
    on.named([&] { issue(on.stream(), sends, receives); });
    wait([&] {
      bool done = false;
      on.named([&] { done = is_done("exchange"); });
      return done;
    });
  } catch (...) {
    abort();  // part of it may run, and would wait for ever
    throw;
  }
}

// A group of calls is the thread's, not the communicator's: it ends also where one of them fails.
void CudaPeers::issue(cudaStream_t stream, std::span<const Transfer> sends,
                      std::span<const Transfer> receives) {
  const std::lock_guard lock(mu_);
  throw_if_ended();
  require(nccl_.GroupStart(), "exchange");
  ncclResult_t result = ncclSuccess;
  const auto add = [&](std::span<const Transfer> transfers, const auto& call) {
    for (const Transfer& one : transfers) {
      STRATA_CHECK(one.bytes > 0);
      const auto bytes = static_cast<size_t>(one.bytes);
      if (!is_error(result)) result = call(one.data, bytes, ncclUint8, one.peer, group_, stream);
    }
  };
  add(sends, nccl_.Send);
  add(receives, nccl_.Recv);
  const ncclResult_t ended = nccl_.GroupEnd();
  require(is_error(result) ? result : ended, "exchange");
}

void CudaPeers::abort() {
  const std::lock_guard lock(mu_);
  end(fmt::format("cuda: NCCL: {}: the group was aborted (see the first error of its ranks)",
                  who_));
}

template <typename Done>
void CudaPeers::wait(const Done& done) const {
  for (int polls = 1; !done(); ++polls) {
    if (polls < kPollsAtOnce) {
      std::this_thread::yield();
      continue;
    }
    if (options_.keep_waiting) options_.keep_waiting();
    std::this_thread::sleep_for(kPause);
  }
}

// Whether the calls so far are done. Throws where one of them, or what it began, has failed.
bool CudaPeers::is_done(const char* what) {
  const std::lock_guard lock(mu_);
  throw_if_ended();
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl_.CommGetAsyncError(group_, &state);
  require(is_error(asked) ? asked : state, what);
  return state == ncclSuccess;
}

// After an error, NCCL can do nothing with a communicator but abort it.
void CudaPeers::require(ncclResult_t result, const char* what) {
  if (!is_error(result)) return;
  end(text_of(nccl_, fmt::format("{}, {}", who_, what), result, group_));
  throw_if_ended();
}

void CudaPeers::throw_if_ended() const {
  if (!why_ended_.empty()) throw Error(ErrorCode::kPeer, why_ended_);
}

void CudaPeers::end(const std::string& why) {
  if (!why_ended_.empty()) return;
  why_ended_ = why;
  if (group_ == nullptr) return;  // it did not begin
  const OnDevice scope(index_);
  nccl_.CommAbort(group_);
  group_ = nullptr;
}

const NcclLibrary& require_nccl() {
  std::string why;
  const NcclLibrary* const nccl = nccl_library(why);
  if (nccl == nullptr) throw Error(ErrorCode::kDevice, "cuda: " + why);
  return *nccl;
}

}  // namespace

bool has_peers(std::string& text) {
  const NcclLibrary* const nccl = nccl_library(text);
  if (nccl != nullptr) text = "NCCL " + nccl_version_text(nccl->version);
  return nccl != nullptr;
}

PeersId make_peers_id(int index) {
  const NcclLibrary& nccl = require_nccl();
  const OnDevice scope(index, "NCCL");
  ncclUniqueId made;
  const ncclResult_t result = nccl.GetUniqueId(&made);
  if (is_error(result)) {
    throw Error(ErrorCode::kPeer, text_of(nccl, "id of a group of devices", result, nullptr));
  }
  PeersId id;
  std::memcpy(id.data(), &made, sizeof(made));
  return id;
}

std::unique_ptr<Peers> join_peers(int index, const PeersOptions& options) {
  auto peers = std::make_unique<CudaPeers>(require_nccl(), index, options);
  peers->join();
  return peers;
}

}  // namespace strata::kernels::cuda

#else
namespace strata::kernels::cuda {
namespace {

constexpr const char* kWhy =
    "the CUDA plugin was built without nccl.h (run cmake/cuda_wheels.sh and build again, or give "
    "--device-exchange host)";

}  // namespace

bool has_peers(std::string& text) {
  text = kWhy;
  return false;
}

PeersId make_peers_id(int) {
  throw Error(ErrorCode::kDevice, std::string("cuda: ") + kWhy);
}

std::unique_ptr<Peers> join_peers(int, const PeersOptions&) {
  throw Error(ErrorCode::kDevice, std::string("cuda: ") + kWhy);
}

}  // namespace strata::kernels::cuda
#endif
