// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// NCCL over the fake device, for ranks that are threads of one process (nccl_api.cpp).
//
// As the library's, calls of a communicator return before they are done: each is done once the
// communicator has been asked a few times. Ranks that exchange for the first time wait for each
// other then. An exchange is one command of a stream, which ends when its receptions are there and
// its sends were received: so a rank cannot count on buffers between ranks, which real ones have
// only for short messages.
namespace fake_cuda {

struct Transfer {
  bool is_send = false;
  const void* data = nullptr;  // of the device
  std::byte* mapped = nullptr;
  int64_t bytes = 0;
  int peer = 0;
};

// What was sent to a rank, until it has received it.
struct Message {
  std::vector<std::byte> bytes;
  bool taken = false;
};

// The ranks of one id.
struct Clique {
  explicit Clique(int size_in) : size(size_in) {}
  const int size;
  std::mutex mu;
  std::condition_variable changed;
  std::map<int, int> gpus;  // of ranks that are there. Guarded by mu, like all below
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> mailboxes;  // from, to
  std::set<std::tuple<int, int, bool>> connected;  // from, to, the sender's side or the other
};

// A rank's part of a communicator. Outlives it where commands of streams are under way.
class Member : public std::enable_shared_from_this<Member> {
 public:
  Member(std::shared_ptr<Clique> clique, int rank, int gpu);

  // Begin calls. Each returns ncclInProgress, or an error.
  ncclResult_t meet();
  ncclResult_t exchange(cudaStream_t stream, std::vector<Transfer> transfers);
  ncclResult_t finalize();

  // What has become of the call under way.
  ncclResult_t state();
  // An error that a caller sees with the next state; the first stays.
  void fail(ncclResult_t error);
  void abort();

  int size() const { return clique_->size; }
  int gpu() const { return gpu_; }

 private:
  using Call = std::function<ncclResult_t()>;
  ncclResult_t begin(Call call);
  ncclResult_t launch(cudaStream_t stream, const std::vector<Transfer>& transfers);
  void carry_out(const std::vector<Transfer>& transfers);
  void send_and_receive(std::unique_lock<std::mutex>& lock, const std::vector<Transfer>& transfers);
  bool receive(std::unique_lock<std::mutex>& lock, const Transfer& transfer);
  template <typename Condition>
  bool await(std::unique_lock<std::mutex>& lock, const Condition& condition);
  std::tuple<int, int, bool> side_of(const Transfer& transfer, bool is_ours) const;

  // Constant after construction
  const std::shared_ptr<Clique> clique_;
  const int rank_;
  const int gpu_;

  ncclResult_t state_ = ncclSuccess;  // Guarded by the clique's mu, like all below
  Call call_;                         // under way
  int polls_ = 0;                     // since it began
  int running_ = 0;                   // commands of streams
  bool aborted_ = false;
};

// Keeps the text of the last error of the process.
ncclResult_t nccl_error(ncclResult_t error, const std::string& text);
std::string nccl_last_error();

}  // namespace fake_cuda
