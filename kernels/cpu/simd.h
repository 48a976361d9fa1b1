// SPDX-License-Identifier: Apache-2.0
#pragma once

// The instruction sets that are compiled, and chosen from at run time: a portable baseline, SSE4,
// AVX2 and AVX-512. Include this before <hwy/foreach_target.h>.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
