#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The installed C library is all that a program in C needs: the example, copied out of the tree, is built by
# pkg-config and by CMake, and learns with its state on a drive.
#
#   outside_test.sh ROOT BUILD
set -euo pipefail
root=$1
build=$2
work=$(mktemp -d "$build/c-outside-test.XXXXXX")
outside=$(mktemp -d)
trap 'rm -rf "$work" "$outside"' EXIT

lines=$(wc -l < "$root/examples/c_store.c")
((lines < 80)) || { echo "examples/c_store.c: $lines lines, fewer than 80 are wanted" && exit 1; }
cmake --install "$build" --prefix "$work" --component c > /dev/null
libraries=$(dirname "$(find "$work" -name 'libstrata.so')")
PKG_CONFIG_PATH=$libraries/pkgconfig LD_LIBRARY_PATH=$libraries
cp "$root/examples/c_store.c" "$outside"
cd "$outside"

# As docs/embedding.md shows it.
export PKG_CONFIG_PATH LD_LIBRARY_PATH
blocks=$(sed -n '/^```sh$/,/^```$/{/^```/!p}' "$root/docs/embedding.md")
bash -euxo pipefail -c "$blocks" | tee said
grep -q '^step 151 ' said
./c_store | grep -q '^step 151 '
read -ra flags <<< "$(pkg-config --cflags --libs strata)"
cc -std=c99 -Wall -Wextra -Werror -O2 c_store.c -o strict \
  "${flags[@]}" -lm
# A budget that is too small is refused with the least that fits.
if ./c_store '{"recipe": "fp32", "threads": 1, "host_memory": "64KiB", "nvme": "scratch"}' 2> said; then exit 1; fi
grep -qE '^c_store: .*KiB' said

cat > CMakeLists.txt << 'END'
cmake_minimum_required(VERSION 3.25)
project(outside LANGUAGES C)
find_package(strata 0.1 REQUIRED COMPONENTS c ${WANTED})
add_executable(by_cmake c_store.c)
target_link_libraries(by_cmake PRIVATE strata::c m)
END
export CMAKE_GENERATOR=Ninja
refused=$(cmake -S . -B none -DCMAKE_PREFIX_PATH="$work" -DWANTED=cxx 2>&1) && exit 1
grep -q 'component cxx is not installed' <<< "$refused" || { echo "$refused" && exit 1; }
cmake -S . -B made -DCMAKE_PREFIX_PATH="$work" > /dev/null
cmake --build made > /dev/null
[[ -x made/by_cmake ]]
