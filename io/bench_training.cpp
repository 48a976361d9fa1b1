// SPDX-License-Identifier: Apache-2.0
// The traffic of one rank that trains with everything on NVMe, without the arithmetic of the model:
//
//   forward   weights of layer 0, 1, ... L-1 are read (2 bytes a parameter)
//   backward  weights of layer L-1, ... 0 are read again; after those of a layer, its optimizer
//             state is read (12 bytes a parameter), updated by an Adam loop that streams through
//             DRAM, and written back
//
// Three lanes with channels of their own (weights, state in, state out) and one for the optimizer,
// as in a real run: weights may be at most kLookahead layers ahead of the state.
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "io/bench_io.h"
#include "io/bench_memory.h"

namespace strata::io {
namespace {

constexpr uint64_t kTag = 1;  // what IoBench::prepare() wrote
constexpr uint32_t kLayers = 16;
constexpr uint32_t kLookahead = 2;
constexpr uint64_t kWeightShare = 2;  // bytes a parameter
constexpr uint64_t kStateShare = 12;
constexpr uint32_t kStateBuffers = 6;

double thread_cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Where the extents of a layer lie, in units of one transfer.
struct Layout {
  uint64_t unit_bytes = 0;
  uint32_t weight_units = 0;  // of one layer
  uint32_t state_units = 0;

  uint64_t weight_address(uint32_t layer, uint32_t unit) const {
    return (uint64_t{layer} * (weight_units + state_units) + unit) * unit_bytes;
  }
  uint64_t state_address(uint32_t layer, uint32_t unit) const {
    return weight_address(layer, weight_units + unit);
  }
};

// State units go round: empty -> read -> updated -> written -> empty. All counts only grow.
struct Progress {
  std::mutex mu;
  std::condition_variable changed;
  uint64_t weights_backward = 0;  // layers whose weights were read in a backward
  uint64_t read = 0;              // state units
  uint64_t updated = 0;
  uint64_t written = 0;
  bool stop = false;
  std::exception_ptr error;
};

class Training {
 public:
  // The lanes' memory outlives it: its channels may hold requests until they go.
  Training(Volume& volume, const Layout& layout, const LaneMemory& weights, const LaneMemory& state)
      : volume_(volume),
        layout_(layout),
        weights_(weights),
        state_(state),
        width_(weights.transfers),
        state_buffers_(state.transfers) {}

  struct Limits {
    double seconds = 0;
    uint32_t steps = 0;
    double sample_s = 0;
    const std::atomic<bool>* stop = nullptr;
  };

  // Runs until the time has passed at the end of a step, or for so many steps.
  void run(const std::function<ChannelOptions(const LaneMemory&)>& options, const Limits& limits) {
    read_weights_ = std::make_unique<Channel>(volume_, options(weights_));
    read_state_ = std::make_unique<Channel>(volume_, options(state_));
    write_ = std::make_unique<Channel>(volume_, options(state_));
    stop_ = limits.stop;
    sample_s_ = limits.sample_s;
    start_s_ = now_s();
    last_counters_ = volume_.counters();
    std::thread lanes[] = {lane([this] { read_state_lane(); }), lane([this] { optimizer_lane(); }),
                           lane([this] { write_lane(); })};
    lane([&] {
      const auto more = [&] {
        return steps_ < limits.steps && now_s() - start_s_ < limits.seconds;
      };
      while (more() && weights_step()) {
      }
      const uint64_t units = uint64_t{steps_} * kLayers * layout_.state_units;
      wait_until([&] { return progress_.written >= units; });
      const std::lock_guard lock(progress_.mu);
      progress_.stop = true;
      progress_.changed.notify_all();
    }).join();
    seconds_ = now_s() - start_s_;
    for (std::thread& thread : lanes) thread.join();
    if (progress_.error) std::rethrow_exception(progress_.error);
  }

  void fill(BenchResult& result) const {
    result.seconds = seconds_;
    result.steps = steps_;
    result.optimizer_s = optimizer_s_;
    result.samples = samples_;
    result.backend = write_->backend_name();
    LatencyHistogram reads = read_weights_->stats().read_latency;
    reads.merge(read_state_->stats().read_latency);
    result.read = summarize(reads);
    result.write = summarize(write_->stats().write_latency);
    result.bytes_read = read_weights_->stats().bytes_read + read_state_->stats().bytes_read;
    result.bytes_written = write_->stats().bytes_written;
    for (size_t i = 0; i < volume_.files().size(); ++i) {
      const uint64_t read =
          read_weights_->stats().files[i].bytes_read + read_state_->stats().files[i].bytes_read;
      result.files.push_back(
          {.name = volume_.files()[i].name,
           .read_bytes_per_s = static_cast<double>(read) / seconds_,
           .write_bytes_per_s =
               static_cast<double>(write_->stats().files[i].bytes_written) / seconds_});
    }
  }

