// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/compute_probe.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/units.h"
#include "engine/exec/probe_values.h"
#include "engine/exec/rope_table.h"
#include "engine/exec/segment_compute.h"
#include "engine/model/architecture.h"
#include "kernels/parallel.h"

namespace strata::exec {
namespace {

using model::SegmentKind;

constexpr double kNever = std::numeric_limits<double>::infinity();

enum class Call : uint8_t { kForward, kRecompute, kBackward, kLoss };
constexpr int kCallsMax = 3;  // of a round

// The buffers of one segment, and the calls of a step on it.
class SegmentProbe {
 public:
  SegmentProbe(const ComputeProbe& probe, const SegmentCompute& compute, kernels::Queue& queue,
               int index)
      : probe_(probe),
        compute_(compute),
        queue_(queue),
        on_device_(probe.device.description().discrete),
        parallel_(on_device_ ? 1 : probe.device.description().threads),
        index_(index),
        segment_(probe.spec.segments[static_cast<size_t>(index)]),
        print_(model::footprint(probe.spec, index, probe.shape, probe.recipe,
                                probe.device.description())) {
    set_sizes();
    for (size_t i = 0; i < sizes_.size(); ++i) {
      offsets_[i] = bytes_;
      bytes_ += round_up(sizes_[i], kAlignment);
    }
    const bool head = segment_.kind == SegmentKind::kHead;
    const bool embedding = segment_.kind == SegmentKind::kEmbedding;
    calls_.push_back(head ? Call::kLoss : Call::kForward);
    if (!head && !embedding) calls_.push_back(Call::kRecompute);
    if (!head && (!embedding || segment_.trainable_numel > 0)) calls_.push_back(Call::kBackward);
  }

  int64_t bytes() const { return bytes_; }

  double flops() const {
    if (segment_.kind == SegmentKind::kHead) return print_.backward_flops;
    const double again = ends_unit() ? print_.recompute_flops : print_.forward_flops;
    return print_.forward_flops + probe_.recomputed * again + print_.backward_flops;
  }

  // Seconds of all calls that a step makes for one micro-batch.
  double measure() {
    block_ = std::make_unique<DeviceBlock>(probe_.device, bytes_);
    fill();
    run(1);
    const double once_s = run(1);
    if (probe_.rounds < 2 || once_s > probe_.long_s) return once_s;
    return std::min(once_s, run(probe_.rounds - 1));
  }

 private:
  enum Buffer : uint8_t {
    kWeights,
    kGradient,
    kSharedWeights,
    kSharedGradient,
    kInput,
    kOutput,
    kGradOutput,
    kGradInput,
    kInterior,
    kWorkspace,
    kTokens,
    kTargets,
    kRope,
    kLossSum,
    kBuffers
  };
  static constexpr int64_t kAlignment = 4096;

  void set_sizes() {
    const model::BatchShape& shape = probe_.shape;
    const int64_t width = bytes_of(weight_dtype(probe_.recipe));
    sizes_[kWeights] = segment_.numel() * width;
    sizes_[kGradient] = segment_.trainable_numel * 4;
    if (segment_.shares >= 0) {
      const model::Segment& shared = probe_.spec.segments[static_cast<size_t>(segment_.shares)];
      sizes_[kSharedWeights] = shared.numel() * width;
      sizes_[kSharedGradient] = shared.trainable_numel * 4;
    }
    sizes_[kInput] = sizes_[kOutput] = sizes_[kGradOutput] = sizes_[kGradInput] =
        model::boundary_bytes(probe_.spec, shape, probe_.recipe);
    sizes_[kInterior] = print_.interior_bytes;
    sizes_[kWorkspace] = std::max({print_.forward_workspace_bytes, print_.recompute_workspace_bytes,
                                   print_.backward_workspace_bytes});
    sizes_[kTokens] = model::token_bytes(shape);
    sizes_[kTargets] = model::target_bytes(shape);
    if (has_rope()) sizes_[kRope] = model::rope_bytes(architecture(), rope_table(), shape);
    sizes_[kLossSum] = sizeof(double);
  }

