// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/compute_probe.h"

#include <algorithm>
#include <map>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/dtype.h"
#include "engine/exec/host_compute.h"
#include "engine/memory/arena.h"
#include "kernels/parallel.h"

namespace strata::exec {
namespace {

using model::SegmentKind;

memory::Arena arena_of(int64_t bytes) {
  return memory::Arena(std::max<int64_t>(bytes, 64));
}

void fill_weights(const memory::Arena& arena, int64_t count, DType dtype) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>((i * 2654435761u) % 1024) * 1e-4f - 0.05f;
    if (dtype == DType::kF32) {
      reinterpret_cast<float*>(arena.data())[i] = value;
    } else {
      reinterpret_cast<uint16_t*>(arena.data())[i] = to_bf16(value);
    }
  }
}

// The buffers of one segment, and the calls of a step on it.
class SegmentProbe {
 public:
  SegmentProbe(const ComputeProbe& probe, const HostCompute& compute, int index)
      : probe_(probe),
        compute_(compute),
        parallel_(probe.threads),
        segment_(probe.spec.segments[static_cast<size_t>(index)]),
        print_(model::footprint(probe.spec, index, probe.shape, probe.recipe, compute.device())) {
    const DType dtype = weight_dtype(probe.recipe);
    const int64_t width = bytes_of(dtype);
    const int64_t boundary = model::boundary_bytes(probe.spec, probe.shape, probe.recipe);
    weights_ = arena_of(segment_.numel() * width);
    fill_weights(weights_, segment_.numel(), dtype);
    gradient_ = arena_of(segment_.trainable_numel * 4);
    if (segment_.shares >= 0) {
      const model::Segment& shared = probe.spec.segments[static_cast<size_t>(segment_.shares)];
      shared_weights_ = arena_of(shared.numel() * width);
      fill_weights(shared_weights_, shared.numel(), dtype);
      if (shared.trainable_numel > 0) shared_gradient_ = arena_of(shared.trainable_numel * 4);
    }
    input_ = arena_of(boundary);
    fill_weights(input_, probe.shape.tokens() * probe.spec.architecture.hidden, dtype);
    output_ = arena_of(boundary);
    grad_output_ = arena_of(boundary);
    fill_weights(grad_output_, probe.shape.tokens() * probe.spec.architecture.hidden, dtype);
    grad_input_ = arena_of(boundary);
    interior_ = arena_of(print_.interior_bytes);
    workspace_ =
        arena_of(std::max({print_.forward_workspace_bytes, print_.recompute_workspace_bytes,
                           print_.backward_workspace_bytes}));
    tokens_.assign(static_cast<size_t>(probe.shape.tokens()), 0);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] = static_cast<int32_t>(i * 2654435761u %
                                        static_cast<uint64_t>(probe.spec.architecture.vocabulary));
    }
  }

  double flops() const {
    return segment_.kind == SegmentKind::kHead
               ? print_.backward_flops
               : print_.forward_flops + print_.recompute_flops + print_.backward_flops;
  }

  // Seconds of all calls that a step makes for one micro-batch.
  double measure() {
    run();
    double best = run();
    for (int i = 1; i < probe_.rounds; ++i) best = std::min(best, run());
    return best;
  }

 private:
  double run() {
    const double begin_s = now_s();
    parallel_.run([&] {
      if (segment_.kind == SegmentKind::kHead) {
        SegmentCall call = common();
        call.input = input_.data();
        call.grad_input = grad_input_.data();
        add_gradients(call);
        compute_.loss(call);
      } else {
        run_block();
      }
    });
    first_ = false;
    return now_s() - begin_s;
  }

  void run_block() {
    const bool embedding = segment_.kind == SegmentKind::kEmbedding;
    SegmentCall forward = common();
    if (!embedding) forward.input = input_.data();
    forward.output = output_.data();
    compute_.forward(forward);
    SegmentCall recompute = forward;
    recompute.interior = interior_.data();
    // The last segment of a unit needs no output.
    if (segment_.kind == SegmentKind::kMlp) recompute.output = nullptr;
    if (!embedding) compute_.recompute(recompute);
    if (segment_.trainable_numel == 0 && embedding) return;
    SegmentCall backward = common();
    if (!embedding) backward.input = input_.data();
    backward.interior = interior_.data();
    backward.grad_output = grad_output_.data();
    if (!embedding) backward.grad_input = grad_input_.data();
    add_gradients(backward);
    compute_.backward(backward);
  }

  SegmentCall common() {
    SegmentCall call;
    call.segment = static_cast<int>(&segment_ - probe_.spec.segments.data());
    call.weights = weights_.data();
    call.shared_weights = shared_weights_.data();
    call.workspace = workspace_.data();
    call.tokens = tokens_.data();
    call.targets = tokens_.data();
    call.loss_sum = &loss_;
    call.grad_scale = 1.0f / static_cast<float>(probe_.shape.tokens());
    return call;
  }

  void add_gradients(SegmentCall& call) const {
    call.grad = segment_.trainable_numel > 0 ? reinterpret_cast<float*>(gradient_.data()) : nullptr;
    call.shared_grad = reinterpret_cast<float*>(shared_gradient_.data());
    call.grad_first = call.shared_grad_first = first_;
  }

  const ComputeProbe& probe_;
  const HostCompute& compute_;
  const kernels::Parallel parallel_;
  const model::Segment& segment_;
  const model::Footprint print_;
  memory::Arena weights_, gradient_, shared_weights_, shared_gradient_;
  memory::Arena input_, output_, grad_output_, grad_input_, interior_, workspace_;
  std::vector<int32_t> tokens_;
  double loss_ = 0;
  bool first_ = true;
};

}  // namespace

double probe_compute(const ComputeProbe& probe) {
  const HostCompute compute(probe.spec, probe.recipe, probe.shape, probe.backend, probe.threads);
  struct Measured {
    double flops = 0;
    double seconds = 0;
  };
  std::map<SegmentKind, Measured> by_kind;
  Measured total;
  for (size_t i = 0; i < probe.spec.segments.size(); ++i) {
    const SegmentKind kind = probe.spec.segments[i].kind;
    STRATA_CHECK(kind != SegmentKind::kExternal);
    auto found = by_kind.find(kind);
    if (found == by_kind.end()) {
      SegmentProbe segment(probe, compute, static_cast<int>(i));
      found = by_kind.emplace(kind, Measured{segment.flops(), segment.measure()}).first;
    }
    total.flops += found->second.flops;
    total.seconds += found->second.seconds;
  }
  return total.flops / total.seconds;
}

}  // namespace strata::exec
