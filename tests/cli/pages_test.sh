#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the pages of docs/ show is true. pages_test.sh STRATA PAGE TEXT DIRECTORY runs the ```sh blocks of a page in an
# empty directory with the text as text.txt. Of a page with a table of commands it also runs each of them in turn, and
# compares what it says and its exit code; ... in the table stands for anything.
set -uo pipefail
strata=$1 page=$2 text=$3 dir=$4
rm -rf "$dir"
mkdir -p "$dir/bin"
ln -s "$strata" "$dir/bin/strata"
cp "$text" "$dir/text.txt"
export PATH="$dir/bin:$PATH" XDG_CACHE_HOME="$dir/cache"
cd "$dir" || exit 1

blocks=$(sed -n '/^```sh$/,/^```$/{/^```/!p}' "$page")
[[ -n $blocks ]] || { echo "no commands in $page" && exit 1; }
bash -euxo pipefail -c "$blocks" || { echo "FAILED: a command of $page" && exit 1; }

# Rows end with | `command` | message | code |. A pipe in a command is written as \|.
rows=$(sed -nE 's/^\|.* `(.*)` \| (.*) \| ([0-9]) \|$/\1\t\2\t\3/p' "$page")
failed=0 count=0
while IFS=$'\t' read -r command message code; do
  count=$((count + 1))
  said=$(bash -c "${command//\\|/|}" 2>&1)
  ended=$?
  said=$(tr -s '\n ' '  ' <<< "$said")
  pattern=*$(sed -e 's/[][*?\\]/\\&/g' -e 's/\.\.\./*/g' <<< "$message")*
  # shellcheck disable=SC2053
  if [[ $ended != "$code" || $said != $pattern ]]; then
    printf 'FAILED: %s\n  ended with %s and said: %s\n  the page: %s, %s\n' "$command" "$ended" "$said" "$code" "$message"
    failed=1
  fi
done < <([[ -z $rows ]] || echo "$rows")
echo "$count commands of a table"
if ((count > 0 && count != $(grep -c '^| ' "$page") - 1)); then  # less the heading of the table
  echo "FAILED: not all rows were read" && failed=1
fi
rm -rf "$dir"
exit $failed
