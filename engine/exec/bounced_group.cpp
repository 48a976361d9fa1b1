// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/bounced_group.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/units.h"

namespace strata::exec {
namespace {

constexpr int64_t kAlignment = 128;  // of pieces, and of where a part is cut: a FloatBlock
constexpr int64_t kWidth = sizeof(float);
constexpr int kCopiesInFlight = 4;
constexpr double kSleepS = 0.5;

std::byte* bytes_at(float* values) {
  return reinterpret_cast<std::byte*>(values);
}
float* floats_at(std::byte* bytes) {
  return reinterpret_cast<float*>(bytes);
}

}  // namespace

BouncedGroup::BouncedGroup(comm::Group& group, kernels::Device& device, const char* name,
                           std::function<void()> keep_waiting)
    : DeviceGroup(group), keep_waiting_(std::move(keep_waiting)) {
  down_.queue = device.make_queue(name, kCopiesInFlight, true);
  up_.queue = device.make_queue(name, kCopiesInFlight, true);
}

void BouncedGroup::copy(void* to, const void* from, int64_t bytes) {
  down_.copies.push_back({static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes});
  await(down_, issue(down_));
}

// --- pieces --------------------------------------------------------------------------------------

// Fills a half of the buffer with pieces of the values that are left. False: none is. A value is
// cut only where a whole half is too small for it.
bool BouncedGroup::fill(int half, int parts) {
  const int64_t bytes_of_half =
      static_cast<int64_t>(op_.buffer.size()) / 2 / kAlignment * kAlignment;
  Pieces& pieces = pieces_[static_cast<size_t>(half)];
  pieces.clear();
  for (int64_t used = 0; next_value_ < values_.size();) {
    const Value& value = values_[next_value_];
    const int64_t left = value.part_bytes - next_first_;
    const int64_t room = (bytes_of_half - used) / parts;
    if (room < left && used > 0) break;
    const int64_t bytes = room >= left ? left : room / kAlignment * kAlignment;
    STRATA_CHECK(bytes > 0 || left == 0);
    if (bytes > 0) {
      pieces.push_back(
          {value, next_first_, bytes, op_.buffer.data() + half * bytes_of_half + used});
    }
    used += round_up(parts * bytes, kAlignment);
    next_first_ += bytes;
    if (bytes < left) break;
    ++next_value_;
    next_first_ = 0;
  }
  return !pieces.empty();
}

// Parts [first, last) of a piece. Parts that lie one behind the other are one copy.
void BouncedGroup::add_parts(Stream& stream, const Piece& piece, int first, int last,
                             bool to_device) const {
  const bool joined = piece.bytes == piece.value.part_bytes;
  const int step = joined ? std::max(1, last - first) : 1;
  for (int part = first; part < last; part += step) {
    std::byte* const device = piece.value.parts + part * piece.value.part_bytes + piece.first;
    std::byte* const host = piece.buffer + part * piece.bytes;
    stream.copies.push_back(
        {to_device ? device : host, to_device ? host : device, step * piece.bytes});
  }
}

void BouncedGroup::add(Stream& stream, const Way& way, const Piece& piece, bool to_device) const {
  switch (to_device ? way.up : way.down) {
    case Moved::kNothing:
      return;
    case Moved::kOwn:
      return add_parts(stream, piece, rank(), rank() + 1, to_device);
    case Moved::kOthers:
      add_parts(stream, piece, 0, rank(), to_device);
      return add_parts(stream, piece, rank() + 1, way.parts, to_device);
    case Moved::kAll:
      return add_parts(stream, piece, 0, way.parts, to_device);
    case Moved::kSum:
      stream.copies.push_back({piece.value.out + piece.first, own_part(piece), piece.bytes});
      return;
    case Moved::kSent:
      return add_parts(stream, piece, 0, size(), to_device);
    case Moved::kReceived: {
      Piece received = piece;
      received.value.parts = piece.value.out;
      received.buffer += size() * piece.bytes;
      add_parts(stream, received, 0, size(), to_device);
    }
  }
}

// --- copies --------------------------------------------------------------------------------------

// Copies a half of the buffer from the device, or to it.
void BouncedGroup::move(Stream& stream, const Way& way, int half) {
  for (const Piece& piece : pieces_[static_cast<size_t>(half)]) {
    add(stream, way, piece, &stream == &up_);
  }
  if (stream.copies.empty()) return;
  // What the half held before may still be on its way to the device.
  const int64_t before = up_.ticket[static_cast<size_t>(half)];
  if (&stream == &down_ && before > 0) stream.queue->wait(*up_.queue, before);
  stream.ticket[static_cast<size_t>(half)] = issue(stream);
}

int64_t BouncedGroup::issue(Stream& stream) {
  ranges_.clear();
  for (const Copy& copy : stream.copies) {
    if (kernels::covered_bytes(op_.ranges, copy.from, copy.bytes, false) < copy.bytes ||
        kernels::covered_bytes(op_.ranges, copy.to, copy.bytes, true) < copy.bytes) {
      throw Error(
          ErrorCode::kDevice,
          fmt::format("{}: ranks exchange {} bytes that are not all of its op (the plan lacks an "
                      "access, or one is too short)",
                      op_.name, copy.bytes));
    }
    ranges_.push_back({copy.from, copy.bytes, false});
    ranges_.push_back({copy.to, copy.bytes, true});
  }
  stream.queue->begin(op_.name, ranges_);
  for (const Copy& copy : stream.copies) stream.queue->copy(copy.to, copy.from, copy.bytes);
  stream.copies.clear();
  return stream.queue->end();
}

void BouncedGroup::await(Stream& stream, int64_t ticket) const {
  while (stream.queue->completed() < ticket) {
    keep_waiting_();
    stream.queue->sleep(ticket, kSleepS);
  }
}

// Calls exchange(pieces) on each load of a half, while the other half is copied.
template <typename Exchange>
void BouncedGroup::pass(const Way& way, const Exchange& exchange) {
  next_value_ = 0;
  next_first_ = 0;
  int half = 0;
  bool more = fill(half, way.parts);
  if (more) move(down_, way, half);
  while (more) {
    more = fill(1 - half, way.parts);
    if (more) move(down_, way, 1 - half);
    await(down_, down_.ticket[static_cast<size_t>(half)]);
    await(up_, up_.ticket[static_cast<size_t>(half)]);
    exchange(pieces_[static_cast<size_t>(half)]);
    move(up_, way, half);
    half = 1 - half;
  }
  for (const int64_t ticket : up_.ticket) await(up_, ticket);
  values_.clear();
}

// --- calls ---------------------------------------------------------------------------------------

void BouncedGroup::gather_chunks(std::span<const comm::GatherRange> ranges) {
  for (const comm::GatherRange& range : ranges) {
    values_.push_back({static_cast<std::byte*>(range.base), range.part_bytes});
  }
  pass({.parts = size(), .down = Moved::kOwn, .up = Moved::kOthers}, [&](const Pieces& pieces) {
    gathers_.clear();
    for (const Piece& piece : pieces) gathers_.push_back({piece.buffer, piece.bytes});
    group_.gather_chunks(gathers_);
  });
}

void BouncedGroup::reduce_chunks(std::span<const comm::ReduceRange> ranges, Payload payload) {
  for (const comm::ReduceRange& range : ranges) {
    values_.push_back({bytes_at(range.whole), range.part_numel * kWidth, bytes_at(range.out)});
  }
  pass({.parts = size(), .down = Moved::kAll, .up = Moved::kSum}, [&](const Pieces& pieces) {
    reduces_.clear();
    for (const Piece& piece : pieces) {
      reduces_.push_back(
          {floats_at(piece.buffer), piece.bytes / kWidth, floats_at(own_part(piece))});
    }
    group_.reduce_chunks(reduces_, payload);
  });
}

void BouncedGroup::all_reduce_sum(float* values, int64_t count, Payload payload) {
  values_.push_back({bytes_at(values), count * kWidth});
  pass({}, [&](const Pieces& pieces) {
    for (const Piece& piece : pieces) {
      group_.all_reduce_sum(floats_at(piece.buffer), piece.bytes / kWidth, payload);
    }
  });
}

// In the buffer, what is received lies behind what is sent.
void BouncedGroup::all_to_all(const comm::AllToAll& exchange) {
  auto* send = static_cast<std::byte*>(const_cast<void*>(exchange.send));  // only read
  values_.push_back({send, exchange.part_bytes, static_cast<std::byte*>(exchange.receive)});
  const Way way = {.parts = 2 * size(), .down = Moved::kSent, .up = Moved::kReceived};
  pass(way, [&](const Pieces& pieces) {
    for (const Piece& piece : pieces) {
      group_.all_to_all({piece.buffer, piece.buffer + size() * piece.bytes, piece.bytes});
    }
  });
}

template <typename Call>
void BouncedGroup::pass_message(const comm::Message& message, const Way& way, const Call& call) {
  values_.push_back({static_cast<std::byte*>(message.data), message.bytes});
  pass(way, [&](const Pieces& pieces) {
    for (const Piece& piece : pieces) {
      call(comm::Message{piece.buffer, piece.bytes, message.peer, message.tag});
    }
  });
}

void BouncedGroup::send(const comm::Message& message) {
  pass_message(message, {.up = Moved::kNothing},
               [&](const comm::Message& part) { group_.send(part); });
}

void BouncedGroup::recv(const comm::Message& message) {
  pass_message(message, {.down = Moved::kNothing},
               [&](const comm::Message& part) { group_.recv(part); });
}

}  // namespace strata::exec
