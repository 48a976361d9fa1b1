#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# libstrata.so exports the functions of strata.h and nothing else, each with its version: the list is in
# strata.symbols. A name that goes, or changes its version, breaks programs that were built before.
#
#   symbols_test.sh LIBRARY FOLDER      FOLDER: with strata.h and strata.symbols
set -euo pipefail
export LC_ALL=C
library=$1
folder=$2
failed=0
differs() { echo "$1" && failed=1; }

diff -u <(grep -v '^#' "$folder/strata.symbols") \
  <(nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort) ||
  differs "$library exports (+) something else than strata.symbols lists (-)"
diff -u <(sed -E 's/@.*//' <(grep -v '^#' "$folder/strata.symbols")) \
  <(tr '\n' ' ' < "$folder/strata.h" | grep -oE 'STRATA_API [^(;]*\(' | grep -oE 'strata_[a-z_]+\($' | tr -d '(' | sort) ||
  differs "strata.h declares (+) something else than strata.symbols lists (-)"
soname=$(readelf -d "$library" | sed -nE 's/.*Library soname: \[(.*)\]/\1/p')
[[ $soname == libstrata.so.[0-9] ]] || differs "the SONAME is $soname"
exit $failed
