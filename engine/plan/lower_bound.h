// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "engine/model/footprint.h"
#include "engine/model/spec.h"
#include "engine/plan/plan.h"
#include "engine/plan/rates.h"
#include "engine/shard/layout.h"

// A time that no schedule of a step can beat. For each resource it is the least number of bytes or
// operations that model, batch, recipe and budgets require, divided by the resource's rate; the
// bound is the largest of these times.
//
// Symbols, in bytes of one rank: W2, W1 weights that a pass over the model uses twice (forward and
// backward) or once (embedding, head); T the trainable ones among all W = W2 + W1; S the rest of
// the state (lo, exp_avg, exp_avg_sq); G fp32 gradients; B the whole memory budget, counted as
// cache; g passes of micro_batches / g micro-batches each; A the checkpoints of activations of a
// pass, one a block and micro-batch.
//
// NVMe. Without a cache, reads are g (2 W2 + W1 + A) + S and writes T + S + g A, and gradients that
// outlive a pass are written and read: in the g - 1 gaps between passes and, where the update waits
// for the norm of all gradients, in the one between steps. A byte saves a move only by staying in
// memory from one use to the next, and all such intervals meet at a few moments, each of which has
// room for B:
//   the g turns from forward to backward  save min(B, W2 + A) reads, min(B, A) writes each
//   the g - 1 gaps between passes         save min(B, G + W) reads, min(B, G) writes each
//   the gap between steps                 saves min(B, W + S + G*) reads, min(B, T + S + G*) writes
// with G* = G where gradients are held, else 0. Both savings of a moment are reached together.
//
// Upload and gather are counted in the same way, with the device's memory (for gather: all memory)
// as the cache, except that weights just updated must move once more. State whose home is the
// device crosses no link; as much of it as fits there with its weights is subtracted from both
// directions and from what updates touch in host memory. Compute is forward and backward, and the
// recomputation of interiors that do not fit into B, when those that are cheapest to keep are kept.
// Memory is what the optimizer touches plus every byte that a transfer reads or writes there. For
// cores, see Rates::shared_speed.
//
// The result is the least over g. It does not count memory traffic of boundary activations, nor the
// filling and draining of buffers. Orders between those of two values of g, spilled interiors, and
// fewer checkpoints than one for each block are not considered.
namespace strata::plan {

enum class Resource : uint8_t {
  kCompute,
  kCores,  // compute, optimizer and I/O on the same cores
  kMemory,
  kNvmeRead,   // of a duplex drive
  kNvmeWrite,  // of a duplex drive
  kNvme,       // both directions together
  kUpload,
  kDownload,
  kComm,
};
inline constexpr int kResourceCount = 9;
const char* name_of(Resource resource);

struct LowerBoundInput {
  const model::ModelSpec& spec;
  const shard::Layout& layout;
  std::span<const model::Footprint> footprints;  // of each segment, for one micro-batch
  int micro_batches = 1;
  int64_t boundary_bytes = 0;  // of one checkpoint
  Recipe recipe = Recipe::kFp32;
  // With clipping or loss scaling, no update happens before the norm of all gradients is known.
  bool holds_gradients = true;
  bool discrete = false;
  int64_t device_bytes = 0;  // budgets; with one memory for both, everything is in host_bytes
  int64_t host_bytes = 0;
  Mesh mesh = {};
};

struct LowerBound {
  double step_s = 0;
  Resource binding = Resource::kCompute;
  int passes = 1;                                   // g
  std::array<double, kResourceCount> least_s = {};  // by resource, for that g; zero where unused

  double flops = 0;
  double nvme_read_bytes = 0;
  double nvme_write_bytes = 0;
  double memory_bytes = 0;
  double upload_bytes = 0;
  double download_bytes = 0;
  double comm_within_bytes = 0;   // between ranks of a machine
  double comm_between_bytes = 0;  // and to other machines
};

// The least over all g; or over those in `passes`, ascending, where there are some.
LowerBound lower_bound(const LowerBoundInput& input, const Rates& rates,
                       std::span<const int> passes = {});

}  // namespace strata::plan
