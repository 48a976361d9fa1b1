// SPDX-License-Identifier: Apache-2.0
#include "engine/base/advice.h"

#include <cerrno>

namespace strata {

std::string with_advice(const std::string& cause, std::string_view advice) {
  if (cause.ends_with(')')) return cause;
  return cause + " (" + std::string(advice) + ")";
}

const char* usual_advice(int errno_value) {
  switch (errno_value) {
    case ENOENT:
      return "give a path that exists";
    case EACCES:
    case EPERM:
      return "give a path that this user may use, or change its permissions";
    case EROFS:
      return "give a path on a file system that can be written";
    case EEXIST:
    case ENOTEMPTY:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EXDEV:
      return "give another path";
    case ENOSPC:
    case EDQUOT:
      return "free space there, or use another drive";
    case EFBIG:
      return "raise the file size limit: ulimit -f";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files: ulimit -n";
    case EAGAIN:
      return "raise the limit of processes: ulimit -u";
    case ENOMEM:
      return "free memory, or lower --host-memory";
    case ECONNABORTED:
    case ECONNREFUSED:
    case ECONNRESET:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENOTCONN:
    case EPIPE:
    case ETIMEDOUT:
      return "";
    default:
      return "see dmesg";
  }
}

bool lacks_descriptors(int errno_value) {
  return errno_value == EMFILE || errno_value == ENFILE;
}

}  // namespace strata
