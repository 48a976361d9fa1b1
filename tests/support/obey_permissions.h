// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace strata::test {

// Makes this process and the programs that it executes obey permissions of files, even when it runs
// as root. (A change of user could make the test's files unreachable.) Returns false when the
// system refuses.
inline bool obey_permissions() {
  if (geteuid() != 0) return true;
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct rights[2] = {};
  if (syscall(SYS_capget, &header, rights) != 0) return false;
  for (const int right : {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER}) {
    if (prctl(PR_CAPBSET_DROP, right, 0, 0, 0) != 0) return false;
    const __u32 kept = ~(__u32{1} << right);
    rights[0].effective &= kept;
    rights[0].permitted &= kept;
    rights[0].inheritable &= kept;
  }
  return syscall(SYS_capset, &header, rights) == 0;
}

}  // namespace strata::test
