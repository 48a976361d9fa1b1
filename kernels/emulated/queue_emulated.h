// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/buffers.h"
#include "kernels/emulated/device_emulated.h"
#include "kernels/emulated/memory_emulated.h"
#include "kernels/parallel.h"

namespace strata::kernels::emulated {

// The progress of a queue. It lives as long as the device, because other queues may wait for a
// queue that ends.
struct QueueState {
  QueueState(const char* name_in, int depth)
      : name(name_in), spans(static_cast<size_t>(2 * depth)), clocks(spans.size()) {}

  bool reached(int64_t count) const { return completed >= count || failure || stopping; }

  const std::string name;
  std::mutex mu;
  std::condition_variable changed;
  int64_t completed = 0;           // Guarded by mu, like all below
  std::vector<Queue::Span> spans;  // by op, modulo their count
  // By op, modulo their count: how many ops of each queue were known to have completed when the op
  // was closed.
  std::vector<std::map<const QueueState*, int64_t>> clocks;
  std::exception_ptr failure;
  bool woken = false;
  bool stopping = false;
};

// How many ops of each queue are known to have completed.
using Clock = std::map<const QueueState*, int64_t>;

// What all queues of a device share. Threads: any.
struct Shared {
  Shared(const Backend& backend_in, const EmulatedOptions& options_in)
      : backend(backend_in), options(options_in), parallel(options_in.threads) {}

  struct Outstanding {
    const QueueState* queue;
    int64_t number;  // in its queue
    std::string name;
    std::vector<MemoryRange> ranges;
  };

  // Registers an op that is issued by a queue whose clock is `known`. Throws Error{kDevice} when it
  // conflicts with an op in progress on another queue: both touch the same bytes, one of them
  // writes, and no wait orders the two.
  void enter(Outstanding op, const Clock& known);
  void leave(const QueueState& queue, int64_t number);
  void leave_all(const QueueState& queue);
  QueueState& add(const char* name, int depth);

  // Constant after construction
  const Backend& backend;
  const EmulatedOptions options;
  Parallel parallel;
  AddressSpace space;

  std::mutex mu;
  std::deque<Outstanding> outstanding;  // Guarded by mu
  std::deque<QueueState> states;        // Guarded by mu; elements never move
};

// What an op may touch.
struct OpRanges {
  std::string op;
  std::string queue;
  std::vector<MemoryRange> ranges;

  // Throws Error{kDevice} unless the op may touch the bytes. Adjacent ranges count as one.
  void check(const void* pointer, int64_t bytes, bool written) const;
};

// A queue that is a thread: it runs closures in the order in which they were issued.
class EmulatedQueue : public Queue {
 public:
  EmulatedQueue(Shared& shared, const char* name, int depth);
  ~EmulatedQueue() override;

  void begin(const char* name, std::span<const MemoryRange> ranges) override;
  int64_t end() override;
  void wait(Queue& other, int64_t count) override;
  void let_wait(void* stream, int64_t count) override;
  void wait_for(void* stream) override;
  void copy(void* to, const void* from, int64_t bytes) override;
  void call(std::function<void(const HostView&)> function);
  int64_t completed() override;
  void sleep(int64_t count, double timeout_s) override;
  void wake() override;
  Span span_of(int64_t count) override;

  // Checks an op's buffers, translates them to the second mapping, and queues the op.
  template <auto Member, typename Op>
  void issue(const Op& given) {
    Op op = given;
    each_buffer(op, [&](auto*& pointer, int64_t bytes, bool written) {
      using Pointer = std::remove_reference_t<decltype(pointer)>;
      if (pointer == nullptr || bytes == 0) return;
      pointer = static_cast<Pointer>(translate(pointer, bytes, written));
    });
    push([this, op] { shared_.parallel.run([&] { (shared_.backend.*Member)(op); }); });
  }

 private:
  using Command = std::function<void()>;

  void push(Command command);
  void run();
  void execute(Command& command);
  void close_op();
  void delay();
  void* translate(const void* pointer, int64_t bytes, bool written) const;
  void await_other(QueueState& other, int64_t count);

  Shared& shared_;
  QueueState& state_;

  // Owned by the thread that issues
  OpRanges open_;
  int64_t closed_ = 0;
  Clock known_;

  // Owned by the thread of the queue
  std::mt19937_64 random_;
  double op_begin_s_ = 0;

  std::deque<Command> commands_;  // Guarded by the mutex of the state
  std::jthread thread_;
};

}  // namespace strata::kernels::emulated
