// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/data_read.h"
#include "engine/data/token_source.h"

namespace strata::data {

// A part of the data, for the report.
struct ReportPart {
  std::string name;
  const ReadData* data;
  int64_t draws;  // in an epoch, of a mixture
};

// The lines for the start of a run, of at most 80 columns, without a last line break: what was
// found, tokens and targets, samples, what is cut or shared, and the first record with something to
// learn: its text, each line with "+" where it is learned and "-" where it is only read.
std::string data_report(const std::vector<ReportPart>& parts, const TokenSource& train,
                        const TokenSource& held_out, const text::Tokenizer* tokenizer);

// Text on one line of at most `columns`: line breaks and control characters are escaped, and what
// is too long loses its middle. Characters beyond ASCII count as two columns.
std::string one_line(std::string_view text, size_t columns);

}  // namespace strata::data
