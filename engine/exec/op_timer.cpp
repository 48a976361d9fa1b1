// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/op_timer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/base/blocking_call.h"
#include "engine/base/clock.h"
#include "io/bench_statistics.h"

namespace strata::exec {
namespace {

constexpr double kLongS = 2e-3;  // beside which the time of an op is little
constexpr double kRepeatsMax = 32;

}  // namespace

OpTimer::OpTimer(kernels::Device& device)
    : on_device_(device.description().discrete),
      parallel_(on_device_ ? 1 : device.description().threads),
      queue_(device.make_queue("probe", kDepth)) {}

double OpTimer::once(const char* name, Ranges ranges, const Issue& issue, int times) {
  const double begin_s = now_s();
  queue_->begin(name, ranges);
  parallel_.run([&] {
    for (int i = 0; i < times; ++i) issue(*queue_);
  });
  const int64_t count = queue_->end();
  await(*queue_, count);
  const kernels::Queue::Span span =
      on_device_ ? queue_->span_of(count) : kernels::Queue::Span{begin_s, now_s()};
  return std::max(1e-9, span.end_s - span.begin_s);
}

double OpTimer::median(const char* name, Ranges ranges, const Issue& issue, double seconds) {
  once(name, ranges, issue);
  const double ratio = std::ceil(kLongS / once(name, ranges, issue));
  const int repeats = static_cast<int>(std::clamp(ratio, 1.0, kRepeatsMax));
  std::vector<double> times;
  const double end_s = now_s() + seconds;
  while (times.size() < 3 || now_s() < end_s) {
    times.push_back(once(name, ranges, issue, repeats) / repeats);
  }
  return io::median_of(times);
}

void await(kernels::Queue& queue, int64_t count) {
  static const std::string device = "the device that is measured";
  const BlockingCall call("wait for", device);
  while (queue.completed() < count) queue.sleep(count, 1.0);
}

}  // namespace strata::exec
