// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// How processes of one machine and user learn where rank 0 listens: by a file in a directory that
// no other user may enter.
namespace strata::train {

struct Invitation {
  std::string address;
  std::string secret;
};

// Rank 0's part; makes the directory if it is not there, and removes it at the end, also when the
// process that made it is gone by then. Failure: Error (kConfig) when the directory is not this
// user's alone; Error when the file cannot be written.
class PostedInvitation {
 public:
  PostedInvitation(std::string directory, const Invitation& invitation);
  ~PostedInvitation();
  PostedInvitation(const PostedInvitation&) = delete;
  PostedInvitation& operator=(const PostedInvitation&) = delete;

 private:
  const std::string directory_;
};

// The other ranks' part. Failure: Error (kConfig) as above; Error (kDeadline) when rank 0 has
// written nothing in that time.
Invitation await_invitation(const std::string& directory, double deadline_s);

}  // namespace strata::train
