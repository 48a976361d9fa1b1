// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace strata::train {

// What a purpose of the ledger is called in plans for people and in their JSON, and what it means.
struct PurposeText {
  std::string_view purpose;
  std::string_view shown;
  std::string_view why;
};

// A purpose that has no other name is shown as it is.
PurposeText purpose_text(std::string_view purpose);

}  // namespace strata::train
