#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the packages of a list (tests/packages.txt where none is given) that are missing; does nothing, and
# needs no network, when all are there. Elsewhere than on Debian and its relatives it says what is needed and
# goes on.
set -euo pipefail

list=${1:-$(cd "$(dirname "$0")" && pwd)/packages.txt}
mapfile -t packages < <(grep -vE '^[[:space:]]*(#|$)' "$list")

if ! command -v apt-get > /dev/null; then
  echo "No apt-get here. Needed, by their Debian names: ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2> /dev/null || true)
  if [[ $state != installed ]]; then missing+=("$package"); fi
done
if ((${#missing[@]} == 0)); then exit 0; fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo > /dev/null; then
    echo "Missing packages, and neither root nor sudo to install them: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "Installing: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -qq -y --no-install-recommends "${missing[@]}"
