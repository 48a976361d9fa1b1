// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernels/emulated/memory_emulated.h"
#include "tests/fake_cuda/faults.h"

// A CUDA device that runs on the host, behind the functions of the CUDA runtime and of cuBLASLt
// (runtime_api.cpp, cublaslt_api.cpp), so that the host code of kernels/cuda/device runs on any
// machine. Kernels are the host twins of kernels/cuda/ops.
//
// What it finds: host code that reads device memory (the address is not mapped for it); copies and
// memory of wrong sizes; host memory that is freed, or no more registered, while a copy uses it;
// commands of two streams on the same bytes that no event orders, when they are in flight together;
// after an error, code that goes on.
namespace fake_cuda {

// Bytes that a command reads or writes, by the addresses that callers know.
struct Range {
  const std::byte* begin = nullptr;
  int64_t bytes = 0;
  bool written = false;
  bool overlaps(const Range& other) const {
    return begin < other.begin + other.bytes && other.begin < begin + bytes;
  }
};
using Ranges = std::vector<Range>;

// By stream: how many of its commands are over before what has this clock.
using Clock = std::map<int, int64_t>;

// The last record of an event, shared with the commands that wait for it.
struct EventState {
  std::mutex mu;
  std::condition_variable changed;
  int64_t recorded = 0;  // Guarded by mu, like all below
  int64_t completed = 0;
  double time_s = 0;
  Clock clock;  // of the last record
};

class Device;

// A stream: a thread that runs commands in order, each after a drawn delay.
class Stream {
 public:
  Stream(Device& device, int id, int gpu);
  ~Stream();  // waits until all commands are over

  void push(std::string name, const Ranges& ranges, std::function<void()> run);
  void record(const std::shared_ptr<EventState>& event);
  void wait_for(const std::shared_ptr<EventState>& event);
  void wait_idle();
  int gpu() const { return gpu_; }

 private:
  struct Command {
    std::string name;
    std::function<void()> run;
    int64_t number = 0;  // in the stream
    bool is_bookkeeping = false;
  };

  int64_t add(Command command);
  void run();
  void delay();

  Device& device_;
  const int id_;
  const int gpu_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Command> commands_;  // Guarded by mu_, like all below
  int64_t pushed_ = 0;
  int64_t done_ = 0;
  bool stopping_ = false;
  Clock clock_;
  std::mt19937_64 random_;  // Owned by the thread
  std::thread thread_;
};

// All devices of the process, which share one memory here. Allocations and streams are of one of
// them, a `gpu`. Threads: any.
class Device {
 public:
  static Device& instance();  // never destroyed

  Faults faults;

  // The error that all calls return from now on.
  void fail(cudaError_t error, const std::string& detail);
  cudaError_t failure() const;
  std::string failure_detail() const;
  void reset(const std::string& configuration);
  void hang();  // of a kernel, until let_go()
  void let_go();

  // Of the devices that were current once, until reset(); a call counts as "context N".
  void make_context(int gpu);
  bool has_context(int gpu) const;

  cudaError_t allocate(void** address, size_t bytes, int gpu);
  cudaError_t release(void* address);
  size_t used_bytes(int gpu) const;
  // Where the bytes are mapped for kernels; null unless they lie in one allocation.
  std::byte* mapped(const void* address, int64_t bytes) const;
  // The same, where the allocation is of that device.
  std::byte* mapped_on(int gpu, const void* address, int64_t bytes) const;

  cudaError_t add_registered(void* address, size_t bytes);
  cudaError_t remove_registered(void* address);
  enum class HostKind { kDevice, kDeviceOverrun, kPinned, kPinnedPart, kPageable };
  HostKind kind_of(const void* address, int64_t bytes) const;

  Stream* add_stream(int gpu);
  void remove_stream(Stream* stream);
  void wait_idle(int gpu);

  // Commands in flight. enter() fails the device when no event orders two that conflict.
  void enter(int stream, int64_t number, const std::string& name, const Ranges& ranges,
             const Clock& known);
  void leave(int stream, int64_t number);

 private:
  struct Flight {
    int stream;
    int64_t number;
    std::string name;
    Ranges ranges;
  };
  struct Allocation {
    std::unique_ptr<strata::kernels::DeviceMemory> memory;
    int64_t bytes;
    int gpu;
  };
  bool in_flight(const Range& range) const;
  const Allocation* allocation_of(const void* address, int64_t bytes) const;

  strata::kernels::emulated::AddressSpace space_;
  mutable std::mutex mu_;
  std::map<const std::byte*, Allocation> memory_;  // Guarded by mu_, like all below
  std::map<const std::byte*, int64_t> registered_;
  std::list<std::unique_ptr<Stream>> streams_;
  std::list<Flight> flights_;
  int next_stream_ = 0;
  std::condition_variable let_go_;
  int64_t times_let_go_ = 0;
  std::set<int> contexts_;
  cudaError_t failure_ = cudaSuccess;
  std::string detail_;
};

// The ranges of the op that this thread issues, for its kernels and products.
class OpScope {
 public:
  explicit OpScope(const Ranges& ranges);
  ~OpScope();
  static const Ranges& ranges();
};

// Starts a kernel of the op in progress: `run` is its host twin. False when the device has failed.
bool launch(cudaStream_t stream, std::function<void()> run);

// What cudaGetLastError() would say on this thread.
void forget_last_error();

// The same as <<<>>> does it: cudaGetLastError() says that it was refused.
void start_kernel(cudaStream_t stream, std::function<void()> run);

}  // namespace fake_cuda
