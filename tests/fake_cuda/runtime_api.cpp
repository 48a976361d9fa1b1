// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA runtime over the fake device.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/fake_cuda/fake_device.h"

namespace {

using namespace fake_cuda;  // NOLINT: the functions below are outside of any namespace

using HostKind = Device::HostKind;

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

Device& device() {
  return Device::instance();
}

cudaError_t keep(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

// What a call returns without doing anything; kSuccess: it may go on.
cudaError_t refusal(const char* name) {
  device().faults.count_call(name);
  if (device().faults.setting("driver") == 0) return keep(cudaErrorInsufficientDriver);
  if (device().faults.setting("devices") == 0) return keep(cudaErrorNoDevice);
  return keep(device().failure());
}

#define STRATA_FAKE_CALL()                                                     \
  if (const cudaError_t refused = refusal(__func__); refused != cudaSuccess) { \
    return refused;                                                            \
  }

Stream& stream_of(cudaStream_t stream) {
  return *reinterpret_cast<Stream*>(stream);
}

using SharedEvent = std::shared_ptr<EventState>;

SharedEvent& event_of(cudaEvent_t event) {
  return *reinterpret_cast<SharedEvent*>(event);
}

// The memory of one side of a copy as the copy finds it; null: it is not one range.
std::byte* side_of(const void* address, int64_t bytes, HostKind kind) {
  if (kind == HostKind::kDevice) return device().mapped(address, bytes);
  if (kind == HostKind::kPinned || kind == HostKind::kPageable) {
    return static_cast<std::byte*>(const_cast<void*>(address));
  }
  return nullptr;
}

}  // namespace

void fake_cuda::forget_last_error() {
  last_error = cudaSuccess;
}

void fake_cuda::start_kernel(cudaStream_t stream, std::function<void()> run) {
  const bool refused = device().faults.fails("launch");
  if (refused || !launch(stream, std::move(run))) keep(cudaErrorLaunchOutOfResources);
}

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  STRATA_FAKE_CALL();
  *count = static_cast<int>(device().faults.setting("devices"));
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  STRATA_FAKE_CALL();
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "Fake GPU %d", index);
  properties->totalGlobalMem = static_cast<size_t>(device().faults.setting("memory"));
  const auto compute = static_cast<int>(device().faults.setting("compute"));
  properties->major = compute / 10;
  properties->minor = compute % 10;
  properties->multiProcessorCount = 1;
  properties->integrated = properties->canUseHostPointerForRegisteredMem =
      static_cast<int>(device().faults.setting("unified"));
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  STRATA_FAKE_CALL();
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return cudaDriverGetVersion(version);
}

cudaError_t cudaSetDevice(int index) {
  STRATA_FAKE_CALL();
  const bool exists = index >= 0 && index < device().faults.setting("devices");
  if (exists) current_device = index;
  if (exists) device().make_context(index);
  return keep(exists ? cudaSuccess : cudaErrorInvalidDevice);
}

// The driver's only function that is asked for.
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  STRATA_FAKE_CALL();
  constexpr auto kState = +[](int index, unsigned* flags, int* is_active) {
    *flags = 0;
    *is_active = device().has_context(index) ? 1 : 0;
    return 0;
  };
  const bool is_known = std::strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0;
  *function = is_known ? reinterpret_cast<void*>(kState) : nullptr;
  *result = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* index) {
  STRATA_FAKE_CALL();
  *index = current_device;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  STRATA_FAKE_CALL();
  device().wait_idle(current_device);
  return keep(device().failure());
}

// Forgets the error, unless it stays with the device.
cudaError_t cudaGetLastError() {
  const cudaError_t stays = device().failure();
  const cudaError_t error = stays != cudaSuccess ? stays : last_error;
  last_error = cudaSuccess;
  return error;
}

