// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/machine_probe.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/threads.h"
#include "engine/base/units.h"
#include "engine/config/limits.h"
#include "engine/exec/compute_probe.h"
#include "engine/exec/device_probe.h"
#include "engine/exec/progress.h"
#include "engine/memory/arena.h"
#include "io/bench_statistics.h"
#include "kernels/parallel.h"

namespace strata::exec {
namespace {

// The median rate of at least two rounds, each `amount` divided by its seconds on `clock`, after a
// warm-up round.
template <typename Clock>
double rate_by(const Clock& clock, double amount, double seconds,
               const std::function<void()>& round) {
  round();
  std::vector<double> rates;
  const double until_s = now_s() + seconds;
  while (rates.size() < 2 || now_s() < until_s) {
    const double begin_s = clock();
    round();
    rates.push_back(amount / (clock() - begin_s));
  }
  return io::median_of(rates);
}

double rate_of(double amount, double seconds, const std::function<void()>& round) {
  return rate_by([] { return now_s(); }, amount, seconds, round);
}

float* floats(const memory::Arena& arena) {
  return reinterpret_cast<float*>(arena.data());
}

// Fills with small different numbers, never denormal ones.
void fill_floats(float* data, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    data[i] = static_cast<float>((i * 2654435761u) % 1024) / 1024.0f - 0.5f;
  }
}

// --- products ---

// The three products of one linear layer of a medium-sized model.
class Products {
 public:
  Products(const ProbeOptions& options, DType dtype)
      : options_(options),
        parallel_(options.threads),
        outputs_(options.is_ample() ? 2048 : 512),
        x_(kRows * kInputs * 4),
        y_(kRows * outputs_ * 4),
        dx_(kRows * kInputs * 4),
        w_(outputs_ * kInputs * 4),
        dw_(outputs_ * kInputs * 4),
        forward_{.dtype = dtype, .rows = kRows, .outputs = outputs_, .inputs = kInputs},
        input_{.dtype = dtype, .rows = kRows, .outputs = outputs_, .inputs = kInputs},
        weight_{.rows = kRows, .outputs = outputs_, .inputs = kInputs} {
    fill_floats(floats(x_), kRows * kInputs);
    fill_floats(floats(w_), outputs_ * kInputs);
    if (dtype == DType::kBF16) {
      auto* halves = reinterpret_cast<uint16_t*>(w_.data());
      for (int64_t i = 0; i < outputs_ * kInputs; ++i) halves[i] = to_bf16(floats(w_)[i]);
    }
    forward_.x = weight_.x = floats(x_);
    forward_.w = input_.w = w_.data();
    forward_.y = floats(y_);
    input_.dy = weight_.dy = floats(y_);
    input_.dx = floats(dx_);
    weight_.dw = floats(dw_);
    const int threads = options.threads;
    const int64_t bytes = std::max({kernels::workspace_bytes(forward_, threads),
                                    kernels::workspace_bytes(input_, threads),
                                    kernels::workspace_bytes(weight_, threads), int64_t{64}});
    workspace_ = memory::Arena(bytes);
    forward_.workspace = input_.workspace = weight_.workspace = {workspace_.data(), bytes};
  }

  double flops() const { return 3 * 2.0 * static_cast<double>(kRows * outputs_ * kInputs); }
  int64_t bytes() const {
    return x_.bytes() + y_.bytes() + dx_.bytes() + w_.bytes() + dw_.bytes() + workspace_.bytes();
  }

  void run() const {
    parallel_.run([&] {
      options_.backend->matmul_forward(forward_);
      options_.backend->matmul_input(input_);
      options_.backend->matmul_weight(weight_);
    });
  }

 private:
  static constexpr int64_t kRows = 512, kInputs = 768;
  const ProbeOptions& options_;
  const kernels::Parallel parallel_;
  const int64_t outputs_;
  memory::Arena x_, y_, dx_, w_, dw_, workspace_;
  kernels::MatMulForward forward_;
  kernels::MatMulInput input_;
  kernels::MatMulWeight weight_;
};

// --- memory ---

// The fused update of fp32 parameters, 16 bytes of state and gradient an element.
class Update {
 public:
  Update(const ProbeOptions& options, int64_t bytes)
      : options_(options),
        parallel_(options.threads),
        count_(bytes / 16 / kStep * kStep),
        data_(count_ * 16) {
    STRATA_CHECK(count_ > 0);
    // With moments and gradients of the same magnitude, no value becomes denormal.
    for (int64_t plane = 0; plane < 4; ++plane) {
      for (int64_t i = 0; i < count_; ++i) floats(data_)[plane * count_ + i] = 0.01f;
    }
    update_.count = count_;
    update_.master = floats(data_);
    update_.exp_avg = floats(data_) + count_;
    update_.exp_avg_sq = floats(data_) + 2 * count_;
    update_.grad = floats(data_) + 3 * count_;
    update_.scalars = kernels::adamw_scalars({.lr = 1e-6}, 1000, 1.0);
  }

