// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <utility>

#include "engine/plan/activation_path.h"
#include "engine/plan/exchange_path.h"
#include "engine/plan/gradient_path.h"

namespace strata::plan {

// The pieces of one program, new for each.
struct ProgramPieces {
  explicit ProgramPieces(Building& building)
      : exchange(building),
        weights(building),
        activations(building),
        updates(building, weights),
        gradients(building, weights, updates) {}

  ExchangePath exchange;
  WeightsPath weights;
  ActivationPath activations;
  UpdateSchedule updates;
  GradientPath gradients;
};

// Forward and backward, layer-major: every unit runs all micro-batches of a window before the next.
// A framework that computes by itself goes micro-batch by micro-batch.
class PassOrder : BuilderPiece {
 public:
  PassOrder(Building& building, ProgramPieces& pieces)
      : BuilderPiece(building),
        exchange_(pieces.exchange),
        weights_(pieces.weights),
        activations_(pieces.activations),
        updates_(pieces.updates),
        gradients_(pieces.gradients),
        generation_(in_step() ? input_.update().weights : Generation::kOld) {}

  // Forward and backward of a step, with the updates that come with them.
  void train();
  // Forward alone, with the head's loss (Evaluate) or logits, of so many micro-batches.
  void infer(OpKind head, int micro_batches);

 private:
  // The micro-batches of a window.
  struct Span {
    int first = 0;
    int last = 0;  // behind it
  };
  Span span_of(int window, int micro_batches) const;

  void train_external();
  void train_windows();
  void infer_external(int micro_batches);
  void infer_window(OpKind head, const model::Section& section, const Span& span);
  void forward_window(const model::Section& section, const Span& span);
  void backward_window(const model::Section& section, const Span& span);
  void products_window(const model::Section& section, const Span& span);
  const model::Route& route() const { return input_.spec->stage.route; }
  bool has_head() const {
    return segment_of(segment_count() - 1).kind == model::SegmentKind::kHead;
  }
  // Receives what comes before the phase, and sends what it gave.
  void begin_phase(const StageSchedule& schedule, size_t phase, int micro_batches);
  void pass_on(const Span& span);
  void exchange(OpKind kind, const Phase& sender, const Span& span);
  void forward_segment(int segment, const Span& span);
  void forward_micro_batch(int segment, int micro_batch);
  struct Leaves {
    bool interior = false;
    bool output = false;
  };
  // Forward or Recompute of one micro-batch, all its parts.
  void pass(OpKind kind, int segment, int micro_batch, const Leaves& leaves);
  Op& open_pass(OpKind kind, int segment, int micro_batch, int part);
  // What tensor ranks gather: the input of a segment, and the gradient of its output.
  void gather_rows(int segment, int micro_batch);
  void gather_row_gradients(int segment, int micro_batch);
  // An exchange of `bytes` within a group, of values where segments are computed.
  Op& open_exchange(OpKind kind, GroupName group, int segment, int micro_batch, int64_t bytes);
  void close_exchange(const Op& op);
  // A value of which each rank has its part, gathered or summed; of tensor ranks, summed.
  void exchange_shared(OpKind op_kind, GroupName group, ValueKind kind, int segment,
                       int micro_batch);
  void sum_slices(ValueKind kind, int segment, int micro_batch);
  // A part before the branch, whose results ranks exchange; and the end of any part of a pass.
  void open_part_before(OpKind kind, int segment, int micro_batch);
  void close_pass(OpKind kind, int segment);
  // What context ranks share before attention: own keys and values, then those of all.
  void share_keys(OpKind kind, int segment, int micro_batch);
  // Where context ranks swap heads: the two parts before the branch, and what parts exchange.
  void swap_heads(OpKind kind, int segment, int micro_batch, bool fills);
  void swap(ValueKind kind, int segment, int micro_batch);
  int64_t swapped_bytes_of(ValueKind kind) const;  // of all ranks
  void swapped(Mode mode, ValueKind kind, int reduced, int segment, int micro_batch);
  // What tensor ranks add up for norms over all heads before attention: q, k and v, then the sums.
  void share_norms(OpKind kind, int segment, int micro_batch);
  // Of the open op: q, k and v or their gradients, and the sums of own or of all heads.
  void norm_parts(Mode mode, ValueKind kind, int segment, int micro_batch);
  void head_micro_batch(int segment, int micro_batch, OpKind kind);
  void head_part(int segment, int micro_batch, OpKind kind, int part);
  void add_head_gradients(int segment, int micro_batch, int part);
  void backward_unit(int unit, const Span& span);
  void backward_micro_batch(int segment, int micro_batch, bool recomputes);
  void read_for_backward(int segment, int micro_batch, int part);
  // What a part of a backward gives to the segment's gradient, or leaves for delayed products.
  void give_gradients(int segment, int micro_batch, int part);
  void weight_gradient(int segment, int micro_batch);
  // What ranks exchange before a part of a backward, and what that part has of it.
  void exchange_for_backward(int segment, int micro_batch, int part);
  void share_for_backward(int segment, int micro_batch, int part);
  void backward_embedding(int segment, const Span& span);
  void external_use(int use, int micro_batch);
  // Its weights; in the step's first use with the update that waits for that.
  void acquire_updated(int segment);
  void acquire_shared(int segment);
  // Accesses of the open op
  void read_inputs(int segment, int micro_batch);
  void add_input_gradients(int segment, int micro_batch);
  void scratch(int64_t bytes);
  void interior(Mode mode, int segment, int micro_batch, int missing);
  // Of a part of a pass that fills it.
  void fill_interior(int segment, int micro_batch, int part);
  void operands(Mode mode, int segment, int micro_batch, int missing);
  void extend_cache(int segment);
  bool delays(int segment) const { return delays_products(input_.windows, segment_of(segment)); }
  bool slices() const { return input_.spec->tensor.ranks > 1; }
  // Own ones, or those of all ranks.
  enum class Whose : uint8_t { kOwn, kAll };
  void read_rows(int segment, int micro_batch);  // its input
  void share(Mode mode, ValueKind kind, Whose whose, int segment, int micro_batch, int reduced);

  // Where ranks share a value; one of which each has all counts as one of one rank.
  struct Shared {
    int64_t offset = 0;  // of those of all
    int64_t own = 0;     // bytes
    int64_t rank = 0;
    int64_t ranks = 1;
  };
  Shared place_of(ValueKind kind, int segment) const;

  ExchangePath& exchange_;
  WeightsPath& weights_;
  ActivationPath& activations_;
  UpdateSchedule& updates_;
  GradientPath& gradients_;
  const Generation generation_;                 // of the weights that ops read
  std::vector<char> used_;                      // by segment: its first use of the step is emitted
  std::pair<int, int> shared_keys_ = {-1, -1};  // segment and micro-batch whose keys are there
  // By MemoryMap::rows: segment and micro-batch of the output that is there.
  std::array<std::pair<int, int>, 2> gathered_ = {{{-1, -1}, {-1, -1}}};
  Phase phase_;  // which is emitted
};

}  // namespace strata::plan
