#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The man page names every function of strata.h, and mandoc has nothing to say about it.
#
#   man_test.sh FOLDER      FOLDER: with strata.h and strata.3
set -euo pipefail
cd "$1"
failed=0
for name in $(tr '\n' ' ' < strata.h | grep -oE 'STRATA_API [^(;]*\(' | grep -oE 'strata_[a-z_]+\($' | tr -d '('); do
  grep -qE "^\.Fo $name\$|^\.Fn $name\b|^\.Nm $name\b" strata.3 || { echo "strata.3: $name is missing" && failed=1; }
done
((failed == 0)) || exit 1
if ! command -v mandoc > /dev/null; then
  echo "mandoc is not installed: the page was not checked"
  exit 77
fi
mandoc -T lint -W warning strata.3
