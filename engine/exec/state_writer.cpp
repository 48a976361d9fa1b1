// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/state_writer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/exec/io_work.h"

namespace strata::exec {
namespace {

using plan::Arena;
using plan::Holding;

constexpr int64_t kPieceBytes = 256 << 10;  // that are encoded, and moved, at a time
constexpr double kWait_s = 0.5;             // a wait may return early

// An f32 master is kept in two planes.
bool has_part_of(const Holding& holding, const PlaneValues& given) {
  const plan::Value& value = holding.value;
  if (value.kind != plan::ValueKind::kPlane || value.segment != given.segment) return false;
  return value.plane == given.plane || (given.plane == Plane::kHi && value.plane == Plane::kLo);
}

// What a plane keeps of the values.
void encode(Recipe recipe, Plane plane, std::span<const float> values, std::byte* to) {
  if (plane == Plane::kExpAvg || plane == Plane::kExpAvgSq) {
    std::memcpy(to, values.data(), values.size_bytes());
    return;
  }
  const bool is_hi = plane == Plane::kHi;
  const WeightPlanes planes = weight_planes(recipe, is_hi ? to : nullptr, is_hi ? nullptr : to);
  for (size_t i = 0; i < values.size(); ++i) planes.set(static_cast<int64_t>(i), values[i]);
}

}  // namespace

Executor::Impl::StateWriter::StateWriter(Impl& impl) : impl_(impl) {}

void Executor::Impl::StateWriter::put(const PlaneValues& given) {
  for (const Holding& holding : impl_.plan_.boundary) {
    if (!has_part_of(holding, given)) continue;
    const int64_t width = width_of(holding.value.plane, impl_.plan_.recipe);
    const int64_t last =
        std::min(given.first + std::ssize(given.values), (holding.first + holding.bytes) / width);
    const int64_t most = kPieceBytes / width;
    for (int64_t at = std::max(given.first, holding.first / width); at < last; at += most) {
      const int64_t count = std::min(most, last - at);
      encoded_.resize(static_cast<size_t>(count * width));
      encode(
          impl_.plan_.recipe, holding.value.plane,
          given.values.subspan(static_cast<size_t>(at - given.first), static_cast<size_t>(count)),
          encoded_.data());
      write({.holding = holding, .skip = at * width - holding.first, .bytes = encoded_});
    }
  }
}

void Executor::Impl::StateWriter::write(const Part& part) {
  if (part.holding.arena == Arena::kNvme) return write_to_nvme(part);
  if (part.holding.arena == Arena::kDevice) return write_to_device(part);
  std::memcpy(impl_.at(part.holding.arena, part.holding.offset + part.skip), part.bytes.data(),
              part.bytes.size());
}

void Executor::Impl::StateWriter::write_to_device(const Part& part) {
  if (queue_ == nullptr) queue_ = impl_.device_->make_queue("write", 1);
  std::byte* to = impl_.at(Arena::kDevice, part.holding.offset + part.skip);
  const auto bytes = static_cast<int64_t>(part.bytes.size());
  const std::array<kernels::MemoryRange, 2> ranges = {
      {{.data = to, .bytes = bytes, .written = true}, {.data = part.bytes.data(), .bytes = bytes}}};
  queue_->begin("write", ranges);
  queue_->copy(to, part.bytes.data(), bytes);
  copies_ = queue_->end();
  while (queue_->completed() < copies_) queue_->sleep(copies_, kWait_s);
}

// Where the checksum block ends that would end at `wanted`: there, or before that at the end of all
// that is written together. Such extents have one tag and follow each other; others begin on blocks
// of their own.
int64_t Executor::Impl::StateWriter::end_of_block(const Holding& holding, int64_t wanted) const {
  const uint64_t tag = tag_of(holding.value);
  int64_t end = holding.offset + holding.bytes;
  while (end < wanted) {
    const auto next = std::ranges::find_if(impl_.plan_.boundary, [&](const Holding& one) {
      return one.arena == Arena::kNvme && one.offset == end && one.bytes > 0 &&
             tag_of(one.value) == tag;
    });
    if (next == impl_.plan_.boundary.end()) return end;
    end += next->bytes;
  }
  return wanted;
}

void Executor::Impl::StateWriter::write_to_nvme(const Part& part) {
  if (channel_ == nullptr) {
    io::ChannelOptions options = impl_.channel_options(plan::Lane::kWrite);
    options.max_transfers = 1;
    blocks_ = memory::Arena(kPieceBytes);
    channel_ = std::make_unique<io::Channel>(*impl_.volume_, options);
  }
  const Holding& holding = part.holding;
  const auto block = static_cast<int64_t>(impl_.volume_->block_bytes());
  const uint64_t tag = tag_of(holding.value);
  const int64_t first = holding.offset + part.skip;
  const int64_t last = first + static_cast<int64_t>(part.bytes.size());
  for (int64_t at = first; at < last;) {
    const int64_t begin = at / block * block;
    const int64_t until = std::min(last, begin + kPieceBytes);
    const int64_t end = end_of_block(holding, round_up(until, block));
    const int64_t tail = until / block * block;
    const bool keeps_head = at > begin;
    const bool keeps_tail = until < end && !(keeps_head && tail == begin);
    std::byte* const to = blocks_.data();
    if (keeps_head)
      move(io::Direction::kRead, begin, std::min(end, begin + block) - begin, tag, to);
    if (keeps_tail) move(io::Direction::kRead, tail, end - tail, tag, to + (tail - begin));
    std::memcpy(to + (at - begin), part.bytes.data() + (at - first),
                static_cast<size_t>(until - at));
    move(io::Direction::kWrite, begin, end - begin, tag, to);
    at = until;
  }
}

void Executor::Impl::StateWriter::move(io::Direction direction, int64_t address, int64_t bytes,
                                       uint64_t tag, std::byte* data) {
  const plan::TwoSides& sides = impl_.plan_.sides;
  const bool second =
      sides.contain(address) && impl_.second_is_live_[impl_.submitted_.load() % kOutstanding];
  io::Transfer transfer;
  transfer.direction = direction;
  transfer.address = static_cast<uint64_t>(address + (second ? sides.bytes : 0));
  transfer.bytes = static_cast<uint64_t>(bytes);
  transfer.data = data;
  transfer.tag = tag;
  channel_->submit(&transfer);
  while (channel_->poll() == 0) channel_->wait(kWait_s);
  if (transfer.error) throw Error(*transfer.error);
}

}  // namespace strata::exec
