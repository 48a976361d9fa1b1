// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "engine/base/running_clock.h"
#include "engine/comm/job_connection.h"

namespace strata::comm {

struct JobStoreOptions {
  std::string address = {};  // JobServer::address(), or HOST:PORT as this machine reaches it
  std::string secret = {};   // the server's
  int rank = 0;
  int size = 1;
  double connect_s = 60;  // the longest wait for the server to come
};

// A rank's end of the job's key-value store (job_server.h), and of what its ranks know of each
// other: who lives, and why the job stopped.
//
// Guarantees: a job stops once, for the first reason that the server hears of, and then every call
// throws Error (kPeer) with that reason. It stops when a rank asks for it; when a rank's process
// ends before its JobStore does, at once; when a rank is silent for too long. The destructor says
// that this rank has left in good order.
// Threads: any. It has one of its own, which beats once a second. Failure: the constructor throws
// Error (kConfig) for a wrong address, rank or size, SecretsDiffer, Error (kDeadline) when no
// server comes; calls throw Error (kPeer) when the job has stopped, Error (kDeadline) when no
// answer comes, Error (kDoesNotFit) for keys, values and stores that are too large.
class JobStore {
 public:
  explicit JobStore(JobStoreOptions options);
  ~JobStore();
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  // The address by which this machine reaches the server's, without a port.
  const std::string& own_host() const { return own_host_; }
  // What only ranks of the job can know, another one for each purpose.
  std::string secret_for(const std::string& purpose) const;

  void set(const std::string& key, std::string value);
  // Waits until the key is set. `owner` is the rank that sets it, when that is known, for messages.
  std::string get(const std::string& key, double deadline_s, int owner = -1);
  // Adds to the count of that name, which is 0 at first, and returns the sum. Counts are not
  // values.
  int64_t add(const std::string& key, int64_t number);
  void erase(const std::string& prefix);  // all values and counts whose keys begin with it

  // Says that this rank does not take part any more in what this name stands for (see OnStop).
  void leave(const std::string& group);

  // Stops the job. Returns, after at most some seconds, when this store knows the job's reason, so
  // not from within a function of OnStop; false when it had stopped before.
  bool stop(const std::string& reason);
  // Throws when the job has stopped; `call` is the beginning of the text.
  void throw_if_stopped(const std::string& call) const;
  // The same when the reason comes within a moment: another sign of it may have come first.
  void throw_if_stopped_soon(const std::string& call) const;

  // A wait that ends when the job stops: `call` is then called once, on the store's thread, and
  // must not wait. When the wait is for a rank that has left the group, or the job, for a second,
  // the job stops. Not called when the job has stopped before.
  class OnStop {
   public:
    struct Awaited {
      int rank = -1;
      std::string_view group = {};
    };
    OnStop(JobStore& store, std::function<void()> call, Awaited awaited);
    ~OnStop();
    OnStop(const OnStop&) = delete;
    OnStop& operator=(const OnStop&) = delete;

    bool stopped_before() const { return stopped_before_; }

   private:
    friend class JobStore;
    JobStore& store_;
    const std::function<void()> call_;
    const Awaited awaited_;
    double began_s_ = 0;
    bool stopped_before_ = false;
    std::list<OnStop*>::iterator place_;
  };

 private:
  std::optional<JobMessage> call(const char* what, JobMessage request, double deadline_s);
  JobMessage answered(const char* what, JobMessage request);
  void run();
  void round(std::unique_lock<std::mutex>& lock);
  void handle(JobMessage message);
  void give_up_server();
  void look_for_leavers();
  void set_stopped(const std::string& reason);
  void throw_stopped(const std::string& call) const;

  // Constant after construction
  const JobStoreOptions options_;
  const WakeUp wake_;
  std::string own_host_;
  double silence_s_ = 0;  // a server that says nothing for longer is given up

  mutable std::mutex mu_;
  mutable std::condition_variable changed_;
  // Guarded by mu_
  JobConnection link_;
  const double beat_s_;
  RunningClock clock_;
  double beat_due_s_ = 0;
  double heard_s_ = 0;
  uint32_t last_request_ = 0;
  std::map<uint32_t, std::optional<JobMessage>> answers_;  // to the calls under way
  std::optional<std::string> stopped_;                     // why
  std::list<OnStop*> waits_;
  std::map<std::pair<std::string, int>, double>
      left_;  // when each rank left a group, or "" the job
  bool asked_to_stop_ = false;
  std::optional<double> leaving_until_s_;  // on the steady clock
  bool over_ = false;                      // the connection

  std::jthread thread_;
};

}  // namespace strata::comm
