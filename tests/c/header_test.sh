#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# strata.h compiles alone, twice, and without a warning in every language that includes it.
#
#   header_test.sh HEADER COMPILER      COMPILER: for C++; C is compiled by the one beside it
set -euo pipefail
header=$1
cxx=$2
cc=${cxx/%clang++/clang}
cc=${cc/%g++/gcc}
cc=${cc/%c++/cc}
warnings=(-Wall -Wextra -pedantic -Werror -fsyntax-only -include "$header" -include "$header")
# C90 has no long long, which <stdint.h> needs; all else of it holds.
"$cc" -x c -std=c90 -Wno-long-long "${warnings[@]}" - <<< 'int one;'
for standard in c99 c11 c17; do "$cc" -x c -std=$standard "${warnings[@]}" - <<< 'int one;'; done
for standard in c++11 c++20; do "$cxx" -x c++ -std=$standard "${warnings[@]}" - <<< 'int one;'; done
if "$cc" -x c -std=c99 "${warnings[@]}" - <<< 'int one = unknown;' 2> /dev/null; then
  echo "the compiler accepts anything"
  exit 1
fi
