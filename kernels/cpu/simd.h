// SPDX-License-Identifier: Apache-2.0
#pragma once

// Selects the instruction sets that are compiled: a portable baseline, SSE4, AVX2 and AVX-512. The
// best one is chosen at run time. Include this before <hwy/foreach_target.h>.
//
// Builds for sanitizers, where each set takes minutes to compile, have the baseline and AVX2: the
// same code, whose vectors differ in their length.
#ifdef STRATA_FEW_INSTRUCTION_SETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif
