// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/base/error.h"

namespace strata::data {

// The disk of kept tokens has no room for them.
class DiskFull : public Error {
 public:
  using Error::Error;
};

}  // namespace strata::data
