// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace strata::comm {

// Moves bytes between a rank of a group and each other rank of it.
//
// Guarantees: the k-th transfer that a rank begins to send to another moves its bytes to the k-th
// that the other begins to receive from it; both have the same size. A transfer that ends before
// its bytes have moved ends the use of its memory, as far as the transport can.
// Threads: one at a time, but interrupt() and close() may be called by any.
// Failure: calls throw a std::exception, whose text says what is wrong.
class Transport {
 public:
  class Transfer {
   public:
    virtual ~Transfer() = default;
    // True: the bytes have moved, and the memory is the caller's again. False: interrupted. Throws
    // also when `limit` is over.
    virtual bool wait(std::chrono::milliseconds limit) = 0;
    virtual void interrupt() = 0;  // does not wait
  };

  virtual ~Transport() = default;
  virtual std::unique_ptr<Transfer> send(int peer, const void* data, int64_t bytes) = 0;
  virtual std::unique_ptr<Transfer> receive(int peer, void* data, int64_t bytes) = 0;
  // Moves what it can move without a wait, for a thread that waits for something else. True:
  // transfers are under way that go on only by this call or by a wait.
  virtual bool advance() { return false; }
  virtual void close() = 0;  // for good; transfers that are under way fail
};

// Makes the transports of a network that is not this library's. `ranks`: of the job, in the order
// of a group. The transports of one channel connect these ranks with each other, apart from those
// of other channels. May be called again for a channel whose transport is gone.
using LendTransport =
    std::function<std::unique_ptr<Transport>(int channel, const std::vector<int>& ranks)>;

}  // namespace strata::comm
