// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "engine/base/check.h"
#include "kernels/issue_table.h"

namespace strata::kernels {
namespace {

class HostQueue : public Queue {
 public:
  explicit HostQueue(const Backend& backend) : backend_(backend) {}

  void begin(const char*, std::span<const MemoryRange>) override {}
  int64_t end() override { return ++count_; }
  void wait(Queue&, int64_t) override {}
  void let_wait(void*, int64_t) override {}
  void wait_for(void*) override {}
  void copy(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  int64_t completed() override { return count_; }
  void sleep(int64_t, double) override {}
  void wake() override {}
  Span span_of(int64_t) override { return {}; }

  const Backend& backend() const { return backend_; }

 private:
  const Backend& backend_;
  int64_t count_ = 0;
};

template <auto Member>
struct RunAtOnce {
  using Op = typename OpOf<decltype(Member)>::type;
  static void op(Queue& queue, const Op& op) {
    (static_cast<HostQueue&>(queue).backend().*Member)(op);
  }
};

class HostDevice : public Device {
 public:
  HostDevice(const Backend& backend, int threads)
      : backend_(backend),
        description_{.name = backend.name, .kernels = backend.kernels, .threads = threads} {}
  const DeviceDescription& description() const override { return description_; }
  const DeviceOps& ops() const override {
    static constexpr DeviceOps kOps = make_issue_table<RunAtOnce>("host");
    return kOps;
  }
  std::unique_ptr<DeviceMemory> allocate(int64_t) override {
    STRATA_CHECK(!"device and host are one tier here");
    return nullptr;
  }
  std::unique_ptr<Queue> make(const QueueOptions&) override {
    return std::make_unique<HostQueue>(backend_);
  }

 private:
  const Backend& backend_;
  const DeviceDescription description_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(const Backend& backend, int threads) {
  return std::make_unique<HostDevice>(backend, threads);
}

}  // namespace strata::kernels