  // Such a segment is recomputed without its output.
  bool ends_unit() const { return segment_.kind == SegmentKind::kMlp; }

  const model::Architecture& architecture() const { return probe_.spec.architecture; }
  bool has_rope() const {
    return segment_.kind == SegmentKind::kAttention && model::rope_tables(architecture()) > 0;
  }
  int rope_table() const { return model::rope_table_of(architecture(), segment_.layer); }

  // Null for a buffer that the segment does not have.
  template <typename T = std::byte>
  T* at(Buffer buffer) const {
    return sizes_[buffer] > 0 ? reinterpret_cast<T*>(block_->data() + offsets_[buffer]) : nullptr;
  }

  // Different tokens; with documents, each row is one.
  void fill() {
    const ProbeValues values(probe_.device, weight_dtype(probe_.recipe));
    const int64_t token_bytes = probe_.shape.tokens() * 4;
    const PinnedBlock inputs(probe_.device, token_bytes + sizes_[kRope]);
    for (int64_t i = 0; i < probe_.shape.tokens(); ++i) {
      reinterpret_cast<int32_t*>(inputs.data())[i] =
          static_cast<int32_t>(i * int64_t{2654435761} % architecture().vocabulary);
    }
    if (has_rope()) {
      const std::vector<float> rope = rope_values(architecture(), rope_table(), probe_.shape);
      STRATA_CHECK(std::ssize(rope) * 4 == sizes_[kRope]);
      std::memcpy(inputs.data() + token_bytes, rope.data(), rope.size() * 4);
    }
    const kernels::MemoryRange ranges[] = {whole(), values.range(), inputs.range()};
    queue_.begin("probe", ranges);
    for (const Buffer buffer : {kWeights, kSharedWeights, kInput, kGradOutput}) {
      values.fill(queue_, at(buffer), sizes_[buffer]);
    }
    for (const Buffer buffer : {kTokens, kTargets}) {
      queue_.copy(at(buffer), inputs.data(), token_bytes);
    }
    if (has_rope()) queue_.copy(at(kRope), inputs.data() + token_bytes, sizes_[kRope]);
    await(queue_.end());
  }

  kernels::MemoryRange whole() const { return {block_->data(), bytes_, true}; }

  void await(int64_t count) {
    while (queue_.completed() < count) queue_.sleep(count, 1.0);
  }

  // Seconds of the fastest of some rounds. They are issued without waiting, so that a device has
  // the next call when it ends one.
  double run(int rounds) {
    std::vector<double> issued_s;
    int64_t last = 0;
    for (int round = 0; round < rounds; ++round) {
      for (const Call call : calls_) {
        const double begin_s = now_s();
        last = issue(call);
        issued_s.push_back(now_s() - begin_s);
      }
    }
    first_ = false;
    await(last);
    double best_s = kNever;
    const auto count = std::ssize(issued_s);
    for (int64_t i = 0; i < count;) {
      double round_s = 0;
      for (const Call call : calls_) {
        const kernels::Queue::Span span = queue_.span_of(last - count + ++i);
        const double call_s =
            on_device_ ? span.end_s - span.begin_s : issued_s[static_cast<size_t>(i - 1)];
        round_s += (call == Call::kRecompute ? probe_.recomputed : 1) * call_s;
      }
      best_s = std::min(best_s, round_s);
    }
    return best_s;
  }

  int64_t issue(Call kind) {
    const SegmentCall call = call_of(kind);
    const kernels::MemoryRange range = whole();
    queue_.begin("probe", {&range, 1});
    parallel_.run([&] {
      switch (kind) {
        case Call::kForward:
          return compute_.forward(call);
        case Call::kRecompute:
          return compute_.recompute(call);
        case Call::kBackward:
          return compute_.backward(call);
        case Call::kLoss:
          return compute_.loss(call);
      }
    });
    return queue_.end();
  }

