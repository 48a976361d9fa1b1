# SPDX-License-Identifier: Apache-2.0
"""The installed wheel: it is typed, holds its libraries, and no library of the system is in use."""

import pathlib
import re
import unittest

import strata

FOLDER = pathlib.Path(strata.__file__).parent


@unittest.skipUnless("site-packages" in str(FOLDER), "the package is not installed")
class Wheel(unittest.TestCase):
    def test_it_holds_what_it_needs(self):
        self.assertTrue((FOLDER / "py.typed").exists())
        self.assertTrue((FOLDER / "lib/libstrata.so").exists())
        mapped = set(re.findall(r"(/\S+\.so\S*)", pathlib.Path("/proc/self/maps").read_text()))
        ours = [path for path in mapped if path.startswith(str(FOLDER))]
        self.assertGreater(len(ours), 5)
        for name in ("tbb", "dnnl", "uring", "fmt", "xxhash", "crypto"):
            found = {path for path in mapped if pathlib.Path(path).name.startswith(f"lib{name}")}
            self.assertTrue(found.intersection(ours), f"{name}: {found}")
            if name != "crypto":  # of which Python has its own
                self.assertEqual(found.difference(ours), set())


if __name__ == "__main__":
    unittest.main()
