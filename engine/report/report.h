// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/report/run_record.h"

namespace strata::report {

// The report of a run as one HTML file that needs no network: loss, norm and rate over steps, time
// by cause, the lanes of a step, plan against measurement, memory, wear and options. Every number
// is of the run's files. Says what is missing where a file is. Pure.
std::string report_html(const RunRecord& run);

// What became of the run, in a few words: "done", "under way", ...
std::string state_of(const RunRecord& run);

}  // namespace strata::report
