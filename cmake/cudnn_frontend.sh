#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches the headers of cuDNN's C++ frontend, which the CUDA plugin is built with, into a build folder, through pip.
# Without them the plugin computes attention by tiles, which is slower.
#
#   cudnn_frontend.sh [BUILD]     default: build. Does nothing where they are there, or without nvcc
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
to=${1:-$root/build}/cudnn_frontend
if [[ -e $to/include/cudnn_frontend.h ]]; then exit 0; fi
if ! command -v "${CUDACXX:-nvcc}" > /dev/null && [[ ! -x /usr/local/cuda/bin/nvcc ]]; then exit 0; fi
if ! python3 -m pip --version > /dev/null 2>&1; then
  echo "cudnn_frontend.sh: python3 has no pip, which fetches the headers (install python3-pip)" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# One wheel for all versions of Python: only its headers are used.
python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
  --python-version 3.11 --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
  -d "$work" -r "$root/cmake/cudnn_frontend.txt"
python3 - "$work" << 'PYTHON'
import glob, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
names = [name for name in wheel.namelist() if name.startswith("include/") or "licenses/" in name]
wheel.extractall(sys.argv[1] + "/cudnn_frontend", names)
PYTHON
mkdir -p "$(dirname "$to")"
rm -rf "$to"
mv "$work/cudnn_frontend" "$to"
