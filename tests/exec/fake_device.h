// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <tuple>
#include <type_traits>
#include <typeindex>
#include <vector>

#include "kernels/issue_table.h"

// A device with memory of its own that computes nothing and says how long it took.
namespace strata::test {

struct FakeTimes {
  double op_s = 0;                   // of each op of a queue
  double product_flops_per_s = 1e9;  // of forward products; other kernels take no time
  double copy_bytes_per_s = 1e9;
  double load_s = 0;  // of the first run of each kernel, and of each shape of a forward product
};

class FakeQueue : public kernels::Queue {
 public:
  FakeQueue(const FakeTimes& times, std::set<std::tuple<std::type_index, int64_t>>& loaded)
      : times_(times), loaded_(loaded) {}

  void begin(const char*, std::span<const kernels::MemoryRange>) override { open_s_ = times_.op_s; }
  int64_t end() override {
    spans_.push_back({now_s_, now_s_ + open_s_});
    now_s_ += open_s_;
    return completed();
  }
  void wait(Queue&, int64_t) override {}
  void let_wait(void*, int64_t) override {}
  void wait_for(void*) override {}
  void copy(void*, const void*, int64_t bytes) override {
    open_s_ += static_cast<double>(bytes) / times_.copy_bytes_per_s;
  }
  int64_t completed() override { return std::ssize(spans_); }
  void sleep(int64_t, double) override {}
  void wake() override {}
  Span span_of(int64_t count) override { return spans_.at(static_cast<size_t>(count - 1)); }

  template <typename Op>
  void issue(const Op& op) {
    int64_t shape = 0;
    if constexpr (std::is_same_v<Op, kernels::MatMulForward>) {
      shape = op.rows * op.outputs * op.inputs;
      open_s_ += 2.0 * static_cast<double>(shape) / times_.product_flops_per_s;
    }
    if (loaded_.insert({typeid(Op), shape}).second) open_s_ += times_.load_s;
  }

 private:
  const FakeTimes times_;
  std::set<std::tuple<std::type_index, int64_t>>& loaded_;  // of the device
  double now_s_ = 0;
  double open_s_ = 0;
  std::vector<Span> spans_;
};

template <auto Member>
struct FakeIssue {
  using Op = typename kernels::OpOf<decltype(Member)>::type;
  static void op(kernels::Queue& queue, const Op& op) { static_cast<FakeQueue&>(queue).issue(op); }
};

// It also counts the memory in use at once.
class FakeDevice : public kernels::Device {
 public:
  explicit FakeDevice(const FakeTimes& times = {}) : times_(times) {}

  const kernels::DeviceDescription& description() const override { return description_; }
  const kernels::DeviceOps& ops() const override {
    static constexpr kernels::DeviceOps kOps = kernels::make_issue_table<FakeIssue>("fake");
    return kOps;
  }
  std::unique_ptr<kernels::DeviceMemory> allocate(int64_t bytes) override {
    return std::make_unique<Memory>(*this, bytes);
  }
  std::unique_ptr<kernels::Queue> make(const QueueOptions&) override {
    return std::make_unique<FakeQueue>(times_, loaded_);
  }
  int64_t most_bytes() const { return most_bytes_; }

 private:
  class Memory : public kernels::DeviceMemory {
   public:
    Memory(FakeDevice& device, int64_t bytes)
        : device_(device), bytes_(bytes), data_(new std::byte[static_cast<size_t>(bytes)]) {
      device.bytes_ += bytes;
      device.most_bytes_ = std::max(device.most_bytes_, device.bytes_);
    }
    ~Memory() override { device_.bytes_ -= bytes_; }
    std::byte* data() const override { return data_.get(); }

   private:
    FakeDevice& device_;
    const int64_t bytes_;
    const std::unique_ptr<std::byte[]> data_;
  };

  const FakeTimes times_;
  const kernels::DeviceDescription description_ = {.name = "fake", .discrete = true};
  std::set<std::tuple<std::type_index, int64_t>> loaded_;
  int64_t bytes_ = 0;
  int64_t most_bytes_ = 0;
};

}  // namespace strata::test
