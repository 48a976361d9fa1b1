# SPDX-License-Identifier: Apache-2.0
"""strata.Store.write: planes that are replaced between steps."""

import tempfile
import unittest

import numpy as np

import strata

SHAPES = {"layer.weight": (96, 80), "layer.bias": (7,), "layer.scale": ()}
UNITS = [strata.Unit("layer", SHAPES)]
PLANES = ("weights", "exp_avg", "exp_avg_sq")


def run_step(store, salt):
    store.begin()
    with store.acquire("layer", "forward"):
        pass
    with store.acquire("layer", "backward") as view:
        for name, shape in SHAPES.items():
            view.gradient(name)[...] += np.float32(salt) + np.cos(view.float32(name))
    store.step(lr=0.01)


class Writes(unittest.TestCase):
    def test_are_read_and_used(self):
        draw = np.random.default_rng(5)
        values = {name: draw.standard_normal(shape) for name, shape in SHAPES.items()}
        for recipe in ("fp32", "bf16"):
            with tempfile.TemporaryDirectory() as folder:
                drive = {"nvme": folder, "host_memory": "240KiB"}
                states = []
                for more in ({}, drive):
                    options = {"recipe": recipe, "threads": 1, "clip": 0, **more}
                    with strata.Store(UNITS, options) as store:
                        store.load(values)
                        run_step(store, 1)
                        for name, shape in SHAPES.items():
                            for plane in PLANES:
                                new = np.abs(draw.standard_normal(shape)) if not states else None
                                new = states[0][0][plane][name] if new is None else new
                                store.write(name, new, plane)
                                expected = np.asarray(new, np.float32)
                                np.testing.assert_array_equal(store.read(name, plane), expected)
                        written = {plane: store.state(plane) for plane in PLANES}
                        run_step(store, 2)
                        states.append((written, {plane: store.state(plane) for plane in PLANES}))
                for plane in PLANES:
                    for name in SHAPES:
                        np.testing.assert_array_equal(
                            states[0][1][plane][name], states[1][1][plane][name], f"{plane} {name}"
                        )

    def test_mistakes_change_nothing(self):
        with strata.Store(UNITS, {"recipe": "fp32", "threads": 1}) as store:
            store.load({name: np.ones(shape) for name, shape in SHAPES.items()})
            with self.assertRaisesRegex(strata.ConfigError, r"shape \(80, 96\)"):
                store.write("layer.weight", np.zeros((80, 96)))
            with self.assertRaisesRegex(strata.UsageError, "plane"):
                store.write("layer.bias", np.zeros(7), "gradient")
            with self.assertRaisesRegex(strata.ConfigError, "no unit has"):
                store.write("bias", np.zeros(7))
            store.begin()
            with self.assertRaisesRegex(strata.UsageError, "end it first"):
                store.write("layer.bias", np.zeros(7))
            store.discard()
            self.assertTrue(all((value == 1).all() for value in store.state().values()))


if __name__ == "__main__":
    unittest.main()