 private:
  std::thread lane(std::function<void()> body) {
    return std::thread([this, body = std::move(body)] {
      try {
        body();
      } catch (...) {
        const std::lock_guard lock(progress_.mu);
        if (!progress_.error) progress_.error = std::current_exception();
        progress_.stop = true;
        progress_.changed.notify_all();
      }
    });
  }

  // Then every lane leaves what it has in flight to its channel's destructor.
  bool interrupted() const { return stop_ != nullptr && *stop_; }

  // False when the lane is to end. A signal's handler cannot notify: the flag is looked at.
  template <class Ready>
  bool wait_until(Ready ready) {
    constexpr std::chrono::milliseconds kGlance(100);
    std::unique_lock lock(progress_.mu);
    while (!progress_.stop && !interrupted() && !ready()) {
      progress_.changed.wait_for(lock, kGlance);
    }
    return !progress_.stop && !interrupted();
  }

  void add(uint64_t Progress::*count, uint64_t by) {
    const std::lock_guard lock(progress_.mu);
    progress_.*count += by;
    progress_.changed.notify_all();
    read_state_->wake();
    write_->wake();
  }

  // Both passes of one step. Weights are dropped as soon as they are there: the arithmetic is not
  // measured.
  bool weights_step() {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      if (!read_layer(layer)) return false;
    }
    for (uint32_t layer = kLayers; layer-- > 0;) {
      const uint64_t done = uint64_t{steps_} * kLayers + (kLayers - 1 - layer);
      const uint64_t needed = done > kLookahead ? (done - kLookahead) * layout_.state_units : 0;
      if (!wait_until([&] { return progress_.written >= needed; })) return false;
      if (!read_layer(layer)) return false;
      add(&Progress::weights_backward, 1);
    }
    ++steps_;
    return true;
  }

  // False when it was interrupted.
  bool read_layer(uint32_t layer) {
    std::vector<Transfer> transfers(layout_.weight_units);
    size_t done = 0;
    for (uint32_t next = 0; done < layout_.weight_units;) {
      if (interrupted()) return false;
      for (; next < layout_.weight_units && next - done < width_; ++next) {
        issue(*read_weights_, transfers[next], Direction::kRead,
              layout_.weight_address(layer, next),
              weights_.data + next % width_ * layout_.unit_bytes);
      }
      if (read_weights_->poll() == 0) read_weights_->wait(0.1);
      while (done < next && transfers[done].done) check(transfers[done++]);
    }
    take_sample();
    return true;
  }

  // The rates since the last sample, when that is long enough ago.
  void take_sample() {
    const double at_s = now_s() - start_s_;
    const double span_s = at_s - (samples_.empty() ? 0 : samples_.back().at_s);
    if (span_s < sample_s_) return;
    const VolumeCounters now = volume_.counters();
    const auto rate = [span_s](uint64_t bytes) { return static_cast<double>(bytes) / span_s; };
    samples_.push_back(
        {.at_s = at_s,
         .read_bytes_per_s = rate(now.bytes_read - last_counters_.bytes_read),
         .write_bytes_per_s = rate(now.bytes_written - last_counters_.bytes_written)});
    last_counters_ = now;
  }

  // Unit n of all state, in the order of the backward passes.
  uint64_t address_of(uint64_t n) const {
    const uint64_t of_step = n % (uint64_t{kLayers} * layout_.state_units);
    const auto layer = static_cast<uint32_t>(kLayers - 1 - of_step / layout_.state_units);
    return layout_.state_address(layer, static_cast<uint32_t>(of_step % layout_.state_units));
  }
  std::byte* buffer_of(uint64_t n) const {
    return state_.data + n % state_buffers_ * layout_.unit_bytes;
  }

  void read_state_lane() {
    move_state(*read_state_, Direction::kRead, &Progress::read, [this](uint64_t n) {
      return n < progress_.weights_backward * layout_.state_units &&
             n < progress_.written + state_buffers_;
    });
  }
  void write_lane() {
    move_state(*write_, Direction::kWrite, &Progress::written,
               [this](uint64_t n) { return n < progress_.updated; });
  }

  // Moves unit after unit as each becomes ready, and publishes them in order.
  template <class Ready>
  void move_state(Channel& channel, Direction direction, uint64_t Progress::*count, Ready ready) {
    std::vector<Transfer> transfers(state_buffers_);
    uint64_t issued = 0;
    uint64_t done = 0;
    for (;;) {
      if (issued == done && !wait_until([&] { return ready(issued); })) return;
      if (interrupted()) return;
      for (const uint64_t end = ready_end(issued, done, ready); issued < end; ++issued) {
        issue(channel, transfers[issued % state_buffers_], direction, address_of(issued),
              buffer_of(issued));
      }
      if (channel.poll() == 0) channel.wait(0.1);
      uint64_t newly = 0;
      for (; done < issued && transfers[done % state_buffers_].done; ++done, ++newly) {
        check(transfers[done % state_buffers_]);
      }
      if (newly > 0) add(count, newly);
    }
  }

