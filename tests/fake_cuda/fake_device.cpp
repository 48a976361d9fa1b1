// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/fake_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"

namespace fake_cuda {
namespace {

thread_local const Ranges* op_ranges = nullptr;

constexpr int kGarbage = 0xA5;  // what new memory holds
constexpr size_t kGarbageBytes = size_t{64} << 20;

}  // namespace

OpScope::OpScope(const Ranges& ranges) {
  op_ranges = &ranges;
}
OpScope::~OpScope() {
  op_ranges = nullptr;
}
const Ranges& OpScope::ranges() {
  static const Ranges kNone;
  return op_ranges != nullptr ? *op_ranges : kNone;
}

Device& Device::instance() {
  static Device& one = *[] {
    auto* made = new Device;
    const char* text = std::getenv("STRATA_FAKE_CUDA");
    made->faults.configure(text != nullptr ? text : "");
    return made;
  }();
  return one;
}

void Device::fail(cudaError_t error, const std::string& detail) {
  const std::lock_guard lock(mu_);
  if (failure_ != cudaSuccess) return;
  failure_ = error;
  detail_ = detail;
}

cudaError_t Device::failure() const {
  const std::lock_guard lock(mu_);
  return failure_;
}

std::string Device::failure_detail() const {
  const std::lock_guard lock(mu_);
  return detail_;
}

void Device::reset(const std::string& configuration) {
  faults.configure(configuration);
  const std::lock_guard lock(mu_);
  failure_ = cudaSuccess;
  detail_.clear();
  flights_.clear();
  contexts_.clear();
}

void Device::hang() {
  std::unique_lock lock(mu_);
  const int64_t before = times_let_go_;
  let_go_.wait(lock, [&] { return times_let_go_ > before; });
}

void Device::let_go() {
  const std::lock_guard lock(mu_);
  ++times_let_go_;
  let_go_.notify_all();
}

cudaError_t Device::allocate(void** address, size_t bytes, int gpu) {
  if (bytes == 0) return cudaErrorInvalidValue;
  const auto limit = static_cast<size_t>(faults.setting("memory"));
  if (faults.fails("malloc") || used_bytes(gpu) + bytes > limit) return cudaErrorMemoryAllocation;
  try {
    auto memory = strata::kernels::emulated::allocate(space_, static_cast<int64_t>(bytes));
    *address = memory->data();
    std::memset(space_.mapped(*address), kGarbage, std::min(bytes, kGarbageBytes));
    const std::lock_guard lock(mu_);
    memory_[static_cast<std::byte*>(*address)] = {std::move(memory), static_cast<int64_t>(bytes),
                                                  gpu};
  } catch (const strata::Error&) {
    return cudaErrorMemoryAllocation;
  }
  return cudaSuccess;
}

void Device::make_context(int gpu) {
  const std::lock_guard lock(mu_);
  if (contexts_.insert(gpu).second) faults.count_call(("context " + std::to_string(gpu)).c_str());
}

bool Device::has_context(int gpu) const {
  const std::lock_guard lock(mu_);
  return contexts_.contains(gpu);
}

cudaError_t Device::release(void* address) {
  if (address == nullptr) return cudaSuccess;
  int gpu = 0;
  {
    const std::lock_guard lock(mu_);
    const auto found = memory_.find(static_cast<std::byte*>(address));
    if (found == memory_.end()) return cudaErrorInvalidValue;
    gpu = found->second.gpu;
  }
  wait_idle(gpu);
  const std::lock_guard lock(mu_);
  return memory_.erase(static_cast<std::byte*>(address)) > 0 ? cudaSuccess : cudaErrorInvalidValue;
}

size_t Device::used_bytes(int gpu) const {
  const std::lock_guard lock(mu_);
  size_t bytes = 0;
  for (const auto& [address, memory] : memory_) {
    if (memory.gpu == gpu) bytes += static_cast<size_t>(memory.bytes);
  }
  return bytes;
}

const Device::Allocation* Device::allocation_of(const void* address, int64_t bytes) const {
  const auto* at = static_cast<const std::byte*>(address);
  auto found = memory_.upper_bound(at);
  if (found == memory_.begin()) return nullptr;
  --found;
  return at + bytes > found->first + found->second.bytes ? nullptr : &found->second;
}

std::byte* Device::mapped(const void* address, int64_t bytes) const {
  if (faults.setting("unified") != 0 && kind_of(address, bytes) == HostKind::kPinned) {
    return static_cast<std::byte*>(const_cast<void*>(address));
  }
  const std::lock_guard lock(mu_);
  if (allocation_of(address, bytes) == nullptr) return nullptr;
  return static_cast<std::byte*>(space_.mapped(address));
}

std::byte* Device::mapped_on(int gpu, const void* address, int64_t bytes) const {
  const std::lock_guard lock(mu_);
  const Allocation* const found = allocation_of(address, bytes);
  if (found == nullptr || found->gpu != gpu) return nullptr;
  return static_cast<std::byte*>(space_.mapped(address));
}

cudaError_t Device::add_registered(void* address, size_t bytes) {
  if (address == nullptr || bytes == 0) return cudaErrorInvalidValue;
  if (faults.fails("register")) return cudaErrorMemoryAllocation;
  if (kind_of(address, static_cast<int64_t>(bytes)) != HostKind::kPageable) {
    return cudaErrorHostMemoryAlreadyRegistered;
  }
  const std::lock_guard lock(mu_);
  registered_[static_cast<std::byte*>(address)] = static_cast<int64_t>(bytes);
  return cudaSuccess;
}

cudaError_t Device::remove_registered(void* address) {
  const std::lock_guard lock(mu_);
  const auto found = registered_.find(static_cast<std::byte*>(address));
  if (found == registered_.end()) return cudaErrorHostMemoryNotRegistered;
  const bool used = in_flight({found->first, found->second, true});
  registered_.erase(found);
  if (!used) return cudaSuccess;
  failure_ = cudaErrorAssert;
  detail_ = "host memory is unregistered while a copy uses it";
  return failure_;
}

bool Device::in_flight(const Range& range) const {
  return std::ranges::any_of(flights_, [&](const Flight& flight) {
    return std::ranges::any_of(flight.ranges,
                               [&](const Range& other) { return range.overlaps(other); });
  });
}

Device::HostKind Device::kind_of(const void* address, int64_t bytes) const {
  const Range range = {static_cast<const std::byte*>(address), bytes, false};
  const auto holds = [&](const std::byte* begin, int64_t size) {
    return begin <= range.begin && range.begin + range.bytes <= begin + size;
  };
  const std::lock_guard lock(mu_);
  for (const auto& [begin, memory] : memory_) {
    if (!range.overlaps({begin, memory.bytes, false})) continue;
    return holds(begin, memory.bytes) ? HostKind::kDevice : HostKind::kDeviceOverrun;
  }
  for (const auto& [begin, size] : registered_) {
    if (!range.overlaps({begin, size, false})) continue;
    return holds(begin, size) ? HostKind::kPinned : HostKind::kPinnedPart;
  }
  return HostKind::kPageable;
}

Stream* Device::add_stream(int gpu) {
  const std::lock_guard lock(mu_);
  streams_.push_back(std::make_unique<Stream>(*this, next_stream_++, gpu));
  return streams_.back().get();
}

void Device::remove_stream(Stream* stream) {
  std::unique_ptr<Stream> removed;  // ends after the lock: its last commands need the device
  const std::lock_guard lock(mu_);
  const auto found = std::ranges::find(streams_, stream, &std::unique_ptr<Stream>::get);
  if (found == streams_.end()) return;
  removed = std::move(*found);
  streams_.erase(found);
}

void Device::wait_idle(int gpu) {
  std::vector<Stream*> all;
  {
    const std::lock_guard lock(mu_);
    for (const auto& stream : streams_) {
      if (stream->gpu() == gpu) all.push_back(stream.get());
    }
  }
  for (Stream* stream : all) stream->wait_idle();
}

void Device::enter(int stream, int64_t number, const std::string& name, const Ranges& ranges,
                   const Clock& known) {
  const std::lock_guard lock(mu_);
  for (const Flight& other : flights_) {
    const auto at = known.find(other.stream);
    if (other.stream == stream || (at != known.end() && at->second >= other.number)) continue;
    for (const Range& theirs : other.ranges) {
      for (const Range& ours : ranges) {
        if (!ours.overlaps(theirs) || !(ours.written || theirs.written)) continue;
        if (failure_ != cudaSuccess) return;
        failure_ = cudaErrorAssert;
        detail_ = "no event orders " + name + " of stream " + std::to_string(stream) + " and " +
                  other.name + " of stream " + std::to_string(other.stream) +
                  ", which touch the same bytes";
        return;
      }
    }
  }
  flights_.push_back({stream, number, name, ranges});
}

void Device::leave(int stream, int64_t number) {
  const std::lock_guard lock(mu_);
  flights_.remove_if(
      [&](const Flight& flight) { return flight.stream == stream && flight.number == number; });
}

}  // namespace fake_cuda

extern "C" void fake_cuda_count_range(const char* name) {
  fake_cuda::Device::instance().faults.count_call((std::string("range ") + name).c_str());
}

// For tests that load the plugin: the kernel that hangs ends.
extern "C" __attribute__((visibility("default"))) void fake_cuda_let_go() {
  fake_cuda::Device::instance().let_go();
}

// Begins anew with other settings and faults.
extern "C" __attribute__((visibility("default"))) void fake_cuda_configure(const char* text) {
  fake_cuda::forget_last_error();
  fake_cuda::Device::instance().reset(text);
}

// How often a function of the API was called since then.
extern "C" __attribute__((visibility("default"))) int64_t fake_cuda_calls(const char* name) {
  return fake_cuda::Device::instance().faults.calls(name);
}