  double bytes() const { return 28.0 * static_cast<double>(count_); }
  void run() const {
    parallel_.run([&] { options_.backend->adamw(update_); });
  }

 private:
  static constexpr int64_t kStep = 4096;
  const ProbeOptions& options_;
  const kernels::Parallel parallel_;
  const int64_t count_;
  const memory::Arena data_;
  kernels::AdamW update_;
};

using Vector __attribute__((vector_size(64), aligned(64), may_alias)) = float;
constexpr int64_t kLanes = 16;

void triad(Vector* a, const Vector* b, const Vector* c, int64_t count) {
  for (int64_t i = 0; i < count; ++i) a[i] = b[i] + 0.5f * c[i];
}

void triad_in_place(Vector* a, const Vector* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) a[i] += 0.5f * b[i];
}

// Runs `work(thread)` repeatedly on `threads` threads at once; returns the seconds of the median
// round.
double timed_rounds(int threads, double seconds, const std::function<void(int)>& work) {
  std::vector<double> times;
  std::atomic<bool> over = false;
  double begin_s = now_s();
  const double until_s = begin_s + seconds;
  std::barrier round(threads, [&]() noexcept {
    const double end_s = now_s();
    times.push_back(end_s - begin_s);
    over = times.size() >= 4 && end_s > until_s;
    begin_s = now_s();
  });
  std::atomic<bool> begun = false;
  const auto loop = [&](int thread) {
    begun.wait(false);
    while (!over) {
      work(thread);
      round.arrive_and_wait();
    }
  };
  const auto begin = [&] {
    begun = true;
    begun.notify_all();
  };
  std::vector<std::jthread> others;
  try {
    for (int thread = 1; thread < threads; ++thread) {
      others.push_back(start_thread([&loop, thread] { loop(thread); }));
    }
  } catch (...) {
    over = true;
    begin();
    throw;
  }
  begin();
  loop(0);
  others.clear();              // joins
  times.erase(times.begin());  // warms up
  return io::median_of(times);
}

// --- lanes ---

// The share of their speed that products and updates keep while both run, as in compute and
// optimizer lanes.
double overlap_speed(const ProbeOptions& options, double seconds) {
  const Products products(options, DType::kF32);
  const Update update(options, std::max(kMiB, options.memory_bytes - products.bytes()));
  const double alone_s = seconds / 3;
  const double products_alone = rate_of(1, alone_s, [&] { products.run(); });
  const double update_alone = rate_of(1, alone_s, [&] { update.run(); });
  std::atomic<bool> over = false;
  double updates = 0;
  const double begin_s = now_s();
  std::jthread other = start_thread([&] {
    while (!over) {
      update.run();
      ++updates;
    }
  });
  double rounds = 0;
  while (now_s() - begin_s < alone_s || rounds < 2) {
    products.run();
    ++rounds;
  }
  const double products_s = now_s() - begin_s;
  over = true;
  other.join();
  const double updates_s = now_s() - begin_s;
  const double speed =
      0.5 * (rounds / products_s / products_alone + updates / updates_s / update_alone);
  return std::clamp(speed, 0.25, 1.0);
}

// The time from a publish on one lane until the waiting lane continues: half of a round trip.
double hand_over_s(double seconds) {
  Progress progress(60);
  constexpr int kRounds = 64;
  std::vector<double> times;
  const double until_s = now_s() + seconds;
  int64_t base = 0;
  std::atomic<bool> over = false;
  std::jthread other = start_thread([&] {
    for (int64_t next = 1;; ++next) {
      progress.wait({plan::Lane::kCompute, next});
      if (over) return;
      progress.publish(plan::Lane::kOptimizer);
    }
  });
  while (times.size() < 3 || now_s() < until_s) {
    const double begin_s = now_s();
    for (int i = 0; i < kRounds; ++i) {
      progress.publish(plan::Lane::kCompute);
      progress.wait({plan::Lane::kOptimizer, ++base});
    }
    times.push_back((now_s() - begin_s) / (2 * kRounds));
  }
  over = true;
  progress.publish(plan::Lane::kCompute);
  other.join();
  return io::median_of(times);
}

double copy_rate(const ProbeOptions& options, double seconds) {
  const int64_t bytes = options.memory_bytes / 2;
  const memory::Arena from(bytes);
  const memory::Arena to(bytes);
  return rate_of(static_cast<double>(bytes), seconds,
                 [&] { std::memcpy(to.data(), from.data(), static_cast<size_t>(bytes)); });
}

