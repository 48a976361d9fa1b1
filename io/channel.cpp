// SPDX-License-Identifier: Apache-2.0
#include "io/channel.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>

#include "engine/base/check.h"
#include "io/transfer_error.h"

namespace strata::io {
namespace {

constexpr uint32_t kMaxRereads = 2;

// Whether the error is one that a drive returns for a sector that it could not read: EIO, a bad
// medium, wrong protection information, or a remote drive.
bool may_heal(int error_number) {
  return error_number == EIO || error_number == ENODATA || error_number == EILSEQ ||
         error_number == EREMOTEIO;
}

RingOptions ring_options(Volume& volume, const ChannelOptions& options) {
  RingOptions ring;
  ring.backend = options.backend;
  ring.depth = options.depth;
  for (const ScratchFile& file : volume.files()) ring.files.push_back({file.fd, file.name});
  ring.regions = options.regions;
  ring.alignment = volume.alignment();
  ring.warn_after_s = options.warn_after_s;
  ring.deadline_s = options.deadline_s;
  ring.simulated = options.simulated;
  ring.notices = &volume.notices();
  return ring;
}

// How many requests a file has in flight right after one completes, when all files are kept busy.
uint32_t share_of_file(const Volume& volume, const ChannelOptions& options) {
  auto share = options.depth / static_cast<uint32_t>(volume.files().size());
  if (options.file_depth > 0) share = std::min(share, options.file_depth);
  return std::max(2u, share) - 1;
}

void check_options(const Volume& volume, const ChannelOptions& options) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::kConfig, "I/O channel: " + what);
  };
  if (options.depth == 0 || options.depth > 1024) {
    refuse("depth " + std::to_string(options.depth) + " must be from 1 to 1024");
  }
  if (options.request_bytes == 0 || options.request_bytes % volume.block_bytes() != 0 ||
      options.request_bytes > (uint64_t{1} << 30)) {
    refuse("request size " + std::to_string(options.request_bytes) +
           " must be a multiple of the block size " + std::to_string(volume.block_bytes()) +
           ", at most 1 GiB");
  }
  if (options.max_transfers == 0) refuse("max_transfers must not be 0");
  if (!(options.warn_after_s > 0) || !(options.deadline_s > 0))
    refuse("deadlines must be positive");
}

}  // namespace

struct Channel::Pending {
  Transfer* transfer = nullptr;
  Direction direction = Direction::kRead;  // this and the next two: copies, may outlive `transfer`
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t split_bytes = 0;   // already split into requests
  uint64_t sealed_bytes = 0;  // of a write: already hashed; at least split_bytes
  uint32_t requests = 0;      // in flight
  bool queued = false;
  std::unique_ptr<Error> error;
};

struct Channel::Request {
  RingRequest ring;  // first member, so that the ring's pointer is a pointer to this struct
  Pending* pending = nullptr;
  uint64_t address = 0;
  uint32_t rereads = 0;
};

Channel::Channel(Volume& volume, const ChannelOptions& options)
    : volume_(volume),
      limiter_(options.limiter),
      share_(share_of_file(volume, options)),
      request_bytes_(options.request_bytes),
      max_transfers_(options.max_transfers),
      ahead_bytes_(options.depth * options.request_bytes),
      file_depth_(options.file_depth > 0 ? options.file_depth : options.depth),
      verify_(options.verify),
      loads_(volume.files().size()) {
  check_options(volume, options);
  ring_ = std::make_unique<Ring>(ring_options(volume, options));
  pendings_ = std::make_unique<Pending[]>(max_transfers_);
  free_pendings_.reserve(max_transfers_);
  for (uint32_t i = max_transfers_; i > 0; --i) free_pendings_.push_back(&pendings_[i - 1]);
  queue_.resize(max_transfers_);
  settled_.reserve(max_transfers_);
  // Twice the depth: while completed reads are verified, other requests take their place.
  const uint32_t count = options.depth * 2;
  requests_ = std::make_unique<Request[]>(count);
  free_requests_.reserve(count);
  for (uint32_t i = count; i > 0; --i) free_requests_.push_back(&requests_[i - 1]);
  retries_.reserve(count);
  completed_.reserve(count);
  reaped_.resize(options.depth);
  stats_.files.resize(volume.files().size());
}

