// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/exec/device_group.h"

namespace strata::exec {

// A group for values of a device that the other group exchanges. Bytes pass through a bounce buffer
// in host memory: while one half of it is exchanged, the other is filled from the device or emptied
// to it. Since a sum does not depend on what is summed beside it, pieces change no bit. All ranks
// need bounce buffers of one size, because they cut values by it.
class BouncedGroup : public DeviceGroup {
 public:
  // While copies are under way, `keep_waiting` is called now and then; it throws to end the wait.
  // The group and the device must outlive this.
  BouncedGroup(comm::Group& group, kernels::Device& device, const char* name,
               std::function<void()> keep_waiting);

  void copy(void* to, const void* from, int64_t bytes) override;
  void gather_chunks(std::span<const comm::GatherRange> ranges) override;
  void reduce_chunks(std::span<const comm::ReduceRange> ranges, Payload payload) override;
  using DeviceGroup::all_reduce_sum;
  void all_reduce_sum(float* values, int64_t count, Payload payload) override;
  void all_to_all(const comm::AllToAll& exchange) override;
  void send(const comm::Message& message) override;
  void recv(const comm::Message& message) override;

 private:
  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    int64_t bytes = 0;
  };
  // Parts of equal size, one behind the other: one for each rank, or one.
  struct Value {
    std::byte* parts = nullptr;
    int64_t part_bytes = 0;
    std::byte* out = nullptr;  // where the sum of this rank's part goes, of a sum
  };
  // The same stretch of all parts of a value; in the buffer one follows the other.
  struct Piece {
    Value value;
    int64_t first = 0;  // in each part
    int64_t bytes = 0;
    std::byte* buffer = nullptr;
  };
  using Pieces = std::vector<Piece>;
  // What of a piece is copied to or from the device.
  enum class Moved : uint8_t { kNothing, kOwn, kOthers, kAll, kSum, kSent, kReceived };
  // How values pass the buffer.
  struct Way {
    int parts = 1;
    Moved down = Moved::kAll;
    Moved up = Moved::kAll;
  };
  // A queue and the copies that are to be issued to it.
  struct Stream {
    std::unique_ptr<kernels::Queue> queue;
    std::vector<Copy> copies;
    std::array<int64_t, 2> ticket = {};  // by half: of its last copies
  };

  template <typename Exchange>
  void pass(const Way& way, const Exchange& exchange);
  bool fill(int half, int parts);
  void add(Stream& stream, const Way& way, const Piece& piece, bool to_device) const;
  void add_parts(Stream& stream, const Piece& piece, int first, int last, bool to_device) const;
  void move(Stream& stream, const Way& way, int half);
  int64_t issue(Stream& stream);
  void await(Stream& stream, int64_t ticket) const;
  std::byte* own_part(const Piece& piece) const { return piece.buffer + rank() * piece.bytes; }
  template <typename Call>
  void pass_message(const comm::Message& message, const Way& way, const Call& call);

  const std::function<void()> keep_waiting_;
  Stream down_, up_;
  std::vector<Value> values_;     // of the call
  size_t next_value_ = 0;         // which of them is the next to be cut,
  int64_t next_first_ = 0;        // and from where
  std::array<Pieces, 2> pieces_;  // by half of the buffer
  std::vector<kernels::MemoryRange> ranges_;
  std::vector<comm::GatherRange> gathers_;
  std::vector<comm::ReduceRange> reduces_;
};

}  // namespace strata::exec
