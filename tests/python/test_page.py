# SPDX-License-Identifier: Apache-2.0
"""The Python of docs/embedding.md runs."""

import os
import re
import shutil
import tempfile
import unittest
from pathlib import Path

import numpy as np

TREE = Path(os.environ.get("STRATA_TREE", Path(__file__).resolve().parents[2]))


class Page(unittest.TestCase):
    def test_its_python_runs(self):
        page = (TREE / "docs/embedding.md").read_text()
        blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        self.assertEqual(len(blocks), 2)
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(TREE / "tests/data/model/tinyllama", Path(folder, "model"))
            (np.arange(200) ** 2 % 59).astype("<u2").tofile(Path(folder, "text.bin"))
            os.chdir(folder)
            try:
                for block in blocks:
                    exec(compile(block, "docs/embedding.md", "exec"), {})
            finally:
                os.chdir(before)


if __name__ == "__main__":
    unittest.main()
