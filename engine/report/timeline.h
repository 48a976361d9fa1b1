// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/config/json.h"

namespace strata::report {

// One step's lanes as rows over time; `lanes` is what train::lanes_json() wrote. `end_s` is the end
// of the axis, so that two timelines can be compared; at least that of the lanes. Empty when there
// is nothing to draw. Members of other forms are left out.
std::string timeline(const std::string& label, const config::Json& lanes, double end_s);

// The end of the last op; 0 when `lanes` has none.
double end_of(const config::Json& lanes);

// The legend of the kinds of ops that any of these lanes have.
std::string timeline_legend(const std::vector<const config::Json*>& all);

}  // namespace strata::report
