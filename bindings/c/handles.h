// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "bindings/c/strata.h"
#include "engine/engine.h"

// The boundary between C and C++: what a call may throw becomes a status and a text, handles are
// checked before they are used, structs are read and written by their struct_size.
namespace strata::c {

// A failure that only this boundary has.
class CallError : public std::runtime_error {
 public:
  CallError(strata_status status, const std::string& text)
      : std::runtime_error(text), status_(status) {}
  strata_status status() const { return status_; }

 private:
  strata_status status_;
};

// Stores the text of the exception in flight for the calling thread, and returns its status.
strata_status status_of_exception() noexcept;

// Throws CallError in a child of a process that had opened a handle.
void require_same_process(const char* call);

template <typename Body>
strata_status guarded(const char* call, const Body& body) noexcept {
  try {
    require_same_process(call);
    body();
    return STRATA_OK;
  } catch (...) {
    return status_of_exception();
  }
}

// What a handle stands for. Calls come one at a time.
class Object {
 public:
  Object() = default;
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
};

// Handles are numbers in the shape of pointers, never used twice and never dereferenced, so that a
// closed one is known as such. `kind` is "store", "train" or "operation".
const void* add_handle(std::unique_ptr<Object> object, const char* kind);
std::unique_ptr<Object> remove_handle(const void* handle, const char* kind, const char* call);

// Calls look(object) for a handle that several threads may use at once; `look` must not wait or
// throw. Throws as Claim.
void look_at(const void* handle, const char* kind, const char* call,
             const std::function<void(Object&)>& look);

// On the thread of an operation that was cancelled: throws CallError (_INTERRUPTED).
void require_not_cancelled(const char* call);

// Sets `stop` when the operation on whose thread this is made is cancelled, also when it was
// cancelled before; on other threads it does nothing. `stop` must outlive it.
class StopOnCancel {
 public:
  explicit StopOnCancel(std::atomic<bool>& stop);
  ~StopOnCancel();
  StopOnCancel(const StopOnCancel&) = delete;
  StopOnCancel& operator=(const StopOnCancel&) = delete;

 private:
  std::atomic<bool>* before_ = nullptr;  // of a call that made this one in its callback
};

// The use of a handle by one call. Throws CallError for a handle that is not open, is of another
// kind, or is in use.
class Claim {
 public:
  Claim(const void* handle, const char* kind, const char* call);
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  Object& object() const { return *object_; }

 private:
  const void* handle_;
  Object* object_;
};

// Runs body(object) with the object of a handle.
template <typename T, typename Handle, typename Body>
strata_status with(Handle* handle, const char* call, const Body& body) noexcept {
  return guarded(call, [&] {
    require_not_cancelled(call);
    const Claim claim(handle, T::kKind, call);
    body(static_cast<T&>(claim.object()));
  });
}

// The same for calls that give something back, which a cancelled operation may make too.
template <typename T, typename Handle, typename Body>
strata_status end_with(Handle* handle, const char* call, const Body& body) noexcept {
  return guarded(call, [&] {
    const Claim claim(handle, T::kKind, call);
    body(static_cast<T&>(claim.object()));
  });
}

template <typename T, typename Handle>
strata_status close(Handle* handle, const char* call) noexcept {
  return guarded(call, [&] {
    if (handle != nullptr) remove_handle(handle, T::kKind, call);
  });
}

// Throws Error (kUsage) for a null pointer.
void require_given(const void* pointer, const char* call, const char* name);

// The size of a caller's struct in an older version of the header, where that was smaller.
template <typename T>
inline constexpr size_t kOlderSize = sizeof(T);
template <>
inline constexpr size_t kOlderSize<strata_update> = offsetof(strata_update, gradient_scale);

struct StructSize {
  size_t bytes;
  size_t older;
};

// The members of a caller's struct that the library knows; those that an older version lacks are 0.
// Throws Error (kConfig) for a struct_size that is too small, or where members that the library
// does not know are not 0.
void read_bytes(const void* given, void* known, StructSize size, const char* call,
                const char* name);
// Checks before the call's work that a result can be written.
void require_writable(const void* out, size_t bytes, const char* call, const char* name);

template <typename T>
T read_struct(const T* given, const char* call, const char* name) {
  T known;
  read_bytes(given, &known, {.bytes = sizeof known, .older = kOlderSize<T>}, call, name);
  return known;
}

// One item of the caller's array, whose members may be larger than the library's.
template <typename T>
T item_of(const T* items, size_t index, const char* call, const char* name) {
  size_t stride = 0;
  std::memcpy(&stride, items, sizeof stride);
  const auto* at = reinterpret_cast<const char*>(items) + index * stride;
  return read_struct(reinterpret_cast<const T*>(at), call, name);
}

// A result that the caller may leave out. Made before the work, so that a wrong struct changes
// nothing.
template <typename T>
class Out {
 public:
  Out(T* out, const char* call, const char* name) : out_(out) {
    if (out != nullptr) require_writable(out, sizeof(T), call, name);
  }
  void set(T value) const {
    if (out_ == nullptr) return;
    value.struct_size = out_->struct_size;
    std::memcpy(out_, &value, sizeof value);
  }

 private:
  T* const out_;
};

template <typename Handle>
Handle* as_handle(const void* handle) {
  return static_cast<Handle*>(const_cast<void*>(handle));
}

strata_step_result result_of(const StepResult& result);

// Writes the plan that make() returns, whose texts the handle keeps. Throws Error (kDoesNotFit)
// when no plan fits, after it has written that.
template <typename Make>
void report_plan(strata_plan* plan, const char* call, const Make& make) {
  const Out<strata_plan> out(plan, call, "plan");
  const PlanText& text = make();
  out.set({.struct_size = 0,
           .fits = text.fits,
           .reserved = 0,
           .text = text.text.c_str(),
           .json = text.json.c_str()});
  if (!text.fits) throw Error(ErrorCode::kDoesNotFit, text.text);
}

Sinks sinks_of(const strata_sinks* given, const char* call);

inline const char* text_or_empty(const char* text) {
  return text == nullptr ? "" : text;
}

}  // namespace strata::c
