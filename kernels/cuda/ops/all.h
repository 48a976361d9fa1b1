// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every op as a template over where it runs (launch.h). The names are those of STRATA_KERNEL_OPS.
#include "kernels/cuda/ops/attention.h"
#include "kernels/cuda/ops/cached_attention.h"
#include "kernels/cuda/ops/cross_entropy.h"
#include "kernels/cuda/ops/elementwise.h"
#include "kernels/cuda/ops/embedding.h"
#include "kernels/cuda/ops/glu.h"
#include "kernels/cuda/ops/layer_norm.h"
#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/ops/norm.h"
#include "kernels/cuda/ops/optimizer.h"
