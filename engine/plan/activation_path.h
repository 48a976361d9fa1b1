// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/builder_piece.h"
#include "engine/plan/slot_ring.h"

namespace strata::plan {

// Outputs of segments, and where those that units begin with (the checkpoints) wait for backward:
// in the compute arena, in host memory, or on NVMe.
class ActivationPath : BuilderPiece {
 public:
  explicit ActivationPath(Building& building)
      : BuilderPiece(building),
        ring_("activation ring", map_.activation_ring, placement_.activation_ring) {}

  void bring(int segment, int micro_batch);  // before an op that reads the segment's output
  void take(int segment, int micro_batch);   // before an op that writes it: a slot, if it needs one
  // After an op that wrote it: it goes to where it waits.
  void keep(int segment, int micro_batch);
  void release(int segment, int micro_batch);

  // Accesses of the open op
  void read(int segment, int micro_batch);
  void write(int segment, int micro_batch);
  void read_gradient(int segment, int micro_batch);  // of that output
  // The same of as many bytes as ranks exchange, without those that fill a page.
  void read_rows(int segment, int micro_batch, int64_t bytes);
  void read_row_gradients(int segment, int micro_batch, int64_t bytes);
  // What `reader`'s backward adds to it. Readers go back in descending order.
  void add_gradient(int segment, int reader, int micro_batch);

 private:
  struct At {
    Arena arena;
    int64_t offset;
  };
  int key_of(int segment, int micro_batch) const {
    return segment * input_.micro_batches + micro_batch;
  }
  Value value_of(int segment, int micro_batch) const;
  int64_t offset_of(int segment, int micro_batch);
  void gradient(Mode mode, int segment, int micro_batch, int missing, int64_t bytes);
  void move(OpKind kind, Lane lane, int segment, int micro_batch, const At& from, const At& to);
  int64_t fetch(int segment, int micro_batch);

  SlotRing ring_;
};

}  // namespace strata::plan
