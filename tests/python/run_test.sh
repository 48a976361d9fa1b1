#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the Python package of the tree: run_test.sh LIBRARY bench|ranks|store|train|page. Skipped without NumPy.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${STRATA_PYTHON:-python3}
if ! "$python" -c 'import numpy' 2> /dev/null; then
  echo "$python has no NumPy: not tested (tests/run_python.sh makes an environment that has it)"
  exit 77
fi
export STRATA_LIBRARY=$1 PYTHONPATH=$here/../../bindings/python PYTHONDONTWRITEBYTECODE=1
exec "$python" -X faulthandler -W error "$here/test_$2.py"