Channel::~Channel() {
  for (const Request* request : completed_) {
    if (request->ring.direction == Direction::kRead)
      volume_.count_abandoned(request->ring.bytes_moved);
  }
  for (uint32_t i = 0; i < max_transfers_; ++i) {
    if (pendings_[i].transfer != nullptr) forget_from(pendings_[i], 0);
  }
}

const char* Channel::backend_name() const {
  return ring_->backend_name();
}

double Channel::now_s() const {
  return ring_->now_s();
}

void Channel::submit(Transfer* transfer) {
  const uint64_t block = volume_.block_bytes();
  STRATA_CHECK(!free_pendings_.empty());
  STRATA_CHECK(transfer->bytes > 0 && transfer->bytes % 4096 == 0 &&
               transfer->address % block == 0);
  STRATA_CHECK(transfer->address <= volume_.bytes() &&
               transfer->bytes <= volume_.bytes() - transfer->address);
  STRATA_CHECK(reinterpret_cast<uintptr_t>(transfer->data) % 4096 == 0 &&
               transfer->data != nullptr);
  transfer->done = false;
  transfer->error.reset();
  Pending* pending = free_pendings_.back();
  free_pendings_.pop_back();
  *pending = Pending{};
  pending->transfer = transfer;
  pending->direction = transfer->direction;
  pending->address = transfer->address;
  pending->bytes = transfer->bytes;
  pending->queued = true;
  queue_[tail_++ % queue_.size()] = pending;
  ++in_flight_;
  issue();
}

size_t Channel::poll() {
  collect();
  // New requests are started before each block is verified, so that verification does not leave the
  // drive idle. The loop stops at the first transfer that is done, because the caller may have the
  // next one ready.
  while (settled_.empty() && !completed_.empty()) {
    Request* request = completed_.front();
    completed_.erase(completed_.begin());
    complete(request);
    collect();
  }
  while (settled_.empty() && completed_.empty() && seal_ahead()) collect();
  if (ring_->lost() == ring_->depth()) fail_queued();
  if (busy_ && ring_->in_flight() == 0) {
    stats_.busy_s += now_s() - busy_since_s_;
    busy_ = false;
  }
  return retire();
}

// Takes completed requests from the ring and starts the next ones.
void Channel::collect() {
  const size_t count = ring_->poll(reaped_);
  for (size_t i = 0; i < count; ++i) {
    const RingRequest& ring = *reaped_[i];
    if (ring.direction == Direction::kRead) volume_.count_read(ring.bytes_moved);
    --loads_[ring.file].in_ring;
    completed_.push_back(reinterpret_cast<Request*>(reaped_[i]));
  }
  issue();
}

void Channel::wait(double timeout_s) {
  if (!settled_.empty() || !completed_.empty()) return;
  if (booked_start_s_ >= 0)
    timeout_s = std::min(timeout_s, std::max(0.0, booked_start_s_ - now_s()));
  ring_->wait(timeout_s);
}

void Channel::wake() {
  ring_->wake();
}

// Starts every request that may start now.
void Channel::issue() {
  for (size_t i = retries_.size(); i > 0; --i) {
    Request* request = retries_[i - 1];
    if (!has_room(request->ring.file)) continue;
    retries_.erase(retries_.begin() + static_cast<ptrdiff_t>(i - 1));
    start(request);
  }
  while (start_next()) {
  }
  ring_->flush();
}

