# SPDX-License-Identifier: Apache-2.0
"""strata.plan, strata.train and strata.Model on a small model directory."""

import json
import os
import shutil
import signal
import tempfile
import threading
import unittest
from pathlib import Path

import numpy as np

import strata

ROOT = Path(os.environ.get("STRATA_TREE", Path(__file__).resolve().parents[2]))
MODEL = ROOT / "tests/data/model/tinyllama"
MACHINE = ROOT / "examples/machines/small-2core.toml"


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        tokens = np.arange(12 * 8 + 1) ** 2 % 59
        tokens.astype("<u2").tofile(self.folder / "tokens.bin")
        self.options = dict(model=MODEL, sequence_length=8, threads=1, accumulate=2)
        self.run_options = dict(
            self.options,
            data=self.folder / "tokens.bin",
            out=self.folder / "run",
            steps=6,
            lr=1e-2,
            machine=MACHINE,
        )

    def test_a_plan_is_text_and_data(self):
        plan = strata.plan(self.options, machine=MACHINE)
        self.assertIn("model", str(plan))
        self.assertIsInstance(plan.data, dict)
        with self.assertRaises(strata.DoesNotFit):
            strata.plan(self.options, machine=MACHINE, host_memory="1MiB")
        with self.assertRaisesRegex(strata.UsageError, "modell"):
            strata.plan(modell="x")

    def test_a_configuration_is_enough_for_a_plan(self):
        config = json.loads((Path(MODEL) / "config.json").read_text())
        expected = strata.plan(self.options, machine=MACHINE)
        found = strata.plan({**self.options, "model": config}, machine=MACHINE)
        self.assertEqual(found.data, expected.data)
        with self.assertRaisesRegex(strata.ConfigError, "architectures: missing"):
            strata.plan({**self.options, "model": {}}, machine=MACHINE)

    def test_a_plan_takes_the_model_first(self):
        class Config:
            def to_dict(self):
                return json.loads((Path(MODEL) / "config.json").read_text())

        options = {**self.options, "machine": MACHINE, "accumulate": np.int64(2)}
        model = options.pop("model")
        expected = strata.plan(model, options)
        for config in (Config(), Config().to_dict(), str(model)):
            found = strata.plan(config, **options)
            self.assertEqual(found.data, expected.data)
        self.assertEqual(repr(expected), expected.text)
        wrong = {**Config().to_dict(), "num_attention_heads": "x"}
        with self.assertRaises(strata.ConfigError) as raised:
            strata.plan(wrong, options)
        self.assertIn("(model)/config.json", str(raised.exception))
        self.assertNotIn(tempfile.gettempdir(), str(raised.exception))
        with self.assertRaisesRegex(strata.ConfigError, "model: 5 .give a path"):
            strata.plan(5, options)

    def test_a_run_that_is_stopped_finishes_the_step_that_has_begun(self):
        seen = []

        def progress(step):
            seen.append(step.step)
            return step.step < 3

        result = strata.train(self.run_options, progress=progress)
        self.assertEqual((result.last_step, seen), (4, [1, 2, 3, 4]))

    def test_a_run_reports_its_steps(self):
        steps, evaluations = [], []
        result = strata.train(
            self.run_options,
            eval_every=3,
            progress=steps.append,
            evaluated=lambda step, loss: evaluations.append(step),
        )
        self.assertEqual([step.step for step in steps], [1, 2, 3, 4, 5, 6])
        self.assertEqual(evaluations, [3, 6])
        self.assertEqual(result.last_loss, steps[-1].loss)
        self.assertLess(result.last_loss, result.first_loss)
        self.assertTrue(os.path.exists(os.path.join(result.model, "model.safetensors")))

    def test_a_callback_stops_or_raises(self):
        for stops in (
            dict(progress=lambda step: step.step != 2),
            dict(evaluated=lambda step, loss: False, eval_every=2),
        ):
            result = strata.train(self.run_options, force=True, **stops)
            self.assertTrue(result.stopped)
            self.assertIn(result.last_step, (2, 3))  # the next step may have begun
            self.assertIsNone(result.model)
            self.assertTrue(os.path.exists(os.path.join(result.checkpoint, "manifest.json")))

        def interrupted(step):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            strata.train(self.run_options, force=True, progress=interrupted)

    def test_only_false_stops(self):
        """A bar's update() returns True when it draws, and numbers and None are no answers."""
        for answer in (True, None, 0, "", np.bool_(True)):
            seen = []

            def progress(step):
                seen.append(step.step)
                return answer

            result = strata.train(
                self.run_options,
                force=True,
                eval_every=3,
                progress=progress,
                evaluated=lambda step, loss: answer,
            )
            self.assertEqual((result.stopped, seen), (False, [1, 2, 3, 4, 5, 6]))

    def test_numpys_false_stops_too(self):
        result = strata.train(
            self.run_options, force=True, progress=lambda step: np.bool_(step.step < 3)
        )
        self.assertTrue(result.stopped)
        self.assertLess(result.last_step, 6)

    def test_a_bar_of_tqdm_is_a_progress(self):
        try:
            from tqdm import tqdm
        except ImportError:
            self.skipTest("tqdm is not installed")
        with open(os.devnull, "w", encoding="utf-8") as shown:
            with tqdm(total=6, file=shown, mininterval=0, miniters=1) as bar:
                drawn = []

                def progress(step):
                    drawn.append(bar.update())
                    return drawn[-1]

                result = strata.train(self.run_options, progress=progress)
        self.assertIn(True, drawn)
        self.assertFalse(result.stopped)
        self.assertEqual(bar.n, 6)

    def test_an_interrupt_stops_a_run_that_has_its_checkpoint(self):
        for progress in (None, lambda step: None):
            options = {**self.run_options, "steps": 10**6, "force": True}
            handler = signal.getsignal(signal.SIGINT)
            timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                strata.train(options, progress=progress)
            timer.join()
            self.assertIs(signal.getsignal(signal.SIGINT), handler)
            self.assertTrue(list(self.folder.glob("run/**/manifest.json")))
            shutil.rmtree(self.folder / "run")

    def test_a_model_is_driven(self):
        tokens = (np.arange(16) ** 2 % 59).reshape(2, 1, 8)
        targets = (tokens + 1) % 59
        with strata.Model(self.options, recipe="fp32", cache=self.folder / "cache") as model:
            model.load()
            before = model.evaluate(tokens, targets)
            for step in range(4):
                self.assertEqual(model.step(tokens, targets, lr=1e-2).step, step + 1)
            self.assertLess(model.evaluate(tokens, targets), before)
            self.assertEqual(model.logits([1, 2, 3]).ndim, 1)
            saved = model.save(self.folder / "saved")
            expected = model.step(tokens, targets, lr=1e-2)
            model.load(saved)
            self.assertEqual(model.step(tokens, targets, lr=1e-2), expected)
            model.export(self.folder / "exported")
            with self.assertRaises(strata.ConfigError):
                model.step(tokens[:1], targets, lr=1e-2)
        self.assertTrue((self.folder / "exported/model.safetensors").exists())


if __name__ == "__main__":
    unittest.main()