const char* cudaGetErrorName(cudaError_t error) {
  static const std::map<cudaError_t, const char*> kNames = {
      {cudaErrorInvalidValue, "cudaErrorInvalidValue"},
      {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation"},
      {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver"},
      {cudaErrorNoDevice, "cudaErrorNoDevice"},
      {cudaErrorInvalidDevice, "cudaErrorInvalidDevice"},
      {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable"},
      {cudaErrorIllegalAddress, "cudaErrorIllegalAddress"},
      {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources"},
      {cudaErrorAssert, "cudaErrorAssert"},
      {cudaErrorUnknown, "cudaErrorUnknown"}};
  const auto found = kNames.find(error);
  return found == kNames.end() ? "an error of the fake device" : found->second;
}

const char* cudaGetErrorString(cudaError_t error) {
  thread_local std::string text;
  text = error == device().failure() ? device().failure_detail() : "";
  if (text.empty()) text = "fake error " + std::to_string(static_cast<int>(error));
  return text.c_str();
}

// --- memory -------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** address, size_t bytes) {
  STRATA_FAKE_CALL();
  return keep(device().allocate(address, bytes, current_device));
}

// Memory is given back after an error, too.
cudaError_t cudaFree(void* address) {
  const cudaError_t refused = refusal(__func__);
  const cudaError_t freed = device().release(address);
  return refused != cudaSuccess ? refused : keep(freed);
}

cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  STRATA_FAKE_CALL();
  std::byte* mapped = device().mapped(address, static_cast<int64_t>(bytes));
  if (mapped == nullptr) return keep(cudaErrorInvalidValue);
  // Pages that go back to the system are zero again, and take no memory until they are touched.
  const bool has_pages = value == 0 && bytes % static_cast<size_t>(sysconf(_SC_PAGESIZE)) == 0;
  if (!has_pages || madvise(mapped, bytes, MADV_REMOVE) != 0) std::memset(mapped, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  STRATA_FAKE_CALL();
  *total = static_cast<size_t>(device().faults.setting("memory"));
  *free = *total - std::min(*total, device().used_bytes(current_device));
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  STRATA_FAKE_CALL();
  return keep(device().add_registered(address, bytes));
}

cudaError_t cudaHostUnregister(void* address) {
  const cudaError_t refused = refusal(__func__);
  const cudaError_t removed = device().remove_registered(address);
  return refused != cudaSuccess ? refused : keep(removed);
}

// As on a device: bytes of pageable memory are taken when the call is made, and are there when it
// returns.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind,
                            cudaStream_t stream) {
  STRATA_FAKE_CALL();
  if (device().faults.fails("copy")) return keep(cudaErrorInvalidValue);
  if (size == 0) return cudaSuccess;
  const auto bytes = static_cast<int64_t>(size);
  const HostKind to_kind = device().kind_of(to, bytes), from_kind = device().kind_of(from, bytes);
  std::byte* target = side_of(to, bytes, to_kind);
  const std::byte* source = side_of(from, bytes, from_kind);
  if (target == nullptr || source == nullptr) return keep(cudaErrorInvalidValue);
  const bool takes_pageable = from_kind == HostKind::kPageable;
  const bool gives_pageable = to_kind == HostKind::kPageable;
  if ((takes_pageable || gives_pageable) && device().faults.setting("pageable") == 0) {
    return keep(cudaErrorInvalidValue);
  }
  std::vector<std::byte> staged;
  if (takes_pageable) staged.assign(source, source + size);
  const Ranges ranges = {{static_cast<const std::byte*>(from), bytes, false},
                         {static_cast<const std::byte*>(to), bytes, true}};
  stream_of(stream).push("a copy", ranges, [=, staged = std::move(staged)] {
    if (device().faults.fails("copying")) return device().fail(cudaErrorECCUncorrectable, "");
    std::memcpy(target, staged.empty() ? source : staged.data(), size);
  });
  if (gives_pageable) stream_of(stream).wait_idle();
  return keep(device().failure());
}

// --- streams ------------------------------------------------------------------------------------

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  STRATA_FAKE_CALL();
  *least = *greatest = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  STRATA_FAKE_CALL();
  *stream = reinterpret_cast<cudaStream_t>(device().add_stream(current_device));
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cudaError_t refused = refusal(__func__);
  device().remove_stream(&stream_of(stream));
  return refused;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  STRATA_FAKE_CALL();
  stream_of(stream).wait_idle();
  return keep(device().failure());
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  STRATA_FAKE_CALL();
  stream_of(stream).wait_for(event_of(event));
  return cudaSuccess;
}

// --- events -------------------------------------------------------------------------------------

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  STRATA_FAKE_CALL();
  *event = reinterpret_cast<cudaEvent_t>(new SharedEvent(std::make_shared<EventState>()));
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const cudaError_t refused = refusal(__func__);
  delete &event_of(event);
  return refused;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  STRATA_FAKE_CALL();
  stream_of(stream).record(event_of(event));
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  STRATA_FAKE_CALL();
  EventState& state = *event_of(event);
  const std::lock_guard lock(state.mu);
  return state.completed == state.recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  STRATA_FAKE_CALL();
  const SharedEvent state = event_of(event);
  {
    std::unique_lock lock(state->mu);
    state->changed.wait(lock, [&] { return state->completed == state->recorded; });
  }
  return keep(device().failure());
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  STRATA_FAKE_CALL();
  const SharedEvent first = event_of(from), last = event_of(to);
  double times_s[2] = {};
  for (const auto& [state, time_s] : {std::pair{first, &times_s[0]}, {last, &times_s[1]}}) {
    const std::lock_guard lock(state->mu);
    if (state->recorded == 0) return keep(cudaErrorInvalidResourceHandle);
    if (state->completed != state->recorded) return cudaErrorNotReady;
    *time_s = state->time_s;
  }
  *milliseconds = static_cast<float>(1e3 * (times_s[1] - times_s[0]));
  return cudaSuccess;
}

}  // extern "C"

// For callers beside the plugin, who have streams of their own; null for other names.
extern "C" __attribute__((visibility("default"))) void* fake_cuda_function(const char* name) {
  static const std::map<std::string, void*> kFunctions = {
      {"cudaSetDevice", reinterpret_cast<void*>(cudaSetDevice)},
      {"cudaGetDevice", reinterpret_cast<void*>(cudaGetDevice)},
      {"cudaMemcpyAsync", reinterpret_cast<void*>(cudaMemcpyAsync)},
      {"cudaStreamCreateWithFlags", reinterpret_cast<void*>(cudaStreamCreateWithFlags)},
      {"cudaStreamDestroy", reinterpret_cast<void*>(cudaStreamDestroy)}};
  const auto found = kFunctions.find(name);
  return found == kFunctions.end() ? nullptr : found->second;
}
