#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the types of the package `strata` that PYTHON imports, or that of MYPYPATH: check_types.sh PYTHON. Without PyTorch,
# strata.torch is not checked, because its base classes are not known.
set -euo pipefail
python=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '[mypy]\n[mypy-torch.*]\nfollow_imports = silent\n' > "$work/mypy.ini"
if ! "$python" -c 'import torch' 2> /dev/null; then
  printf '[mypy-strata.torch.*]\nignore_errors = True\n' >> "$work/mypy.ini"
fi
cd "$work"
"$python" -m mypy --strict --config-file "$work/mypy.ini" --cache-dir "$work/cache" -p strata
