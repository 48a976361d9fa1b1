// SPDX-License-Identifier: Apache-2.0
#pragma once

// Selects the instruction sets that are compiled: a portable baseline, SSE4, AVX2 and AVX-512. The
// best one is chosen at run time. Include this before <hwy/foreach_target.h>.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
