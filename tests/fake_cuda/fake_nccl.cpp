// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/fake_nccl.h"

#include <chrono>
#include <cstring>

#include "engine/base/clock.h"
#include "tests/fake_cuda/fake_device.h"

namespace fake_cuda {
namespace {

constexpr int kPolls = 3;         // until a call is done, at least
constexpr double kMeetingS = 20;  // a rank that waits for others gives up then
constexpr auto kGlance = std::chrono::milliseconds(2);  // at failures of the device

std::mutex error_mu;
std::string last_error;  // Guarded by error_mu

}  // namespace

ncclResult_t nccl_error(ncclResult_t error, const std::string& text) {
  const std::lock_guard lock(error_mu);
  last_error = text;
  return error;
}

std::string nccl_last_error() {
  const std::lock_guard lock(error_mu);
  return last_error;
}

Member::Member(std::shared_ptr<Clique> clique, int rank, int gpu)
    : clique_(std::move(clique)), rank_(rank), gpu_(gpu) {}

// --- calls ---------------------------------------------------------------------------------------

ncclResult_t Member::begin(Call call) {
  call_ = std::move(call);
  polls_ = 0;
  return state_ = ncclInProgress;
}

ncclResult_t Member::state() {
  const std::lock_guard lock(clique_->mu);
  if (call_ && ++polls_ >= kPolls) {
    const ncclResult_t result = call_();
    if (result != ncclInProgress) {
      state_ = result;
      call_ = nullptr;
    }
  }
  return state_;
}

void Member::fail(ncclResult_t error) {
  const std::lock_guard lock(clique_->mu);
  call_ = nullptr;
  state_ = error;
}

void Member::abort() {
  const std::lock_guard lock(clique_->mu);
  call_ = nullptr;
  aborted_ = true;
  clique_->changed.notify_all();
}

ncclResult_t Member::meet() {
  const std::lock_guard lock(clique_->mu);
  // One that is absent waits, but no other sees it.
  if (!Device::instance().faults.fails("absent") && !clique_->gpus.emplace(rank_, gpu_).second) {
    return nccl_error(ncclInvalidUsage, "two ranks " + std::to_string(rank_));
  }
  return begin([this, deadline_s = strata::now_s() + kMeetingS] {
    if (std::ssize(clique_->gpus) < clique_->size) {
      if (strata::now_s() < deadline_s) return ncclInProgress;
      return nccl_error(ncclSystemError, "a rank did not come in time");
    }
    std::map<int, int> ranks;
    for (const auto& [rank, gpu] : clique_->gpus) {
      const auto [first, is_first] = ranks.emplace(gpu, rank);
      if (is_first) continue;
      return nccl_error(ncclInvalidUsage, "Duplicate GPU detected : rank " +
                                              std::to_string(first->second) + " and rank " +
                                              std::to_string(rank) + " both on CUDA device " +
                                              std::to_string(gpu));
    }
    return ncclSuccess;
  });
}

ncclResult_t Member::finalize() {
  const std::lock_guard lock(clique_->mu);
  return begin([this] {
    if (Device::instance().failure() != cudaSuccess) return ncclUnhandledCudaError;
    return running_ > 0 ? ncclInProgress : ncclSuccess;
  });
}

ncclResult_t Member::exchange(cudaStream_t stream, std::vector<Transfer> transfers) {
  const std::lock_guard lock(clique_->mu);
  for (const Transfer& one : transfers) clique_->connected.insert(side_of(one, true));
  return begin(
      [this, stream, transfers = std::move(transfers)] { return launch(stream, transfers); });
}

std::tuple<int, int, bool> Member::side_of(const Transfer& transfer, bool is_ours) const {
  const int from = transfer.is_send ? rank_ : transfer.peer;
  const int to = transfer.is_send ? transfer.peer : rank_;
  return {from, to, transfer.is_send == is_ours};
}

ncclResult_t Member::launch(cudaStream_t stream, const std::vector<Transfer>& transfers) {
  for (const Transfer& one : transfers) {
    if (!clique_->connected.contains(side_of(one, false))) return ncclInProgress;
  }
  Device& device = Device::instance();
  if (device.failure() != cudaSuccess) {
    return nccl_error(ncclUnhandledCudaError, "the device has failed");
  }
  if (device.faults.fails("exchanging")) {
    return nccl_error(ncclRemoteError, "the fault exchanging");
  }
  Ranges ranges;
  for (const Transfer& one : transfers) {
    ranges.push_back({static_cast<const std::byte*>(one.data), one.bytes, !one.is_send});
  }
  ++running_;
  reinterpret_cast<Stream*>(stream)->push(
      "an exchange", ranges,
      [self = shared_from_this(), transfers] { self->carry_out(transfers); });
  return ncclSuccess;
}

// --- on the stream -------------------------------------------------------------------------------

void Member::carry_out(const std::vector<Transfer>& transfers) {
  std::unique_lock lock(clique_->mu);
  if (Device::instance().faults.fails("stuck")) {
    await(lock, [] { return false; });
  } else {
    send_and_receive(lock, transfers);
  }
  --running_;
}

void Member::send_and_receive(std::unique_lock<std::mutex>& lock,
                              const std::vector<Transfer>& transfers) {
  std::vector<std::shared_ptr<Message>> sent;
  for (const Transfer& one : transfers) {
    if (!one.is_send) continue;
    auto message = std::make_shared<Message>();
    message->bytes.assign(one.mapped, one.mapped + one.bytes);
    clique_->mailboxes[{rank_, one.peer}].push_back(message);
    sent.push_back(std::move(message));
  }
  clique_->changed.notify_all();
  for (const Transfer& one : transfers) {
    if (!one.is_send && !receive(lock, one)) return;
  }
  for (const auto& message : sent) {
    if (!await(lock, [&] { return message->taken; })) return;
  }
}

bool Member::receive(std::unique_lock<std::mutex>& lock, const Transfer& transfer) {
  auto& box = clique_->mailboxes[{transfer.peer, rank_}];
  if (!await(lock, [&] { return !box.empty(); })) return false;
  const std::shared_ptr<Message> message = std::move(box.front());
  box.pop_front();
  message->taken = true;
  clique_->changed.notify_all();
  if (std::ssize(message->bytes) == transfer.bytes) {
    std::memcpy(transfer.mapped, message->bytes.data(), message->bytes.size());
    return true;
  }
  call_ = nullptr;
  state_ = nccl_error(ncclInvalidUsage, "rank " + std::to_string(transfer.peer) + " sent " +
                                            std::to_string(message->bytes.size()) +
                                            " bytes, and rank " + std::to_string(rank_) +
                                            " receives " + std::to_string(transfer.bytes));
  return false;
}

// False: the communicator was aborted, or the device has failed.
template <typename Condition>
bool Member::await(std::unique_lock<std::mutex>& lock, const Condition& condition) {
  while (!condition()) {
    if (aborted_ || Device::instance().failure() != cudaSuccess) return false;
    clique_->changed.wait_for(lock, kGlance);
  }
  return true;
}

}  // namespace fake_cuda
