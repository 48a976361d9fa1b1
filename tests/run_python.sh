#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the wheel of the Python package from build/, installs it in a new virtual environment with pinned versions,
# and runs all Python tests there, where neither the tree nor the libraries of this system are found.
#
#   tests/run_python.sh            needs a build (tests/run.sh --fast), patchelf, and PyPI the first time
#   tests/run_python.sh --torch    the tests of strata.torch too; PyTorch takes some gigabytes
#   tests/run_python.sh --torch-4  the same with Transformers 4: pins of requirements_torch_4.txt replace others
#
# The environment is build/python, or that of STRATA_PYTHON_ENVIRONMENT, and stays.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
environment=${STRATA_PYTHON_ENVIRONMENT:-$root/build/python}
python=${STRATA_PYTHON:-/usr/bin/python3}

library=$root/build/bindings/c/libstrata.so
[[ -e $library ]] || { echo "$library is missing: build the target strata_c first" >&2 && exit 1; }
[[ -x $environment/bin/pip ]] || "$python" -m venv "$environment"
"$environment/bin/pip" install -q -r "$root/tests/python/requirements.txt"
pins=$root/tests/python/requirements_torch
case ${1:-} in
  --torch) "$environment/bin/pip" install -q -r "$pins.txt" ;;
  --torch-4) "$environment/bin/pip" install -q -r <(sort -su -t= -k1,1 "${pins}_4.txt" "$pins.txt") ;;
esac
export PATH="$environment/bin:$PATH"
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
wheel=$("$environment/bin/python" "$root/bindings/python/build_wheel.py" "$library" "$wheels")
"$environment/bin/pip" install -q --no-deps --force-reinstall "$wheel"
cp -r "$root/tests/python" "$wheels/tests"
cd "$wheels/tests"
unset STRATA_LIBRARY PYTHONPATH
STRATA_TREE=$root "$environment/bin/python" -m pytest -q -p no:cacheprovider .
bash "$root/tests/python/check_types.sh" "$environment/bin/python"
