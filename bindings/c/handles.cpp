// SPDX-License-Identifier: Apache-2.0
#include "bindings/c/handles.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>

namespace strata::c {
namespace {

constexpr size_t kStructMost = 4096;  // far beyond any version; a size that was not set is larger

struct Entry {
  std::unique_ptr<Object> object;
  const char* kind = "";
  bool busy = false;
};

struct Registry {
  std::mutex mu;
  std::unordered_map<uintptr_t, Entry> entries;  // Guarded by mu
  uintptr_t next = 1;                            // Guarded by mu
};

// Never destroyed: when the process ends with open handles, their threads may still use them.
Registry& registry() {
  static Registry& one = *new Registry;
  return one;
}

std::atomic<pid_t> process = 0;  // that opened the first handle

thread_local std::string error_text;

constexpr uintptr_t kStep = 16;  // of handles' numbers, which look like aligned pointers

uintptr_t key_of(const void* handle) {
  return reinterpret_cast<uintptr_t>(handle);
}

// The registry must be locked.
Entry& open_entry(Registry& all, const void* handle, const char* kind, const char* call) {
  const auto found = all.entries.find(key_of(handle));
  if (found == all.entries.end()) {
    const bool was_open = key_of(handle) % kStep == 0 && key_of(handle) / kStep > 0 &&
                          key_of(handle) / kStep < all.next;
    throw CallError(STRATA_ERROR_HANDLE,
                    fmt::format("{}: handle: {} (pass one that strata_{}_{}() made)", call,
                                handle == nullptr ? "it is null"
                                : was_open        ? "it was closed"
                                                  : "it is not a handle of this library",
                                kind, kind == std::string_view("operation") ? "start" : "open"));
  }
  if (std::string_view(found->second.kind) != kind) {
    throw CallError(STRATA_ERROR_HANDLE,
                    fmt::format("{}: handle: it is a strata_{} (pass a strata_{})", call,
                                found->second.kind, kind));
  }
  if (found->second.busy) {
    throw CallError(STRATA_ERROR_BUSY,
                    fmt::format("{}: handle: another call on it is running (wait for it; a "
                                "callback must not call on its own handle)",
                                call));
  }
  return found->second;
}

strata_status keep(strata_status status, const char* text) noexcept {
  try {
    error_text = text;
  } catch (...) {
    error_text.clear();
  }
  return status;
}

strata_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return STRATA_ERROR_USAGE;
    case ErrorCode::kConfig:
      return STRATA_ERROR_CONFIG;
    case ErrorCode::kDoesNotFit:
      return STRATA_ERROR_DOES_NOT_FIT;
    case ErrorCode::kIo:
      return STRATA_ERROR_IO;
    case ErrorCode::kCorrupt:
      return STRATA_ERROR_CORRUPT;
    case ErrorCode::kNumeric:
      return STRATA_ERROR_NUMERIC;
    case ErrorCode::kPeer:
      return STRATA_ERROR_PEER;
    case ErrorCode::kDevice:
      return STRATA_ERROR_DEVICE;
    case ErrorCode::kDeadline:
      return STRATA_ERROR_DEADLINE;
    case ErrorCode::kInterrupted:
      return STRATA_ERROR_INTERRUPTED;
  }
  return STRATA_ERROR_INTERNAL;
}

size_t struct_size_of(const void* given, StructSize known, const char* call, const char* name) {
  require_given(given, call, name);
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size == known.older || (size >= known.bytes && size <= kStructMost)) return size;
  throw Error(ErrorCode::kConfig,
              fmt::format("{}: {}: struct_size is {}, but the struct has {} bytes (set it to "
                          "sizeof of the struct, and compile with the header of this library)",
                          call, name, size, known.bytes));
}

}  // namespace

strata_status status_of_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return keep(status_of(error.code()), error.what());
  } catch (const CallError& error) {
    return keep(error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return keep(STRATA_ERROR_MEMORY, "memory: the system has none left (lower host_memory)");
  } catch (const std::exception& error) {
    return keep(STRATA_ERROR_INTERNAL, error.what());
  } catch (...) {
    return keep(STRATA_ERROR_INTERNAL, "a callback threw an exception (return a number instead)");
  }
}

void require_same_process(const char* call) {
  const pid_t opened = process.load();
  if (opened == 0 || opened == getpid()) return;
  throw CallError(STRATA_ERROR_FORKED,
                  fmt::format("{}: this process is a fork of one that has opened a handle (fork "
                              "before the first handle is opened, or call exec in the child)",
                              call));
}

