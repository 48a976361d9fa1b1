// SPDX-License-Identifier: Apache-2.0
#pragma once

// The instruction sets that are compiled and chosen from at run time: baseline SSE2, AVX2 and
// AVX-512. Include this instead of <hwy/highway.h>, inside the file that foreach_target.h includes
// repeatedly.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