  SegmentCall call_of(Call kind) const {
    SegmentCall call;
    call.segment = index_;
    call.weights = at(kWeights);
    call.shared_weights = at(kSharedWeights);
    call.workspace = at(kWorkspace);
    call.tokens = at<int32_t>(kTokens);
    call.targets = at<int32_t>(kTargets);
    call.rope = at<float>(kRope);
    call.loss_sum = at<double>(kLossSum);
    call.grad_scale = 1.0f / static_cast<float>(probe_.shape.tokens());
    const bool embedding = segment_.kind == SegmentKind::kEmbedding;
    if (!embedding) call.input = at(kInput);
    const bool forward = kind == Call::kForward;
    if (forward || (kind == Call::kRecompute && !ends_unit())) call.output = at(kOutput);
    if (!forward) call.interior = at(kInterior);
    if (kind != Call::kBackward && kind != Call::kLoss) return call;
    if (kind == Call::kBackward) call.grad_output = at(kGradOutput);
    if (!embedding) call.grad_input = at(kGradInput);
    call.grad = at<float>(kGradient);
    call.shared_grad = at<float>(kSharedGradient);
    call.grad_first = call.shared_grad_first = first_;
    return call;
  }

  const ComputeProbe& probe_;
  const SegmentCompute& compute_;
  kernels::Queue& queue_;
  const bool on_device_;
  const kernels::Parallel parallel_;
  const int index_;
  const model::Segment& segment_;
  const model::Footprint print_;
  std::array<int64_t, kBuffers> sizes_ = {};
  std::array<int64_t, kBuffers> offsets_ = {};
  int64_t bytes_ = 0;
  std::vector<Call> calls_;
  std::unique_ptr<DeviceBlock> block_;
  bool first_ = true;
};

// Segments that are alike take the same time.
using Kind = std::tuple<SegmentKind, bool, int64_t, int64_t>;
Kind kind_of(const model::ModelSpec& spec, const model::Segment& segment) {
  const bool windowed =
      segment.kind == SegmentKind::kAttention && spec.architecture.is_windowed(segment.layer);
  return {segment.kind, windowed, segment.numel(), segment.trainable_numel};
}

}  // namespace

double probe_compute(const ComputeProbe& probe) {
  const int depth = kCallsMax * std::max(1, probe.rounds);
  const auto queue = probe.device.make_queue("probe", depth);
  const SegmentCompute compute(probe.spec, probe.recipe, probe.shape, probe.device, *queue);
  struct Measured {
    double flops = 0;
    double seconds = 0;
  };
  std::map<Kind, Measured> by_kind;
  Measured total;
  for (size_t i = 0; i < probe.spec.segments.size(); ++i) {
    const model::Segment& one = probe.spec.segments[i];
    STRATA_CHECK(one.kind != SegmentKind::kExternal);
    auto found = by_kind.find(kind_of(probe.spec, one));
    if (found == by_kind.end()) {
      SegmentProbe segment(probe, compute, *queue, static_cast<int>(i));
      if (segment.bytes() > probe.device_bytes) return 0;
      const Measured measured = {segment.flops(), segment.measure()};
      found = by_kind.emplace(kind_of(probe.spec, one), measured).first;
    }
    total.flops += found->second.flops;
    total.seconds += found->second.seconds;
  }
  return total.flops / total.seconds;
}

double probe_block(const BlockProbe& block, Recipe recipe, kernels::Device& device) {
  model::Architecture llama;
  llama.model_type = "llama";
  llama.hidden = block.hidden;
  llama.layers = 1;
  llama.heads = block.heads;
  llama.kv_heads = block.kv_heads;
  llama.head_size = block.hidden / block.heads;
  llama.feed_forward = block.feed_forward;
  llama.vocabulary = 2048;
  llama.max_position = block.shape.length;
  llama.tied = true;
  const model::ModelSpec spec = model::build_spec(llama);
  return probe_compute(
      {.spec = spec, .recipe = recipe, .shape = block.shape, .device = device, .rounds = 1});
}

}  // namespace strata::exec