const void* add_handle(std::unique_ptr<Object> object, const char* kind) {
  pid_t none = 0;
  process.compare_exchange_strong(none, getpid());
  Registry& all = registry();
  const std::lock_guard lock(all.mu);
  const uintptr_t key = all.next * kStep;
  all.entries.emplace(key, Entry{std::move(object), kind});
  ++all.next;
  return reinterpret_cast<const void*>(key);
}

std::unique_ptr<Object> remove_handle(const void* handle, const char* kind, const char* call) {
  Registry& all = registry();
  const std::lock_guard lock(all.mu);
  std::unique_ptr<Object> object = std::move(open_entry(all, handle, kind, call).object);
  all.entries.erase(key_of(handle));
  return object;
}

void look_at(const void* handle, const char* kind, const char* call,
             const std::function<void(Object&)>& look) {
  Registry& all = registry();
  const std::lock_guard lock(all.mu);
  look(*open_entry(all, handle, kind, call).object);
}

Claim::Claim(const void* handle, const char* kind, const char* call) : handle_(handle) {
  Registry& all = registry();
  const std::lock_guard lock(all.mu);
  Entry& entry = open_entry(all, handle, kind, call);
  entry.busy = true;
  object_ = entry.object.get();
}

Claim::~Claim() {
  Registry& all = registry();
  const std::lock_guard lock(all.mu);
  all.entries.at(key_of(handle_)).busy = false;
}

void require_given(const void* pointer, const char* call, const char* name) {
  if (pointer != nullptr) return;
  throw Error(ErrorCode::kUsage, fmt::format("{}: {}: it is null (pass a value)", call, name));
}

void read_bytes(const void* given, void* known, StructSize of_known, const char* call,
                const char* name) {
  const size_t size = struct_size_of(given, of_known, call, name);
  const size_t bytes = of_known.bytes;
  std::memset(known, 0, bytes);
  std::memcpy(known, given, std::min(size, bytes));
  const auto* all = static_cast<const unsigned char*>(given);
  for (size_t i = bytes; i < size; ++i) {
    if (all[i] == 0) continue;
    throw Error(ErrorCode::kConfig,
                fmt::format("{}: {}: it sets members that this version of the library does not "
                            "know (leave them 0, or use a newer library)",
                            call, name));
  }
}

void require_writable(const void* out, size_t bytes, const char* call, const char* name) {
  struct_size_of(out, {.bytes = bytes, .older = bytes}, call, name);
}

strata_step_result result_of(const StepResult& result) {
  return {.struct_size = 0,
          .step = result.step,
          .loss = result.loss,
          .grad_norm = result.grad_norm,
          .applied = result.applied,
          .left_out = static_cast<int32_t>(result.left_out)};
}

Sinks sinks_of(const strata_sinks* given, const char* call) {
  Sinks sinks;
  if (given == nullptr) return sinks;
  const strata_sinks read = read_struct(given, call, "sinks");
  if (read.log != nullptr) {
    sinks.log = [read](LogLevel level, std::string_view line) {
      read.log(read.context, level == LogLevel::kWarning ? 1 : 0, std::string(line).c_str());
    };
  }
  if (read.hang != nullptr) {
    sinks.hang = [read](const Error& error) { read.hang(read.context, error.what()); };
  }
  if (read.hang_after_s != 0) sinks.hang_after_s = read.hang_after_s;
  return sinks;
}

}  // namespace strata::c

const char* strata_version(void) {
  return STRATA_VERSION;
}

const char* strata_error_text(void) {
  return strata::c::error_text.c_str();
}

const char* strata_status_name(strata_status status) {
  static constexpr const char* kNames[] = {"STRATA_OK",
                                           "STRATA_ERROR_USAGE",
                                           "STRATA_ERROR_CONFIG",
                                           "STRATA_ERROR_DOES_NOT_FIT",
                                           "STRATA_ERROR_IO",
                                           "STRATA_ERROR_CORRUPT",
                                           "STRATA_ERROR_NUMERIC",
                                           "STRATA_ERROR_PEER",
                                           "STRATA_ERROR_DEVICE",
                                           "STRATA_ERROR_DEADLINE",
                                           "STRATA_ERROR_INTERRUPTED",
                                           "STRATA_ERROR_HANDLE",
                                           "STRATA_ERROR_BUSY",
                                           "STRATA_ERROR_FORKED",
                                           "STRATA_ERROR_MEMORY",
                                           "STRATA_ERROR_INTERNAL"};
  return status >= 0 && status <= STRATA_ERROR_INTERNAL ? kNames[status] : "unknown status";
}
