#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves that each rule of tree_rules.sh can fail: a small clean tree passes, and each offence planted in it
# is found by its rule, named with its file, and by no other.
set -euo pipefail

rules=$(cd "$(dirname "$0")" && pwd)/tree_rules.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

make_tree() {
  rm -rf "$tree"
  mkdir -p "$tree"/{engine/base,engine/plan,engine/model,io,kernels/cpu,bindings/cli}
  cd "$tree"
  git init -q .
  printf 'BasedOnStyle: Google\nColumnLimit: 100\n' > .clang-format
  printf '// SPDX-License-Identifier: Apache-2.0\n#pragma once\n' > engine/base/a.h
  printf '// SPDX-License-Identifier: Apache-2.0\n#pragma once\n\n#include "engine/base/a.h"\n' > io/b.h
  printf '// SPDX-License-Identifier: Apache-2.0\n#pragma once\n\n#include "engine/base/a.h"\n' > engine/model/c.h
  printf '// SPDX-License-Identifier: Apache-2.0\n#include "engine/model/c.h"\n' > engine/plan/d.cpp
}

# plant RULE FILE WORDS: with the offence in FILE, RULE reports FILE with WORDS and the others nothing.
expect_offence() {
  local rule=$1 file=$2 words=$3 other out
  if out=$(bash "$rules" "$rule" "$tree"); then fail "$rule did not see the offence in $file"; fi
  if [[ $out != *"$file:"*"$words"* ]]; then fail "$rule said: $out"; fi
  for other in layers homes headers environment spdx text sizes; do
    if [[ $other != "$rule" ]] && ! out=$(bash "$rules" "$other" "$tree"); then
      fail "$other complains about the offence against $rule: $out"
    fi
  done
}

make_tree
if ! out=$(bash "$rules" all "$tree"); then fail "a clean tree: $out"; fi

rm -rf "$tree/.git"
if ! out=$(bash "$rules" all "$tree"); then fail "a clean tree without git: $out"; fi
echo '#include "engine/model/c.h"' >> io/b.h
expect_offence layers io/b.h:5 'io may not include engine/model/c.h'

make_tree
echo '#include "engine/model/c.h"' >> io/b.h
expect_offence layers io/b.h:5 'io may not include engine/model/c.h'

make_tree
echo '#include "io/b.h"' >> engine/plan/d.cpp
expect_offence layers engine/plan/d.cpp:3 'engine/plan may not include io/b.h'

make_tree
echo '#include "bindings/cli/e.h"' >> engine/plan/d.cpp
expect_offence layers engine/plan/d.cpp:3 'engine/plan may not include bindings/cli/e.h'

make_tree
echo '#include "a.h"' >> io/b.h
expect_offence layers io/b.h:5 'from the root of the tree'

make_tree
mkdir engine/misc
printf '// SPDX-License-Identifier: Apache-2.0\n#include "io/b.h"\n' > engine/misc/f.cpp
expect_offence layers engine/misc/f.cpp:2 'in no layer'

make_tree
mkdir kernels/misc
printf '// SPDX-License-Identifier: Apache-2.0\n#include "engine/base/a.h"\n' > kernels/misc/f.cpp
expect_offence layers kernels/misc/f.cpp:2 'in no layer'

make_tree
echo '#include <ucp/api/ucp.h>' >> engine/plan/d.cpp
expect_offence homes engine/plan/d.cpp:3 'has no home'

make_tree
echo '#include <nlohmann/json.hpp>' >> engine/model/c.h
expect_offence homes engine/model/c.h:5 'has its home in engine/config/json'

make_tree
echo '#include <liburing.h>' >> engine/plan/d.cpp
expect_offence homes engine/plan/d.cpp:3 'has its home in io/ring_uring'

make_tree
echo '#include "hwy/highway.h"' >> io/b.h
expect_offence homes io/b.h:5 'has its home in kernels/cpu'

make_tree
printf '// SPDX-License-Identifier: Apache-2.0\n#ifndef G\n#define G\n#endif\n' > io/g.h
expect_offence headers io/g.h:2 'pragma once'

make_tree
echo 'const char* home() { return getenv("HOME"); }' >> engine/plan/d.cpp
expect_offence environment engine/plan/d.cpp:3 'only bindings'

make_tree
echo 'void end() { _exit(4); }' >> engine/plan/d.cpp
expect_offence process engine/plan/d.cpp:3 'only bindings'

make_tree
echo 'void say() { std::fputs("said", stderr); }' >> io/b.h
expect_offence process io/b.h:5 'only bindings'

make_tree
printf '#pragma once\n' > io/g.h
expect_offence spdx io/g.h:1 'SPDX'

make_tree
echo '// TO''DO: later' >> engine/plan/d.cpp
expect_offence text engine/plan/d.cpp:3 'unfinished'

make_tree
echo '// see /ho''me/someone/notes' >> engine/plan/d.cpp
expect_offence text engine/plan/d.cpp:3 'machine path'

make_tree
printf '//\ttab\n' >> engine/plan/d.cpp
expect_offence text engine/plan/d.cpp:3 'tab'

make_tree
printf '// %0120d\n' 0 >> engine/plan/d.cpp
expect_offence sizes engine/plan/d.cpp:3 '123 columns'

make_tree
for line in $(seq 460); do echo "// $line" >> engine/plan/d.cpp; done
expect_offence sizes engine/plan/d.cpp:462 '462 lines'

make_tree
if command -v "${CLANG_FORMAT:-clang-format}" > /dev/null; then
  echo 'int   spaced ;' >> engine/plan/d.cpp
  expect_offence format engine/plan/d.cpp:3 'clang-format'
fi

if ((failures > 0)); then exit 1; fi
echo "every rule sees its offences"
