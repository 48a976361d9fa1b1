#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every message that a user can see: the texts of errors, warnings and notes, as the sources have them, with {} for
# what they name and [a|b] for what they choose between (messages.awk). docs/messages.txt holds the list, so that a change of a message is reviewed as text. A message says
# what is wrong, where, and what to do. tests/tree/messages_completed.txt names those without a way out of their own,
# and who adds it.
#
#   messages.sh list      prints the list
#   messages.sh check     fails when docs/messages.txt is another, when a message has words that we avoid, or when
#                         neither it nor anyone else says what to do
#   messages.sh update    writes docs/messages.txt
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."
readonly kept=docs/messages.txt
readonly completed=tests/tree/messages_completed.txt
readonly unfinished='## without a way out'

messages() {
  local files
  mapfile -t files < <(
    find engine io kernels bindings \( -name '*.cpp' -o -name '*.h' \) ! -path '*/plan/verifier*' | sort)
  awk -f tests/tree/messages.awk pass=1 "${files[@]}" pass=2 "${files[@]}" | sort -u
}

# The messages in sections: those that say what to do; then those that another completes, in the order of the table.
list() {
  messages | awk -v unfinished="$unfinished" '
    BEGIN {
      words = "add|ask|boot|call|change|check|choose|close|complete|convert|copy|correct|create|cut|declare|delete|"
      words = words "describe|do not|end|fetch|free|freeze|get|give|have|install|keep|leave|limit|load|look|lower|make|mark|mount|move|"
      words = words "convert|keep|save|name|open|pass|plan|please|put|quote|raise|release|remove|rename|report|restore|resume|retry|run|see|"
      words = words "set|shorten|spell|split|spread|start|strata|submit|swap|sysctl|take|try|turn|ulimit|unpack|unset|"
      words = words "update|use|wait|write|acquire|begin|echo|all ranks|it must|needs"
      way_out = "([(]|[{]}|[;:,] |or |to |[(]if [^()]*, )(" words ")( |[.:;,()]|$)"
      way_out = way_out "|[(](is|does|did|was|which|where) [^()]*[?]|did you mean|must (not )?be |[{]advice}|such as|for example"
    }
    NR == FNR {
      if ($0 ~ /^## /) sections[++count] = $0
      else if ($0 !~ /^(#|$)/) { patterns[++rules] = $0; section_of[rules] = count }
      next
    }
    { text = substr($0, index($0, ": ") + 2) }
    text ~ way_out { print; next }
    {
      for (i = 1; i <= rules && $0 !~ "^(" patterns[i] ")$"; ++i) {}
      used[i] = 1
      found[i <= rules ? section_of[i] : count + 1] = found[i <= rules ? section_of[i] : count + 1] "\n" $0
    }
    END {
      sections[count + 1] = unfinished
      for (i = 1; i <= rules; ++i) if (!used[i]) found[count + 1] = found[count + 1] "\nno such message: " patterns[i]
      for (i = 1; i <= count + 1; ++i) if (found[i] != "") print "\n" sections[i] found[i]
    }' "$completed" -
}

check() {
  local wrong=0
  if ! diff -u "$kept" <(list); then
    echo "$kept is another list than the sources have: read the lines above, then run tests/tree/messages.sh update"
    wrong=1
  fi
  if sed -n "/^$unfinished/,\$p" "$kept" | grep .; then
    echo "say what to do in these messages, or name in $completed who adds it"
    wrong=1
  fi
  for path in $(sed -n 's/^## completed by \([^ :]*\).*/\1/p' "$completed"); do
    [[ -f $path ]] || { echo "$completed: $path does not exist" && wrong=1; }
  done
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
  *) sed -n '3,12s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