  // Up to which unit this lane may issue now.
  template <class Ready>
  uint64_t ready_end(uint64_t issued, uint64_t done, Ready ready) {
    const std::lock_guard lock(progress_.mu);
    while (!progress_.stop && issued - done < state_buffers_ && ready(issued)) ++issued;
    return issued;
  }

  // Adam on master, first and second moment, a third of the unit each; gradients come from beside
  // it.
  void optimizer_lane() {
    const uint64_t count = layout_.unit_bytes / 12;
    const std::vector<float> gradients(count, 1e-3f);
    for (uint64_t n = 0;; ++n) {
      if (!wait_until([&] { return n < progress_.read; })) break;
      auto* master = reinterpret_cast<float*>(buffer_of(n));
      float* moment1 = master + count;
      float* moment2 = moment1 + count;
      for (uint64_t i = 0; i < count; ++i) {
        const float gradient = gradients[i];
        moment1[i] = 0.9f * moment1[i] + 0.1f * gradient;
        moment2[i] = 0.999f * moment2[i] + 0.001f * gradient * gradient;
        master[i] -= 1e-4f * moment1[i] / (std::sqrt(moment2[i]) + 1e-8f);
      }
      add(&Progress::updated, 1);
    }
    optimizer_s_ = thread_cpu_s();
  }

  void issue(Channel& channel, Transfer& transfer, Direction direction, uint64_t address,
             std::byte* data) const {
    transfer.direction = direction;
    transfer.address = address;
    transfer.bytes = layout_.unit_bytes;
    transfer.data = data;
    transfer.tag = kTag;
    channel.submit(&transfer);
  }

  static void check(const Transfer& transfer) {
    if (transfer.error) throw Error(*transfer.error);
  }

  Volume& volume_;
  const Layout layout_;
  const LaneMemory weights_;
  const LaneMemory state_;
  const uint32_t width_;          // weight transfers under way
  const uint32_t state_buffers_;  // state units under way
  const std::atomic<bool>* stop_ = nullptr;
  std::unique_ptr<Channel> read_weights_;
  std::unique_ptr<Channel> read_state_;
  std::unique_ptr<Channel> write_;
  Progress progress_;
  double sample_s_ = 0;
  double start_s_ = 0;
  uint32_t steps_ = 0;  // Owned by the weights lane, like the next two
  std::vector<BenchSample> samples_;
  VolumeCounters last_counters_;
  double optimizer_s_ = 0;  // Owned by the optimizer lane
  double seconds_ = 0;
};

}  // namespace

// A unit is four requests; a layer is 2 + 12 shares of at least one unit.
uint64_t least_training_bytes(uint64_t block_bytes) {
  return block_bytes * 4 * kLayers * (kWeightShare + kStateShare);
}

BenchResult IoBench::training(const BenchShape& shape, const Extent& extent) {
  Layout layout;
  layout.unit_bytes = shape.block_bytes * 4;
  const uint64_t units = volume_->bytes() / layout.unit_bytes / kLayers;
  const uint64_t share = units / (kWeightShare + kStateShare);
  STRATA_CHECK(share > 0);
  layout.weight_units = static_cast<uint32_t>(share * kWeightShare);
  layout.state_units = static_cast<uint32_t>(share * kStateShare);
  const uint64_t step_bytes = uint64_t{kLayers} * layout.state_units * layout.unit_bytes;
  const uint64_t steps = write_allowance() / step_bytes;
  BenchResult result;
  result.shape = shape;
  result.verified = extent.verify;
  result.direct = direct();
  result.write_limit_reached = steps == 0;
  if (steps == 0) return result;
  const uint32_t width = std::max<uint32_t>(2, shape.depth / 4 + 1);
  const uint32_t state_buffers = std::max(kStateBuffers, width * 2);
  const BenchMemory weights(layout.unit_bytes * width);
  const BenchMemory state(layout.unit_bytes * state_buffers);
  const auto lane = [&](const BenchMemory& memory, uint32_t transfers) {
    return LaneMemory{memory.data(), layout.unit_bytes * transfers, transfers};
  };
  Training training(*volume_, layout, lane(weights, width), lane(state, state_buffers));
  const double cpu_start_s = process_cpu_s();
  const auto channel = [&](const LaneMemory& of) {
    return channel_options(shape, extent.verify, of);
  };
  training.run(channel, {.seconds = extent.seconds,
                         .steps = static_cast<uint32_t>(std::min<uint64_t>(steps, 1u << 30)),
                         .sample_s = options_.sample_s,
                         .stop = options_.stop});
  const double cpu_s = process_cpu_s() - cpu_start_s;
  training.fill(result);
  result.cpu_s = cpu_s - result.optimizer_s;
  result.write_limit_reached = result.steps == steps;
  bytes_written_ += result.bytes_written;
  return result;
}

}  // namespace strata::io
