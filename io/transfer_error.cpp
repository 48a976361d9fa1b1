// SPDX-License-Identifier: Apache-2.0
#include "io/transfer_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace strata::io {
namespace {

const char* advice_for(int error_number) {
  switch (error_number) {
    case EIO:
    case ENODATA:
    case EILSEQ:
    case EREMOTEIO:
      return "the drive or its cable fails: see dmesg and smartctl; use another drive";
    case ENOSPC:
    case EDQUOT:
      return "free space there; the space was reserved, so the file system lost it";
    case ENOTCONN:
    case ENODEV:
    case ENXIO:
      return "see dmesg: the drive or its file system went away";
    case EINVAL:
      return "the file system refuses this alignment; turn O_DIRECT off";
    case EROFS:
      return "the file system went read-only after an error: see dmesg";
    default:
      return "see dmesg";
  }
}

}  // namespace

Error request_error(const RingRequest& request, const ScratchFile& file, uint64_t address) {
  const std::string what =
      fmt::format("{} failed: {} at offset {} ({} bytes, address {}): ", name_of(request.direction),
                  file.name, request.offset + request.bytes_moved, request.bytes, address);
  switch (request.outcome) {
    case RingRequest::Outcome::kErrno:
      return Error(ErrorCode::kIo,
                   fmt::format("{}{} (errno {}; {})", what, std::strerror(request.error_number),
                               request.error_number, advice_for(request.error_number)));
    case RingRequest::Outcome::kNoProgress:
      return Error(
          ErrorCode::kIo,
          what +
              "two tries moved nothing (the file was cut short or the drive is broken: see dmesg)");
    case RingRequest::Outcome::kDone:
    case RingRequest::Outcome::kDeadline:
      break;
  }
  return Error(
      ErrorCode::kDeadline,
      fmt::format(
          "{}no answer for {:.1f} s (the drive hangs: see dmesg{})", what,
          request.finished_s - request.started_s,
          request.memory_in_use ? "; the kernel still owns the memory, so end this process" : ""));
}

Error checksum_error(const RingRequest& request, const ScratchFile& file, uint64_t request_address,
                     uint64_t tag, const Volume::Mismatch& wrong) {
  const uint64_t offset = request.offset + (wrong.address - request_address);
  const std::string where = fmt::format("{} at offset {} ({} bytes, address {}, tag {:x})",
                                        file.name, offset, wrong.bytes, wrong.address, tag);
  if (wrong.never_written) {
    return Error(
        ErrorCode::kCorrupt,
        "read of a block that was not written: " + where +
            ": nothing was written there, or the write that was to replace it failed (look for "
            "that write's error above)");
  }
  return Error(
      ErrorCode::kCorrupt,
      fmt::format(
          "wrong bytes read: {}: checksum {:016x}, expected {:016x} (the drive returned other "
          "bytes than were written: see smartctl, use another drive)",
          where, wrong.actual, wrong.expected));
}

Error poisoned_error(Direction direction, const ScratchFile& file, uint64_t offset) {
  return Error(
      ErrorCode::kIo,
      fmt::format(
          "{} refused: {} at offset {}: an earlier write to it failed, so its content is unknown "
          "(use another drive)",
          name_of(direction), file.name, offset));
}

Error stuck_error(Direction direction, const ScratchFile& file, uint64_t offset) {
  return Error(
      ErrorCode::kDeadline,
      fmt::format(
          "{} not started: {} at offset {}: every request of this channel hangs (see dmesg; end "
          "this process)",
          name_of(direction), file.name, offset));
}

}  // namespace strata::io
