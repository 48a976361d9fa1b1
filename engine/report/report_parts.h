// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/report/run_record.h"

// The parts of a report, each as HTML. Some are empty where the run has nothing for them.
namespace strata::report {

// report_curves.cpp
std::string loss_section(const RunRecord& run);
std::string rate_sections(const RunRecord& run);  // norm and learning rate
std::string time_section(const RunRecord& run);   // of a step, by cause
std::string lanes_section(const RunRecord& run);

// report_samples.cpp
std::string samples_section(const RunRecord& run);

// report_tables.cpp
std::string plan_section(const RunRecord& run);
std::string memory_section(const RunRecord& run);
std::string drives_section(const RunRecord& run);
std::string options_section(const RunRecord& run);

// Of steps that were run, by a member; NaN without one.
double median_of(const RunRecord& run, double (*value)(const StepRecord&));
double sum_of(const RunRecord& run, double (*value)(const StepRecord&));

// Tokens a second of all steps; NaN without one.
double tokens_per_s(const RunRecord& run);

std::string percent(double share);  // "3.1%", "0.0012%"

}  // namespace strata::report
