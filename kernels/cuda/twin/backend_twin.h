// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/backend.h"

namespace strata::kernels {

// The ops of the CUDA device, compiled for the host from the same source and run on the calling
// thread, with plain loops for the products of cuBLASLt: for tests on machines without a GPU.
// `files` converts the elements of files.
Backend make_cuda_twin(const Backend& files);

}  // namespace strata::kernels
