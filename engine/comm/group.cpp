// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/group.h"

#include <fmt/core.h>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/comm/call_header.h"

namespace strata::comm {

void Group::barrier() {
  meet(header_of("barrier", 0));
}

void Group::check_peer(const Message& message) const {
  STRATA_CHECK(message.peer >= 0 && message.peer < size() && message.peer != rank());
}

void Group::refuse(const Message& due, int64_t bytes, int64_t tag) {
  fail(
      fmt::format("recv: rank {}: sent {} with tag {} where {} with tag {} is due (all ranks must "
                  "make the same calls in the same order)",
                  due.peer, format_bytes(bytes), tag, format_bytes(due.bytes), due.tag));
}

void Group::fail(const std::string& text) {
  abort(text);
  throw Error(ErrorCode::kPeer, text);
}

}  // namespace strata::comm
