#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches into a build folder, through pip, what the CUDA plugin is built from and this machine lacks: cuDNN's headers
# (without them the plugin computes attention by tiles, which is slower), NCCL's header (without it GPUs exchange through
# the host), and CUDA's compiler and libraries where there is no nvcc. CMake finds them in BUILD/cudnn, BUILD/nccl and
# BUILD/cuda; it takes those of the machine before these.
#
#   cuda_wheels.sh [BUILD]     default: build. Fetches nothing a second time. Compiling needs no GPU and no driver
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}

# fetched LIST TO: unpacks the wheels of a list, without the folders that packages put around include/, lib/ and bin/.
fetched() {
  local list=$root/cmake/$1 to=$build/$2 work=$build/$2.fetched
  if [[ -e $to/include ]]; then return; fi
  if ! python3 -m pip --version > /dev/null 2>&1; then
    echo "cuda_wheels.sh: python3 has no pip, which fetches NVIDIA's packages (install python3-pip)" >&2
    exit 1
  fi
  rm -rf "$work" "$to"
  mkdir -p "$work/wheels"
  echo "cuda_wheels.sh: fetching $(sed -nE 's/^([a-z].*==[0-9.]*).*/\1/p' "$list" | xargs)"
  # One wheel serves all versions of Python: nothing of it is imported.
  if ! timeout 600 python3 -m pip download -q --disable-pip-version-check --retries 2 --timeout 20 --no-deps \
    --only-binary=:all: --require-hashes --python-version 3.11 --implementation cp \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_18_x86_64 \
    --platform manylinux_2_17_x86_64 --platform manylinux_2_12_x86_64 --platform manylinux_2_5_x86_64 -d "$work/wheels" -r "$list"; then
    rm -rf "$work"
    echo "cuda_wheels.sh: the packages of cmake/$1 could not be fetched (is the Python package index within reach?)" >&2
    exit 1
  fi
  python3 - "$work" << 'PYTHON'
import glob, os, re, shutil, sys, zipfile

work = sys.argv[1]
unused = re.compile(r"/cmake/|/lib(cublas|nvblas|nvvm|nvrtc[-\w]*|cudnn\w*|nccl)(\.alt)?\.so")
for path in glob.glob(work + "/wheels/*.whl"):
    wheel = zipfile.ZipFile(path)
    for name in wheel.namelist():
        kept = re.fullmatch(r"(?:nvidia/\w+/)?((?:bin|include|lib|nvvm)/.*)", name)
        kept = kept or re.fullmatch(r".*/(licenses/)(.*)", name)
        if not kept or name.endswith("/") or unused.search(name):
            continue
        inside = kept[1]
        if inside == "licenses/":
            inside = f"licenses/{os.path.basename(path).split('-')[0]}/{kept[2]}"
        to = os.path.join(work, "files", inside)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        with wheel.open(name) as source, open(to, "wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
        if re.search(r"^(nvvm/)?bin/", inside):
            os.chmod(to, 0o755)
    wheel.close()
    os.remove(path)
# What a linker looks for: the folder lib64, and libraries by names without a version.
if os.path.isdir(work + "/files/lib"):
    os.symlink("lib", work + "/files/lib64")
    for path in glob.glob(work + "/files/lib/*.so.*"):
        os.symlink(os.path.basename(path), re.sub(r"\.so\..*", ".so", path))
PYTHON
  mv "$work/files" "$to"
  rm -rf "$work"
}

if ! command -v "${CUDACXX:-nvcc}" > /dev/null && [[ ! -x /usr/local/cuda/bin/nvcc ]]; then
  if [[ $(uname -m) != x86_64 ]]; then exit 0; fi  # these packages are not of this machine
  fetched cuda_toolkit.txt cuda
fi
fetched cudnn_headers.txt cudnn
if [[ ! -e /usr/include/nccl.h && ! -e /usr/local/include/nccl.h && ! -e /usr/local/cuda/include/nccl.h ]]; then
  fetched nccl_header.txt nccl
fi
