// SPDX-License-Identifier: Apache-2.0
// How the lanes that move bytes between host memory and NVMe do their ops.
#include "engine/exec/io_work.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/exec/op_access.h"

namespace strata::exec {
namespace {

using plan::ValueKind;

constexpr double kPollTimeout_s = 0.5;  // so that a stop is noticed; wake() ends a wait at once

// Whether the op converts frozen weights; it is done while it is issued, not by the channel.
bool is_convert(const plan::Op& op) {
  return op.kind == plan::OpKind::kConvert;
}

}  // namespace

uint64_t tag_of(const plan::Value& value) {
  const bool weights = value.kind == ValueKind::kPlane && value.plane == Plane::kHi;
  const uint64_t object = value.kind == ValueKind::kActivation ? 3
                          : value.kind == ValueKind::kGradient ? 2
                          : weights                            ? 0
                                                               : 1;
  return static_cast<uint64_t>(value.segment) * 4 + object + 1;
}

uint32_t most_transfers(const plan::Plan& plan, plan::Lane lane) {
  uint32_t most = 1;
  for (const plan::Program& program : plan.programs) {
    for (const uint32_t index : program.lanes[index_of(lane)]) {
      uint32_t moves = 0;
      for_each_move(program.accesses_of(program.ops[index]),
                    [&](const plan::Access&, const plan::Access&) { ++moves; });
      most = std::max(most, moves);
    }
  }
  return most * static_cast<uint32_t>(plan.io_depth);
}

// The address of an access when an op of instance n is issued. The side that is live when n begins
// is known by then. If step n overlaps step n - 1, the op has waited until the write of n - 1 to
// the same extent was over or skipped: the verifier proves that, because both sides are one place
// to it. That write has waited for Decide of n - 2, which says whether n - 1 flips the sides. If
// the side of the value depends on the update of n itself, the op reads the decision, so it runs
// between Decide of n - 1 and Decide of n.
uint64_t Executor::Impl::IoWork::address_of(const plan::Access& access, const InFlight& one) const {
  const plan::TwoSides& sides = impl_.plan_.sides;
  if (!sides.contain(access.offset)) return static_cast<uint64_t>(access.offset);
  const bool depends = plan::side_of(access, false) != access.side;
  const bool pending = depends && impl_.decision_of(*one.op, *one.instance).valid;
  const bool other = plan::side_of(access, pending) == plan::Side::kOther;
  const bool second = impl_.second_is_live_[one.instance->sequence % kOutstanding] != other;
  return static_cast<uint64_t>(access.offset + (second ? sides.bytes : 0));
}

// Joins moves that are adjacent on both sides into one transfer.
void Executor::Impl::IoWork::prepare(InFlight& moving) const {
  const bool fetch = moving.op->kind == plan::OpKind::kFetch;
  size_t count = 0;
  const auto accesses = impl_.program_of(*moving.instance).accesses_of(*moving.op);
  for_each_move(accesses, [&](const plan::Access& read, const plan::Access& to) {
    const uint64_t address = address_of(fetch ? read : to, moving);
    std::byte* data = impl_.at(fetch ? to : read);
    const uint64_t tag = tag_of(read.value);
    if (count > 0) {
      io::Transfer& last = moving.transfers[count - 1];
      if (last.address + last.bytes == address && last.tag == tag &&
          static_cast<std::byte*>(last.data) + last.bytes == data) {
        last.bytes += static_cast<uint64_t>(read.bytes);
        return;
      }
    }
    if (moving.transfers.size() <= count) moving.transfers.emplace_back();
    io::Transfer& transfer = moving.transfers[count++];
    transfer.direction = fetch ? io::Direction::kRead : io::Direction::kWrite;
    transfer.address = address;
    transfer.bytes = static_cast<uint64_t>(read.bytes);
    transfer.data = data;
    transfer.tag = tag;
    transfer.done = false;
    transfer.error.reset();
  });
  moving.transfer_count = count;
}

void Executor::Impl::IoWork::start(InFlight& one) {
  one.transfer_count = 0;
  if (!one.runs) return;
  one.took_time = is_convert(*one.op);
  if (one.took_time) return impl_.run_convert(*one.op, *one.instance);
  prepare(one);
  for (size_t i = 0; i < one.transfer_count; ++i) channel_->submit(&one.transfers[i]);
}

bool Executor::Impl::IoWork::is_done(InFlight& one) {
  if (channel_ != nullptr && channel_->in_flight() > 0) channel_->poll();
  for (size_t i = 0; i < one.transfer_count; ++i) {
    if (!one.transfers[i].done) return false;
    if (one.transfers[i].error) throw Error(*one.transfers[i].error);
  }
  return true;
}

void Executor::Impl::IoWork::finish(InFlight& one) {
  one.end_s = now_s();
  int64_t bytes = one.runs && is_convert(*one.op) ? one.op->bytes : 0;
  for (size_t i = 0; i < one.transfer_count; ++i) {
    bytes += static_cast<int64_t>(one.transfers[i].bytes);
  }
  one.instance->nvme_bytes[static_cast<size_t>(one.op->lane)] += bytes;
}

void Executor::Impl::IoWork::sleep(const InFlight&) {
  channel_->wait(kPollTimeout_s);
}

void Executor::Impl::IoWork::wake() {
  if (channel_ != nullptr) channel_->wake();
}

}  // namespace strata::exec
