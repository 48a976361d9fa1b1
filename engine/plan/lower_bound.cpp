// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/lower_bound.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/base/check.h"
#include "engine/plan/memory_map.h"
#include "engine/plan/sent_bytes.h"

namespace strata::plan {
namespace {

constexpr double kGradientBytes = 4;

// Bytes of a rank's own parts; `whole_*` are bytes of all parts.
struct Sizes {
  double planes = 0;         // of what is trained: weights and state
  double weights_twice = 0;  // used twice in a pass
  double weights = 0;
  double trainable = 0;  // weights
  double state = 0;      // without weights
  double gradients = 0;
  double checkpoints = 0;  // of all micro-batches
  double optimizer = 0;    // memory traffic of one update
  double whole_weights_twice = 0;
  double whole_weights = 0;
  double whole_trainable = 0;
  double whole_gradients = 0;
};

// How often a pass uses each segment's weights. The backward of an embedding does not read them,
// and the head's forward and backward are one op. A shared matrix is also used by the segment that
// shares it.
std::vector<int> uses_in_a_pass(const model::ModelSpec& spec) {
  std::vector<int> uses;
  for (const model::Segment& segment : spec.segments) {
    const bool once =
        segment.kind == model::SegmentKind::kEmbedding || segment.kind == model::SegmentKind::kHead;
    uses.push_back(once ? 1 : 2);
  }
  for (const model::Segment& segment : spec.segments) {
    if (segment.shares >= 0) uses[static_cast<size_t>(segment.shares)] = 2;
  }
  return uses;
}

Sizes sizes_of(const LowerBoundInput& in) {
  const std::vector<int> uses = uses_in_a_pass(in.spec);
  const double weight_bytes = static_cast<double>(bytes_of(weight_dtype(in.recipe)));
  Sizes sizes;
  double trainable_numel = 0;
  for (const shard::Chunk& chunk : in.layout.chunks) {
    const double numel = static_cast<double>(chunk.numel);
    const double bytes = weight_bytes * numel;
    sizes.whole_weights += bytes;
    if (uses[static_cast<size_t>(chunk.segment)] == 2) sizes.whole_weights_twice += bytes;
    if (!chunk.frozen) trainable_numel += numel;
  }
  sizes.whole_trainable = weight_bytes * trainable_numel;
  sizes.whole_gradients = kGradientBytes * trainable_numel;
  const int weight_shards = in.mesh.weight_shards();
  const int state_shards = in.mesh.state_shards();
  sizes.weights_twice = shard::share_of(sizes.whole_weights_twice, weight_shards);
  sizes.weights = shard::share_of(sizes.whole_weights, weight_shards);
  sizes.trainable = shard::share_of(sizes.whole_trainable, weight_shards);
  const auto planes = static_cast<double>(planes_of(in.recipe).bytes());
  sizes.planes = shard::share_of(planes * trainable_numel, state_shards);
  sizes.state = shard::share_of((planes - weight_bytes) * trainable_numel, state_shards);
  // After the reduction a rank needs only the part whose state it owns, in every ZeRO stage.
  sizes.gradients = shard::share_of(sizes.whole_gradients, state_shards);
  const auto blocks =
      std::count_if(in.spec.units.begin(), in.spec.units.end(), [&](const model::Unit& unit) {
        const auto kind = in.spec.segments[static_cast<size_t>(unit.segments.front())].kind;
        return kind == model::SegmentKind::kAttention || kind == model::SegmentKind::kMlp;
      });
  sizes.checkpoints =
      static_cast<double>(in.boundary_bytes) * static_cast<double>(blocks) * in.micro_batches;
  // An update reads state and gradient and writes state.
  sizes.optimizer = shard::share_of((2 * planes + kGradientBytes) * trainable_numel, state_shards);
  return sizes;
}

double least_flops(const LowerBoundInput& in, double budget, int passes) {
  struct Interior {
    double bytes = 0;  // of the micro-batches of one pass
    double flops = 0;  // to rebuild it in all passes
  };
  const double micro_batches = in.micro_batches;
  std::vector<Interior> interiors;
  double flops = 0;
  for (size_t i = 0; i < in.footprints.size(); ++i) {
    const model::Footprint& print = in.footprints[i];
    const bool head = in.spec.segments[i].kind == model::SegmentKind::kHead;
    const double forward = head ? 0 : print.key_flops + print.forward_flops;
    flops += micro_batches * (print.backward_flops + forward);
    if (print.interior_bytes == 0) continue;
    interiors.push_back({static_cast<double>(print.interior_bytes) * micro_batches / passes,
                         (print.key_flops + print.recompute_flops) * micro_batches});
  }
  std::sort(interiors.begin(), interiors.end(), [](const Interior& a, const Interior& b) {
    return a.flops * b.bytes > b.flops * a.bytes;
  });
  for (const Interior& interior : interiors) {
    const double kept = std::min(budget, interior.bytes);
    budget -= kept;
    flops += interior.flops * (1 - kept / interior.bytes);
  }
  return flops;
}

// The least bytes of weights that must move to the memory that compute reads, of which `cache`
// bytes can hold weights. A weight that was updated since its last use must move again in any case.
double least_weight_moves(const Sizes& sizes, double cache, int passes) {
  const double uses = passes * (sizes.whole_weights_twice + sizes.whole_weights);
  const double turns = passes * std::min(cache, sizes.whole_weights_twice);
  const double gaps = (passes - 1) * std::min(cache, sizes.whole_weights);
  const double frozen = sizes.whole_weights - sizes.whole_trainable;
  return uses - turns - gaps - std::min(cache, frozen);
}

// The least bytes of gradients that must leave the memory where compute makes them: once, and once
// more for each pass whose sums that memory cannot keep until the next pass.
double least_gradient_moves(const Sizes& sizes, double cache, int passes) {
  return passes * sizes.whole_gradients - (passes - 1) * std::min(cache, sizes.whole_gradients);
}

void count_nvme(const LowerBoundInput& in, const Sizes& sizes, double budget, LowerBound& bound) {
  const int passes = bound.passes;
  const double held = in.holds_gradients ? sizes.gradients : 0;
  const double between = (passes - 1) * sizes.gradients + held;  // gradients that outlive a pass
  const double written = sizes.trainable + sizes.state + held;
  const double read = sizes.weights + sizes.state + held;  // after the gap between steps
  const double gap = std::min(budget, sizes.gradients + sizes.weights);
  const double checkpoints = sizes.checkpoints / passes;
  const double turn = std::min(budget, sizes.weights_twice + checkpoints);
  bound.nvme_read_bytes = passes * (sizes.weights_twice + sizes.weights) + sizes.checkpoints +
                          sizes.state + between - passes * turn - (passes - 1) * gap -
                          std::min(budget, read);
  bound.nvme_write_bytes = sizes.trainable + sizes.state + between + sizes.checkpoints -
                           passes * std::min(budget, checkpoints) -
                           (passes - 1) * std::min(budget, sizes.gradients) -
                           std::min(budget, written);
}

void count_comm(const LowerBoundInput& in, const Sizes& sizes, double budget, LowerBound& bound) {
  const Mesh& mesh = in.mesh;
  const SentCounter counter = SentCounter::of_slowest(mesh);
  // Of bytes that all ranks of a group have together, each sends its part to the others.
  const auto exchange = [&](GroupName group, double bytes) {
    const SentBytes& sent = counter.of_a_byte(group);
    const double part = bytes / mesh.size_of(group);
    bound.comm_within_bytes += part * static_cast<double>(sent.within);
    bound.comm_between_bytes += part * static_cast<double>(sent.between);
  };
  const bool sharded_weights = mesh.weight_shards() > 1;
  const bool sharded_state = mesh.state_shards() > 1;
  // When every rank has all weights, only updated weights are exchanged; when every rank has all
  // state, reduced gradients are.
  const double gathered = sharded_weights ? least_weight_moves(sizes, budget, bound.passes)
                          : sharded_state ? sizes.whole_trainable
                                          : sizes.whole_gradients;
  const int64_t block = block_of(mesh.reduce_dtype);
  const double share = static_cast<double>(bytes_of(mesh.reduce_dtype, block)) /
                       static_cast<double>(block * kGradientWidth);
  const double reduced = share * least_gradient_moves(sizes, budget, bound.passes);
  exchange(GroupName::kShard, gathered + reduced);
  // The copies sum their parts, and each copy gets the whole sum.
  const double part = shard::share_of(sizes.whole_gradients, mesh.gradient_shards());
  exchange(GroupName::kReplicate, (share + 1) * part);
}

double over(double amount, double rate) {
  STRATA_CHECK(amount <= 0 || rate > 0);
  return amount <= 0 ? 0 : amount / rate;
}

// The least time of two pieces of work on the same cores; each runs at `speed` while both run.
double together_s(double a_s, double b_s, double speed) {
  if (speed <= 0.5) return a_s + b_s;
  return a_s + b_s - (2 * speed - 1) * std::min(a_s, b_s) / speed;
}

// The least time for both directions of a duplex drive: both at once at the mixed rate, in the
// proportion of their single rates, until one has ended; or one after the other, if that is faster.
double least_mixed_s(double read_s, double write_s, const Rates& rates) {
  const double speed = rates.mixed_bytes_per_s / (rates.read_bytes_per_s + rates.write_bytes_per_s);
  return together_s(read_s, write_s, speed);
}

void set_times(const Rates& rates, LowerBound& bound, double optimizer_bytes) {
  const auto least = [&](Resource resource) -> double& {
    return bound.least_s[static_cast<size_t>(resource)];
  };
  const double moved = bound.nvme_read_bytes + bound.nvme_write_bytes;
  const double read_s = over(bound.nvme_read_bytes, rates.read_bytes_per_s);
  const double write_s = over(bound.nvme_write_bytes, rates.write_bytes_per_s);
  least(Resource::kCompute) = over(bound.flops, rates.matmul_flops_per_s);
  if (rates.shared_cores) {
    const double update_s = over(optimizer_bytes, rates.memory_bytes_per_s);
    const double io_s = moved * rates.io_cpu_s_per_byte / std::max(1, rates.cores);
    least(Resource::kCores) =
        together_s(least(Resource::kCompute), update_s, rates.shared_speed) + io_s;
  }
  least(Resource::kMemory) = over(bound.memory_bytes, rates.memory_bytes_per_s);
  if (rates.half_duplex) {
    least(Resource::kNvme) = read_s + write_s;
  } else {
    least(Resource::kNvmeRead) = read_s;
    least(Resource::kNvmeWrite) = write_s;
    if (rates.mixed_bytes_per_s > 0) {
      least(Resource::kNvme) = least_mixed_s(read_s, write_s, rates);
    }
  }
  least(Resource::kUpload) = over(bound.upload_bytes, rates.upload_bytes_per_s);
  least(Resource::kDownload) = over(bound.download_bytes, rates.download_bytes_per_s);
  const auto exchange_s = [&](bool device) {
    return rates.exchange_s(bound.comm_within_bytes, bound.comm_between_bytes, device);
  };
  least(Resource::kComm) = std::min(exchange_s(false), exchange_s(true));

  const auto largest = std::max_element(bound.least_s.begin(), bound.least_s.end());
  bound.step_s = *largest;
  bound.binding = static_cast<Resource>(largest - bound.least_s.begin());
}

// The most bytes of state that can have their home on a device with `device` bytes.
double largest_home(const Sizes& sizes, double device) {
  return sizes.planes > 0 ? std::min(1.0, device / sizes.planes) : 0;
}

// The sizes that still cross a link when state of `home` bytes stays on the device, which takes off
// the weights that are used most.
Sizes away_from_home(Sizes sizes, double home) {
  const double weights = home * sizes.whole_trainable;
  sizes.whole_trainable -= weights;
  sizes.whole_weights -= weights;
  sizes.whole_weights_twice = std::max(0.0, sizes.whole_weights_twice - weights);
  sizes.whole_gradients *= 1 - home;
  return sizes;
}

LowerBound bound_of(const LowerBoundInput& in, const Rates& rates, const Sizes& sizes, int passes) {
  const double device = static_cast<double>(in.discrete ? in.device_bytes : 0);
  const double budget = static_cast<double>(in.host_bytes) + device;
  LowerBound bound;
  bound.passes = passes;
  bound.flops = least_flops(in, budget, passes);
  count_nvme(in, sizes, budget, bound);
  count_comm(in, sizes, budget, bound);
  double host_update_bytes = sizes.optimizer;
  if (in.discrete) {
    // A rank uploads and downloads its own parts; gather and reduce run between devices.
    const double home = largest_home(sizes, device);
    const Sizes away = away_from_home(sizes, home);
    bound.upload_bytes =
        shard::share_of(least_weight_moves(away, device, passes), in.mesh.weight_shards());
    bound.download_bytes =
        shard::share_of(least_gradient_moves(away, device, passes), in.mesh.state_shards());
    host_update_bytes *= 1 - home;
  }
  bound.memory_bytes = host_update_bytes + bound.nvme_read_bytes + bound.nvme_write_bytes +
                       bound.upload_bytes + bound.download_bytes;
  set_times(rates, bound, sizes.optimizer);
  return bound;
}

}  // namespace

const char* name_of(Resource resource) {
  constexpr std::array<const char*, kResourceCount> kNames = {"compute",   "cores",      "memory",
                                                              "nvme read", "nvme write", "nvme",
                                                              "upload",    "download",   "comm"};
  return kNames[static_cast<size_t>(resource)];
}

LowerBound lower_bound(const LowerBoundInput& input, const Rates& rates,
                       std::span<const int> passes) {
  STRATA_CHECK(input.micro_batches >= 1);
  STRATA_CHECK(input.footprints.size() == input.spec.segments.size());
  std::vector<int> all(passes.begin(), passes.end());
  if (all.empty()) {
    all.resize(static_cast<size_t>(input.micro_batches));
    std::iota(all.begin(), all.end(), 1);
  }
  const Sizes sizes = sizes_of(input);
  LowerBound least = bound_of(input, rates, sizes, all.front());
  for (size_t i = 1; i < all.size(); ++i) {
    const LowerBound bound = bound_of(input, rates, sizes, all[i]);
    if (bound.step_s < least.step_s) least = bound;
  }
  return least;
}

}  // namespace strata::plan
