#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Transformers loads every directory that the export tests left in FOLDER, and computes our logits from it.
#
#   check_exports_test.sh FOLDER
#
# STRATA_PYTHON names a Python with torch and transformers; otherwise python3 is tried. Exit code 77: there is none.
set -euo pipefail

python=${STRATA_PYTHON:-python3}
if ! why=$("$python" -c 'import torch, transformers' 2>&1); then
  echo "$python has no torch and transformers: ${why##*$'\n'}" >&2
  if [[ -n ${STRATA_PYTHON:-} ]]; then exit 1; fi
  echo "Not checked: set STRATA_PYTHON to a Python that has both." >&2
  exit 77
fi

mapfile -t exports < <(find "$1" -mindepth 1 -maxdepth 1 -type d | sort)
if ((${#exports[@]} == 0)); then
  echo "$1 has no exports: the tests Export.* leave them" >&2
  exit 1
fi
"$python" "$(dirname "$0")/check_export.py" "${exports[@]}"
