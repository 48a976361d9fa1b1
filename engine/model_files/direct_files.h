// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model_files/file.h"
#include "io/ring.h"

namespace strata::model {

// A file of weights, and the same one opened for O_DIRECT.
struct DirectFile {
  const File* file = nullptr;
  File direct;
  int64_t bytes = 0;  // when it was opened
};

// Those of `files` that can be opened so; they must outlive the result.
std::vector<DirectFile> open_direct(const std::vector<const File*>& files);

// files.size() where it is not among them.
size_t index_of(const std::vector<DirectFile>& files, const File& file);

// Of a ring that moves whole pages of `files`, in their order.
io::RingOptions ring_options(const std::vector<DirectFile>& files, size_t depth);

// The error of a request for which the drive had until its deadline.
Error no_answer(const char* what, const File& file);

// The start of the page that holds this byte.
int64_t page_of(int64_t offset);

}  // namespace strata::model
