// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

namespace strata::comm {

struct JobServerOptions {
  std::string address = "127.0.0.1:0";  // HOST:PORT; port 0 lets the system choose
  std::string secret = {};              // of the job; at least 16 random bytes
  int size = 1;                         // ranks of the job
  double silence_s = 25;                // a rank or server that is silent for longer is given up
  double authenticate_s = 10;           // the longest that a handshake may take
  int strangers_max = 64;               // connections whose handshake is not over
  double linger_s = 10;                 // how long the destructor waits for ranks to leave
  bool ranks_return = false;            // a rank that has left or is gone may come again
};

// Keeps the keys of a job and knows which of its ranks live. It belongs to rank 0's process; all
// ranks, rank 0 too, use it by a JobStore (job_store.h).
//
// Guarantees: a rank whose connection breaks before it has left, or that is silent for too long,
// stops the job, and so does any rank that asks for it; the first reason is sent to all ranks at
// once, and stays. Whoever does not prove to know the secret gets nothing, and delays no one: each
// has a fixed buffer and `authenticate_s`, and the oldest goes when there are more than
// `strangers_max`. With `ranks_return`, a rank that is gone stops nothing; the values that a rank
// other than 0 has set go with it; and nobody is admitted once the destructor waits.
// Memory: keys and values up to 64 MiB together; for each rank the answers that it has not read
// yet, as a rule some KiB; a rank that leaves more than 64 MiB unread stops the job. Threads: one
// of its own. Failure: the constructor throws Error (kConfig) when the address or secret cannot be
// used, Error (kPeer) when the system's name service does not answer now.
class JobServer {
 public:
  explicit JobServer(JobServerOptions options);
  // Waits until all ranks that are here have left, up to `linger_s`.
  ~JobServer();
  JobServer(const JobServer&) = delete;
  JobServer& operator=(const JobServer&) = delete;

  // What ranks connect to. The host is as in the options: where that is "0.0.0.0", ranks on other
  // machines need a name of this machine instead.
  const std::string& address() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace strata::comm
