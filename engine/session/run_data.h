// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/config/options.h"
#include "engine/data/data.h"
#include "engine/model/architecture.h"
#include "engine/text/tokenizer.h"
#include "engine/train/run_plan.h"

// The data of a run, as its options say.
namespace strata::session {

// --samples, or where it is auto, what suits the files of --data to train on.
config::SampleLayout samples_of(const config::Options& options);

// How the data of --data is used; --samples is settled by samples_of().
struct DataUse {
  bool holds_out = false;  // whether the part of --eval-fraction is held out
  // Whether tokens behind the last whole sample are used too; not for the part that train holds
  // out.
  bool keeps_tail = false;
  train::ReadingLimits limits = {};
  std::string cache_directory = {};  // where --data-cache is by default; empty: nowhere
};
std::unique_ptr<data::Dataset> open_data(const config::Options& options,
                                         const model::Architecture& architecture,
                                         const text::Tokenizer* tokenizer, const DataUse& use);

// The memory of the tokens of --data and --eval-data, so that a refusal can name a sufficient
// budget: the exact size, or where some are kept on disk or are many, the most that they can take.
int64_t data_bytes_for_refusal(const config::Options& options,
                               const model::Architecture& architecture, const DataUse& use);

}  // namespace strata::session