// Splits the next request off the oldest transfer and starts it. Returns false when nothing can
// start.
bool Channel::start_next() {
  if (head_ == tail_) return false;
  Pending* pending = queue_[head_ % queue_.size()];
  Transfer& transfer = *pending->transfer;
  if (pending->error != nullptr || pending->split_bytes == transfer.bytes) {
    ++head_;
    pending->queued = false;
    if (pending->error != nullptr) forget_from(*pending, pending->split_bytes);
    settle(pending);
    return true;
  }
  const uint64_t address = transfer.address + pending->split_bytes;
  const Location location = volume_.locate(address);
  const uint64_t bytes =
      std::min({request_bytes_, location.bytes, transfer.bytes - pending->split_bytes});
  if (volume_.poisoned(location.file)) {
    fail(pending,
         poisoned_error(transfer.direction, volume_.files()[location.file], location.offset));
    return true;
  }
  if (free_requests_.empty() || !has_room(location.file)) return false;
  if (!limiter_allows(transfer.direction, bytes)) return false;
  char* data = static_cast<char*>(transfer.data) + pending->split_bytes;
  seal_until(pending, pending->split_bytes + bytes);

  Request* request = free_requests_.back();
  free_requests_.pop_back();
  request->ring = RingRequest{};
  request->ring.direction = transfer.direction;
  request->ring.file = location.file;
  request->ring.offset = location.offset;
  request->ring.data = data;
  request->ring.bytes = bytes;
  request->pending = pending;
  request->address = address;
  request->rereads = 0;
  pending->split_bytes += bytes;
  ++pending->requests;
  start(request);
  // Hashing the next block takes longer than a system call, so the drive gets this one now, not
  // with a whole batch.
  if (transfer.direction == Direction::kWrite && verify_) ring_->flush();
  return true;
}

bool Channel::has_room(uint32_t file) const {
  return ring_->has_room() && loads_[file].in_ring < file_depth_;
}

// Marks what a failed write did not write, from `offset` on, as never written: the table may
// already hold the hash of the new bytes, and the old bytes are not what the caller wants to read.
void Channel::forget_from(const Pending& pending, uint64_t offset) {
  if (pending.direction == Direction::kRead || !verify_ || offset == pending.bytes) return;
  volume_.forget(pending.address + offset, pending.bytes - offset);
}

void Channel::seal_until(Pending* pending, uint64_t end) {
  const Transfer& transfer = *pending->transfer;
  if (transfer.direction == Direction::kRead || !verify_ || pending->sealed_bytes >= end) return;
  const uint64_t begin = pending->sealed_bytes;
  volume_.seal(transfer.address + begin, static_cast<char*>(transfer.data) + begin, end - begin,
               transfer.tag);
  pending->sealed_bytes = end;
}

// Hashes a piece of the next write while the drive is busy, so that the write can start as soon as
// a request ends. Returns false when as many bytes are hashed as can be in flight.
bool Channel::seal_ahead() {
  constexpr uint64_t kPieceBytes = 1 << 20;  // takes 0.1 ms, while a free slot waits
  const uint64_t piece =
      request_bytes_ <= kPieceBytes ? request_bytes_ : std::max(kPieceBytes, volume_.block_bytes());
  uint64_t ready_bytes = 0;
  for (uint64_t at = head_; at != tail_ && ready_bytes < ahead_bytes_; ++at) {
    Pending* pending = queue_[at % queue_.size()];
    const Transfer& transfer = *pending->transfer;
    const bool sealed = pending->error != nullptr || transfer.direction == Direction::kRead ||
                        !verify_ || pending->sealed_bytes == transfer.bytes;
    if (!sealed && pending->sealed_bytes - pending->split_bytes < ahead_bytes_ - ready_bytes) {
      seal_until(pending, std::min(pending->sealed_bytes + piece, transfer.bytes));
      return true;
    }
    ready_bytes += (sealed ? transfer.bytes : pending->sealed_bytes) - pending->split_bytes;
  }
  return false;
}

bool Channel::limiter_allows(Direction direction, uint64_t bytes) {
  if (limiter_ == nullptr || !limiter_->limits(direction)) return true;
  const double now = now_s();
  if (booked_start_s_ < 0) booked_start_s_ = std::max(0.0, limiter_->book(direction, bytes, now));
  if (booked_start_s_ > now) return false;
  booked_start_s_ = -1;
  return true;
}

void Channel::start(Request* request) {
  if (!busy_) busy_since_s_ = now_s();
  busy_ = true;
  ++stats_.requests;
  ++loads_[request->ring.file].in_flight;
  ++loads_[request->ring.file].in_ring;
  ring_->submit(&request->ring);
}

