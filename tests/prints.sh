#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# prints.sh CODE PATTERN COMMAND...: runs a command, and fails unless it ends with that exit code and prints
# what the extended regular expression matches, in which a line's end is a space.
set -uo pipefail
code=$1 pattern=$2
shift 2
output=$("$@" 2>&1)
ended=$?
printf '%s\n' "$output"
if ((ended != code)); then
  echo "prints.sh: it ended with $ended, not $code"
  exit 1
fi
if ! tr '\n' ' ' <<< "$output" | grep -qE -- "$pattern"; then
  echo "prints.sh: it did not print: $pattern"
  exit 1
fi
