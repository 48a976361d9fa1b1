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

// Opens those of `files` that allow O_DIRECT. `files` must outlive the result.
std::vector<DirectFile> open_direct(const std::vector<const File*>& files);

// The index of `file`; files.size() when it is not among them.
size_t index_of(const std::vector<DirectFile>& files, const File& file);

// Options of a ring that moves whole pages of `files`; the ring numbers the files in this order.
io::RingOptions ring_options(const std::vector<DirectFile>& files, size_t depth);

// The error of a request that the drive did not answer by its deadline.
Error no_answer(const char* what, const File& file);

// The offset of the page that holds this byte.
int64_t page_of(int64_t offset);

}  // namespace strata::model