void Channel::complete(Request* request) {
  const RingRequest& ring = request->ring;
  const bool read = ring.direction == Direction::kRead;
  const bool full = --loads_[ring.file].in_flight >= share_;
  (read ? stats_.read_latency : stats_.write_latency).add(ring.finished_s - ring.started_s);
  if (ring.outcome == RingRequest::Outcome::kDone) {
    watch_speed(ring, full);
    FileTraffic& traffic = stats_.files[ring.file];
    (read ? stats_.bytes_read : stats_.bytes_written) += ring.bytes;
    (read ? traffic.bytes_read : traffic.bytes_written) += ring.bytes;
    if (!read) volume_.count_written(ring.bytes);
    if (read && !accept_read(request)) return;
  } else {
    if (read) volume_.count_abandoned(ring.bytes_moved);
    if (read && may_heal(ring.error_number) && reread(request)) return;
    if (!read) {
      volume_.poison(ring.file);
      volume_.forget(request->address, ring.bytes);
    }
    fail(request->pending, request_error(ring, volume_.files()[ring.file], request->address));
  }
  release(request);
}

void Channel::release(Request* request) {
  --request->pending->requests;
  free_requests_.push_back(request);
  settle(request->pending);
}

void Channel::watch_speed(const RingRequest& ring, bool full) {
  const std::optional<SlowReport> report =
      loads_[ring.file].speed.add(ring.bytes, ring.finished_s, full);
  if (!report) return;
  char text[160];
  std::snprintf(text, sizeof text, " became slow: %.3f GB/s, at best %.3f GB/s",
                report->bytes_per_s / 1e9, report->best_bytes_per_s / 1e9);
  volume_.notices().once(
      LogLevel::kWarning,
      volume_.files()[ring.file].name + text +
          " (a full write cache, heat, or another user of the drive: see smartctl)");
}

// Verifies a completed read. Returns false when it is read again.
bool Channel::accept_read(Request* request) {
  const RingRequest& ring = request->ring;
  const Pending& pending = *request->pending;
  if (!verify_) {
    volume_.count_unverified(ring.bytes);
    return true;
  }
  if (pending.error != nullptr) {  // the transfer has already failed
    volume_.count_abandoned(ring.bytes);
    return true;
  }
  const uint64_t tag = pending.transfer->tag;
  const Volume::Mismatch wrong = volume_.verify(request->address, ring.data, ring.bytes, tag);
  if (!wrong.found) {
    volume_.count_verified(ring.bytes);
    return true;
  }
  volume_.count_rejected(ring.bytes);
  if (!wrong.never_written && reread(request)) return false;
  fail(request->pending,
       checksum_error(ring, volume_.files()[ring.file], request->address, tag, wrong));
  return true;
}

// Starts a failed read again, unless its tries are used up: noise on a bus or a weak sector must
// not end a run.
bool Channel::reread(Request* request) {
  if (request->rereads >= kMaxRereads || request->pending->error != nullptr) return false;
  ++request->rereads;
  volume_.count_reread();
  retries_.push_back(request);
  return true;
}

// Moves a transfer to settled_ once none of its bytes can move any more.
void Channel::settle(Pending* pending) {
  if (pending->queued || pending->requests > 0) return;
  settled_.push_back(pending);
}

// Keeps the first error; requests of the transfer that are in flight still come back.
void Channel::fail(Pending* pending, Error error) {
  if (pending->error == nullptr) pending->error = std::make_unique<Error>(std::move(error));
}

// Fails everything that waits, when every slot of the ring is stuck in the kernel.
void Channel::fail_queued() {
  const auto fail_stuck = [this](Pending* pending, uint64_t address) {
    const Location location = volume_.locate(address);
    fail(pending, stuck_error(pending->transfer->direction, volume_.files()[location.file],
                              location.offset));
  };
  for (Request* request : retries_) {
    fail_stuck(request->pending, request->address);
    release(request);
  }
  retries_.clear();
  for (; head_ != tail_; ++head_) {
    Pending* pending = queue_[head_ % queue_.size()];
    fail_stuck(pending, pending->address);
    pending->queued = false;
    forget_from(*pending, pending->split_bytes);
    settle(pending);
  }
}

size_t Channel::retire() {
  const size_t count = settled_.size();
  for (Pending* pending : settled_) {
    Transfer* transfer = pending->transfer;
    transfer->error = std::move(pending->error);
    pending->transfer = nullptr;
    free_pendings_.push_back(pending);
    --in_flight_;
    transfer->done = true;
  }
  settled_.clear();
  return count;
}

}  // namespace strata::io
