// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "engine/plan/builder_piece.h"
#include "engine/plan/slot_ring.h"

namespace strata::plan {

// Brings weights to where ops read them, and keeps what ranks and places have of them equal.
class WeightsPath : BuilderPiece {
 public:
  explicit WeightsPath(Building& building);

  // A segment's whole weights are where ops read them. `update`, where it is given, is called with
  // the place of the own part when that holds the old generation, before it goes on from there.
  using UpdateOwnPart = std::function<void(const Place& part)>;
  void acquire(int segment, Generation generation, const UpdateOwnPart& update = nullptr);
  void release(int segment);
  void read(int segment, Generation generation);  // accesses of the open op

  Place part(int segment) const { return parts_[segment]; }  // the own part, since acquire()
  Place take(int segment);  // of the own part: resident, or a slot of the ring
  Place fetch(int segment, Generation generation);
  void release_part(int segment) { ring_.release(segment); }
  void spill(int segment, const Place& place, const Update& update);
  // After an update: own parts go to all ranks where each keeps the whole weights, and to NVMe.
  void after_update(int segment, const Place& part, const Update& update);
  // The own part at `part` comes to the device, and from there to all ranks that have parts.
  void share_on_device(int segment, const Place& part, const Place& whole, Generation generation);
  // Own parts at `from` become the whole segment at `to`, on every rank; in place where they are
  // one.
  void gather(int segment, const Place& from, const Place& to, Generation generation);
  // From their source to host memory: weights of the chunk's own part to `weights`; its state,
  // where it is trained, to `state`.
  void convert(Lane lane, int chunk, int64_t weights, const StateSlot& state);

 private:
  Place ring_place(int64_t offset) const;
  void fetch_into(int segment, const Place& place, Generation generation);
  void fetch_stored(int segment, const Place& place, Generation generation);
  void upload(int segment, const Place& from, const Place& to, Generation generation);
  void acquire_whole(int segment, Generation generation, const UpdateOwnPart& update);
  void acquire_sharded(int segment, Generation generation, const UpdateOwnPart& update);
  void acquire_discrete(int segment, Generation generation, const UpdateOwnPart& update);

  SlotRing ring_, device_ring_;
  std::vector<Place> wholes_;  // by segment: where ops read its weights now
  std::vector<Place> parts_;   // by segment: where the own part is, for an update
};

}  // namespace strata::plan
