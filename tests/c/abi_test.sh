#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Structs, constants and functions of strata.h are those of strata.abi, with their sizes, places, values and types on
# x86-64. What changes there breaks programs that were built before, but for functions and constants that are new, and
# members at the end of a struct whose older size the library still takes.
#
#   abi_test.sh FOLDER COMPILER [update]      FOLDER: with strata.h and strata.abi
set -euo pipefail
export LC_ALL=C
folder=$1
compiler=$2
[[ $(uname -m) == x86_64 ]] || { echo "strata.abi is of x86-64" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$compiler" -x c -E -P "$folder/strata.h" | tr '\n' ' ' | perl -e '
local $/;
my $text = <STDIN>;
print "#include <stddef.h>\n#include <stdio.h>\n#include \"strata.h\"\nint main(void) {\n";
while ($text =~ /typedef struct strata_\w+ \{(.*?)\} (strata_\w+);/g) {
  my ($members, $name) = ($1, $2);
  print "  printf(\"struct $name %zu\\n\", sizeof($name));\n";
  for my $member (split(/;/, $members)) {
    my $type = $member =~ s/\s+/ /gr =~ s/^ | $//gr;
    next if $type eq "";
    my ($called) = $type =~ /\(\*(\w+)\)/ ? $1 : $type =~ /(\w+)(?:\[\d+\])?$/;
    print "  printf(\"  %zu %zu $type\\n\", offsetof($name, $called), sizeof((($name*)0)->$called));\n";
  }
}
while ($text =~ /enum[^{;]*\{(.*?)\}/g) {
  for my $name ($1 =~ /\b(STRATA_\w+)/g) {
    print "  printf(\"constant $name %d\\n\", (int)$name);\n";
  }
}
while ($text =~ /typedef ([^;{]*\(\*strata_\w+\)[^;]*);/g) {
  my $line = "callback $1" =~ s/\s+/ /gr;
  print "  puts(\"$line\");\n";
}
$text =~ s/typedef [^;{]*\(\*strata_\w+\)[^;]*;//g;
while ($text =~ /((?:const )?[\w]+[\s*]+)(?:__attribute__\s*\(\(.*?\)\)\s*)?(strata_\w+)\s*\(([^;{]*?)\)\s*;/g) {
  my $line = "function $1$2($3)" =~ s/\s+/ /gr;
  print "  puts(\"$line\");\n";
}
print "  return 0;\n}\n";
' > "$work/print.c"
"$compiler" -x c -I"$folder" "$work/print.c" -o "$work/print"
"$work/print" > "$work/abi"
if [[ ${3:-} == update ]]; then
  cp "$work/abi" "$folder/strata.abi"
elif ! diff -u "$folder/strata.abi" "$work/abi"; then
  echo "strata.h has another ABI than strata.abi: see the lines above, then run tests/c/abi_test.sh FOLDER COMPILER update"
  exit 1
fi
