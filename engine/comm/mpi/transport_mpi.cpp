// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/mpi/transport_mpi.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "engine/base/error.h"

namespace strata::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// MPI moves bytes while its functions are called, and none of them waits with a deadline. So a wait
// asks again and again: at once for a moment, then with pauses, which leave the cores to
// arithmetic.
class Pause {
 public:
  void operator()() {
    if (Clock::now() - begin_ < kAtOnce) return std::this_thread::yield();
    std::this_thread::sleep_for(length_);
    length_ = std::min(length_ * 2, kLongest);
  }

 private:
  static constexpr microseconds kAtOnce{200};
  static constexpr microseconds kLongest{200};
  const Clock::time_point begin_ = Clock::now();
  microseconds length_{20};
};

// How long a reception that is given up may still write to its memory. One whose other end is gone
// never ends, but then nobody writes there.
constexpr auto kGivenUp = std::chrono::milliseconds(100);

class MpiTransport final : public Transport {
 public:
  MpiTransport(MpiCalls& calls, const MpiLink& options) : calls_(calls), options_(options) {}

  std::unique_ptr<Transfer> send(int peer, const void* data, int64_t bytes) override {
    return begin(true, bytes, [&](int64_t at, int count, MPI_Request* request) {
      return MPI_Isend(static_cast<const std::byte*>(data) + at, count, MPI_BYTE, rank_of(peer),
                       options_.number, calls_.comm, request);
    });
  }
  std::unique_ptr<Transfer> receive(int peer, void* data, int64_t bytes) override {
    return begin(false, bytes, [&](int64_t at, int count, MPI_Request* request) {
      return MPI_Irecv(static_cast<std::byte*>(data) + at, count, MPI_BYTE, rank_of(peer),
                       options_.number, calls_.comm, request);
    });
  }
  void close() override { closed_ = true; }

 private:
  class Requests final : public Transfer {
   public:
    Requests(MpiTransport& transport, bool sends) : transport_(transport), sends_(sends) {}
    // What is sent is only read, so that MPI may keep it.
    ~Requests() override {
      if (!open_.empty() && !sends_) give_up();
    }

    bool wait(std::chrono::milliseconds limit) override {
      const auto end = Clock::now() + limit;
      for (Pause pause; !interrupted_ && !transport_.closed_; pause()) {
        if (moved()) return true;
        if (Clock::now() >= end) {
          throw Error(ErrorCode::kDeadline, "mpi: the time is over");
        }
      }
      return false;
    }
    void interrupt() override { interrupted_ = true; }

    std::vector<MPI_Request> open_;

   private:
    bool moved() {
      const std::lock_guard lock(transport_.calls_.mu);
      int done = 0;
      check_mpi("test", MPI_Testall(static_cast<int>(open_.size()), open_.data(), &done,
                                    MPI_STATUSES_IGNORE));
      if (done != 0) open_.clear();
      return done != 0;
    }

    // A reception that has not begun ends at once.
    void give_up() {
      {
        const std::lock_guard lock(transport_.calls_.mu);
        for (MPI_Request& request : open_) {
          if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
        }
      }
      const auto end = Clock::now() + kGivenUp;
      try {
        for (Pause pause; Clock::now() < end && !moved(); pause()) {
        }
      } catch (const Error&) {
        // It has ended, in its way.
      }
    }

    MpiTransport& transport_;
    const bool sends_;
    std::atomic<bool> interrupted_ = false;
  };

  int rank_of(int peer) const { return options_.ranks[static_cast<size_t>(peer)]; }

  template <typename Begin>
  std::unique_ptr<Transfer> begin(bool sends, int64_t bytes, Begin begin_one) {
    auto requests = std::make_unique<Requests>(*this, sends);
    const std::lock_guard lock(calls_.mu);
    for (int64_t at = 0; at < bytes; at += options_.message_bytes_max) {
      const auto count = static_cast<int>(std::min(options_.message_bytes_max, bytes - at));
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi("transfer", begin_one(at, count, &request));
      requests->open_.push_back(request);
    }
    return requests;
  }

  // Constant after construction
  MpiCalls& calls_;
  const MpiLink options_;

  std::atomic<bool> closed_ = false;
};

}  // namespace

void check_mpi(const char* call, int code) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorCode::kPeer, fmt::format("mpi: {}: {}", call, text));
}

std::unique_ptr<Transport> make_mpi_transport(MpiCalls& calls, const MpiLink& options) {
  return std::make_unique<MpiTransport>(calls, options);
}

}  // namespace strata::comm
