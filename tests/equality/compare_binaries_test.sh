#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves that compare_binaries.sh can fail: a program equals itself, and one that trains at another rate differs in
# every configuration, as does one that cannot run.
#
#   compare_binaries_test.sh STRATA DIR     DIR: on a drive; made anew
set -euo pipefail

compare=$(cd "$(dirname "$0")" && pwd)/compare_binaries.sh
strata=$1
dir=$2
rm -rf "$dir"
mkdir -p "$dir"

# expect STATUS LAST_LINE WORDS NEW: the comparison with NEW ends so, and each configuration's line has the words.
expect() {
  local status=0 out
  out=$(bash "$compare" "$strata" "$4" --dir "$dir/work" --only '^(groups|large-bf16-nvme|resume-nvme)$') || status=$?
  if ((status != $1)) || [[ $(tail -n 1 <<< "$out") != "$2" || $(grep -c "$3" <<< "$out") != 3 ]]; then
    echo "FAILED: expected status $1, \"$2\" and three lines with \"$3\", but got status $status and"
    echo "$out"
    exit 1
  fi
  rm -r "$dir/work"
}

printf '#!/bin/sh\nfor word; do shift; [ "$word" != 0.01 ] || word=0.0100001; set -- "$@" "$word"; done\nexec "%s" "$@"\n' \
  "$strata" > "$dir/other_rate"
printf '#!/bin/sh\necho "no such option" >&2\nexit 2\n' > "$dir/refuses"
chmod +x "$dir/other_rate" "$dir/refuses"

expect 0 "3 passed, 0 failed" ' equal' "$strata"
expect 1 "0 passed, 3 failed" ' DIFFERS: step 2 loss: ' "$dir/other_rate"
expect 1 "0 passed, 3 failed" ' refused by the new one: no such option' "$dir/refuses"
rm -r "$dir"
