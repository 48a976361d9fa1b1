# SPDX-License-Identifier: Apache-2.0
"""strata.bench_io on a small scratch."""

import tempfile
import unittest

import strata


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=".")
        self.addCleanup(folder.cleanup)
        self.options = dict(
            nvme=[folder.name], size="8MiB", block=["64KiB"], depth=[4], files=[1], seconds=0.1
        )

    def test_every_shape_is_measured_in_order(self):
        seen = []
        rates = strata.bench_io(self.options, mode=["read", "write"], progress=seen.append)
        self.assertEqual(rates, seen)
        self.assertEqual([each.mode for each in rates], ["read", "write"])
        self.assertEqual((rates[0].block_bytes, rates[0].depth), (65536, 4))
        self.assertGreater(rates[0].read_bytes_per_s, 0)
        self.assertEqual(rates[0].write_bytes_per_s, 0)
        self.assertGreaterEqual(rates[1].write.max_s, rates[1].write.p50_s)
        self.assertGreater(rates[1].write.p50_s, 0)

    def test_what_progress_raises_ends_it(self):
        def progress(_rates):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            strata.bench_io(self.options, progress=progress)

    def test_only_false_from_progress_ends_it(self):
        seen = []
        modes = ["read", "write"]
        rates = strata.bench_io(
            self.options, mode=modes, progress=lambda each: seen.append(each) is None
        )
        self.assertEqual(rates, seen)
        with self.assertRaises(strata.Interrupted):
            strata.bench_io(self.options, mode=modes, progress=lambda each: False)

    def test_mistakes_are_named(self):
        with self.assertRaisesRegex(strata.UsageError, "compare-fio: only the program"):
            strata.bench_io(self.options, compare_fio=True)
        with self.assertRaisesRegex(strata.UsageError, "--size"):
            strata.bench_io(self.options, size="1KiB")


if __name__ == "__main__":
    unittest.main()
