#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The first command of the README, but for packages: the loss falls within the budget, the run leaves a model and
# no scratch, and another call finds it done. quickstart_test.sh ROOT DIRECTORY; 77 means that a program is missing.
set -euo pipefail
root=$1
dir=$2
command -v bible > /dev/null || exit 77
rm -rf "$dir"

first=$("$root/examples/quickstart.sh" --no-install --dir "$dir")
echo "$first"
again=$("$root/examples/quickstart.sh" --no-install --dir "$dir")
echo "$again"

fail() {
  echo "FAILED: $*"
  exit 1
}
read -r before after < <(sed -nE 's/^loss +([0-9.]+) at first, ([0-9.]+) at last.*/\1 \2/p' <<< "$first")
awk -v before="$before" -v after="$after" 'BEGIN { exit !(after < before - 2) }' ||
  fail "the loss went from $before to $after"
# A step that reads and writes fewer than ten bytes a parameter keeps most of the state in memory.
grep -qE '^NVMe .* a step reads [0-9]{2,}\.[0-9] and writes [0-9]{2,}\.[0-9] bytes a parameter' <<< "$first" ||
  fail "the state was not streamed"
grep -q 'budget 96 MiB' <<< "$first" || fail "no word of the budget"
[[ -f $dir/run/model/model.safetensors && -f $dir/run/model/tokenizer.json ]] || fail "no model"
[[ -z $(ls -A "$dir/nvme") ]] || fail "scratch was left"
grep -q 'training is complete already' <<< "$again" || fail "a second call trained again"
rm -rf "$dir"
