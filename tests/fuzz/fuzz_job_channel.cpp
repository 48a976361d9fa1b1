// SPDX-License-Identifier: Apache-2.0
// Any bytes for the ends of a connection between a rank and the job's server (engine/comm): of a
// stranger to either end, of someone who changes a connection that is open, and of an end that
// knows the keys; the first byte says which. Refused with our Error, or messages that are the same
// when they are sent again. No stranger gets through, and nothing is kept that did not come.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/comm/job_channel.h"

namespace {

using namespace strata::comm;

const std::string kSecret = "the secret of the fuzzed job";

void pass(JobChannel& from, JobChannel& to) {
  const std::string bytes(from.outgoing());
  from.sent(bytes.size());
  to.take(bytes);
}

// The same bytes in every run.
struct Ends {
  JobChannel server = JobChannel::server(kSecret, {'s'});
  JobChannel client = JobChannel::client(kSecret, {.rank = 1, .size = 2}, {'c'});
  explicit Ends(int steps) {
    for (int i = 0; i < steps; ++i) i % 2 == 0 ? pass(client, server) : pass(server, client);
  }
};

// Returns how many messages came.
int give(JobChannel end, std::string_view bytes) {
  try {
    while (!bytes.empty()) {
      const size_t count = std::min<size_t>(bytes.size(), 1 + bytes.size() / 2);
      end.take(bytes.substr(0, count));
      bytes.remove_prefix(count);
      STRATA_CHECK(end.missing() > 0);
    }
  } catch (const strata::Error& error) {
    STRATA_CHECK(error.code() == strata::ErrorCode::kPeer ||
                 error.code() == strata::ErrorCode::kConfig);
  }
  int messages = 0;
  while (end.next()) ++messages;
  return messages;
}

void give_to_stranger(size_t which, std::string_view bytes) {
  static const Ends fresh(0), halfway(2), open(4);
  STRATA_CHECK(open.server.is_open() && open.client.is_open());
  const JobChannel* const ends[] = {&fresh.server,   &fresh.client, &halfway.server,
                                    &halfway.client, &open.server,  &open.client};
  STRATA_CHECK(give(*ends[which], bytes) == 0);
}

void give_as_body(std::string_view body) {
  JobMessage message;
  try {
    message = decode(body);
  } catch (const strata::Error& error) {
    STRATA_CHECK(error.code() == strata::ErrorCode::kPeer);
    return;
  }
  STRATA_CHECK(encode(message) == body);
  static const Ends open(4);
  for (const bool to_server : {false, true}) {
    JobChannel from = to_server ? open.client : open.server;
    JobChannel to = to_server ? open.server : open.client;
    from.send(message);
    // One byte is changed, and then it comes as it is.
    std::string changed(from.outgoing());
    changed[body.size() % changed.size()] ^= 4;
    STRATA_CHECK(give(to, changed) == 0);
    pass(from, to);
    STRATA_CHECK(to.next() == message);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t which = data[0] % 8;
  which < 6 ? give_to_stranger(which, bytes) : give_as_body(bytes);
  return 0;
}