// The rate of a small transformer block, in which norms, attention and activations run between
// products.
double block_rate(const ProbeOptions& options, Recipe recipe) {
  const int64_t part = options.is_ample() ? 1 : 2;
  const BlockProbe block = {.hidden = 768 / part,
                            .feed_forward = 2048 / part,
                            .heads = 12 / part,
                            .kv_heads = 4 / part,
                            .shape = {1, 128}};
  const auto host = kernels::make_host_device(*options.backend, options.threads);
  return probe_block(block, recipe, *host);
}

}  // namespace

double probe_products(const ProbeOptions& options, DType dtype, double seconds) {
  const Products products(options, dtype);
  const auto round = [&] { products.run(); };
  if (!options.processor_time) return rate_of(products.flops(), seconds, round);
  const auto clock = [&] { return process_cpu_s() / options.threads; };
  return rate_by(clock, products.flops(), seconds, round);
}

double probe_optimizer(const ProbeOptions& options, double seconds) {
  const Update update(options, options.memory_bytes);
  return rate_of(update.bytes(), seconds, [&] { update.run(); });
}

// The better of two loops: STREAM's triad, whose stores also read the line that they replace (not
// counted), and one that updates in place, as the optimizer does.
double probe_memory(const ProbeOptions& options, double seconds) {
  const int64_t count = options.memory_bytes / 12 / options.threads / 64 * 64;
  const memory::Arena data(count * options.threads * 12);
  const auto slice = [&](int thread, int array) {
    return reinterpret_cast<Vector*>(floats(data) + (array * options.threads + thread) * count);
  };
  const double bytes = 12.0 * static_cast<double>(count * options.threads);
  const double stream_s = timed_rounds(options.threads, seconds / 2, [&](int thread) {
    triad(slice(thread, 0), slice(thread, 1), slice(thread, 2), count / kLanes);
  });
  const double in_place_s = timed_rounds(options.threads, seconds / 2, [&](int thread) {
    triad_in_place(slice(thread, 0), slice(thread, 1), count / kLanes);
  });
  return bytes / std::min(stream_s, in_place_s);
}

namespace {

config::Machine probe_here(const ProbeOptions& options) {
  STRATA_CHECK(options.backend != nullptr && options.threads >= 1 && options.memory_bytes >= kMiB);
  const double part_s = options.seconds / 12;
  config::Machine machine;
  machine.name = options.name;
  machine.device = options.device;
  const config::Limits limits = config::read_limits();
  machine.cores = limits.cores;
  machine.host_bytes = limits.usable_bytes();
  machine.checksum_bytes_per_s = probe_checksum(part_s / 4, options.memory_bytes);
  if (!options.drive.directories.empty()) {
    DriveProbeOptions drive = options.drive;
    if (!options.is_ample()) drive.transfer_bytes = kMiB;
    set_drive(probe_drive(drive, 5 * part_s), machine);
  }
  machine.matmul_flops_per_s = probe_products(options, DType::kF32, part_s);
  machine.matmul_bf16_flops_per_s = probe_products(options, DType::kBF16, part_s);
  machine.step_flops_per_s = block_rate(options, Recipe::kFp32);
  machine.step_bf16_flops_per_s = block_rate(options, Recipe::kBf16);
  machine.memory_bytes_per_s = probe_memory(options, part_s);
  machine.optimizer_bytes_per_s = probe_optimizer(options, part_s);
  machine.overlap_speed = overlap_speed(options, part_s);
  machine.op_overhead_s = hand_over_s(part_s / 4);
  if (config::row_of(options.device).is_gpu) set_gpu(options, 2 * part_s, machine);
  if (options.device == config::DeviceKind::kEmulated) {
    machine.device_bytes = machine.host_bytes;
    machine.device_memory_bytes_per_s = machine.memory_bytes_per_s;
    machine.upload_bytes_per_s = machine.download_bytes_per_s = copy_rate(options, part_s / 2);
  }
  return machine;
}

}  // namespace

config::Machine probe_machine(const ProbeOptions& options) {
  return on_own_thread([&] { return probe_here(options); });
}

void set_drive(const DriveFigures& drive, config::Machine& machine) {
  machine.nvme_count = drive.count;
  machine.nvme_read_bytes_per_s = drive.read_bytes_per_s;
  machine.nvme_write_bytes_per_s = drive.write_bytes_per_s;
  machine.nvme_mixed_bytes_per_s = drive.mixed_bytes_per_s;
  machine.nvme_latency_s = drive.latency_s;
  machine.nvme_weights = drive.weights;
  const double checksum_s = machine.checksum_bytes_per_s > 0 ? 1 / machine.checksum_bytes_per_s : 0;
  machine.cpu_s_per_io_gb = std::max(0.0, 1e9 * (drive.cpu_s_per_byte - checksum_s));
}

}  // namespace strata::exec
