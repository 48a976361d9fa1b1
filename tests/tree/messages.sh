#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every message that a user can see: the texts of errors, warnings and notes, as the sources have them, with {} for
# what they name. docs/messages.txt holds the list, so that a change of a message is reviewed as text.
#
#   messages.sh list      prints the list
#   messages.sh check     fails when docs/messages.txt is another, or when a message has words that we avoid
#   messages.sh update    writes docs/messages.txt
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."
readonly kept=docs/messages.txt

# A message is what a statement that throws, logs, refuses or returns a text holds in quotes.
list() {
  find engine io kernels bindings \( -name '*.cpp' -o -name '*.h' \) ! -path '*/plan/verifier*' -print0 | sort -z |
    xargs -0 awk '
      BEGIN { RS = "\001" }
      function texts_of(statement,   text, gap, literal) {
        text = ""
        while (match(statement, /"([^"\\\n]|\\.)*"/)) {
          gap = substr(statement, 1, RSTART - 1)
          literal = substr(statement, RSTART + 1, RLENGTH - 2)
          text = text (text != "" && gap ~ /[^ \n]/ ? "{}" : "") literal
          statement = substr(statement, RSTART + RLENGTH)
        }
        return text
      }
      {
        gsub(/\n *\/\/[^\n]*/, "")
        gsub(/  \/\/[^\n"]*\n/, "\n")
        rest = $0
        while (match(rest, /(throw [A-Za-z_:]+\(|log\(LogLevel::|[. ]refuse[a-z_]*\(|problem\(|push_back\(|return (system_error\(|fmt::format\(|")|cause = |, kMistake,|, kHarmless,)/)) {
          rest = substr(rest, RSTART)
          end = match(rest, /;\n|\},\n/)
          if (end == 0) break
          text = texts_of(substr(rest, 1, end))
          if (text ~ /[a-z][a-z]+[ ,:;{}]+[a-z][a-z]+/ && length(text) > 12) print FILENAME ": " text
          rest = substr(rest, end)
        }
      }' | sort -u
}

check() {
  local wrong=0
  if ! diff -u "$kept" <(list); then
    echo "$kept is another list than the sources have: read the lines above, then run tests/tree/messages.sh update"
    wrong=1
  fi
  # Words that readers stumbled over, and what to write instead.
  local avoided='which is not read|is none|goes first|told together|nothing was left|would not go on|follows no '
  avoided+='|no word of|has to do with|is there not|not yet there| a rank;|bytes, not [0-9]{7}'
  if grep -nE "$avoided" "$kept"; then
    echo "these messages have words that nobody says (see CONTRIBUTING.md)"
    wrong=1
  fi
  return $wrong
}

case ${1:-} in
  list) list ;;
  check) check ;;
  update) list > "$kept" ;;
  *) sed -n '3,9s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
