# SPDX-License-Identifier: Apache-2.0
"""strata.Store: AdamW over the store's memory, and errors by code."""

import gc
import os
import signal
import tempfile
import threading
import unittest

import numpy as np

import strata

UNITS = [
    strata.Unit("in", {"in.weight": (12, 9), "in.bias": (12,)}),
    strata.Unit("mid", {"mid.weight": (96, 80)}),
    strata.Unit("out", {"out.weight": (7,)}),
]
SHAPES = {name: shape for unit in UNITS for name, shape in unit.tensors.items()}
OPTIONS = {"recipe": "fp32", "threads": 1, "clip": 0, "weight_decay": 0.1}


def weights():
    draw = np.random.default_rng(3)
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def run_step(store, gradients, lr=0.01, micro_batches=1, **settings):
    """A step in which each tensor's gradient is gradients(name, weights)."""

    def add(view, name):
        view.gradient(name)[...] += gradients(name, view[name])

    return run_step_with(store, add, lr, micro_batches, **settings)


def run_step_with(store, add, lr=0.01, micro_batches=1, **settings):
    """A step in which add(view, name) adds to each tensor's gradient."""
    store.begin()
    for _ in range(micro_batches):
        for unit in UNITS:
            with store.acquire(unit.name, "forward"):
                pass
        for unit in reversed(UNITS):
            with store.acquire(unit.name, "backward") as view:
                for name in unit.tensors:
                    add(view, name)
    return store.step(lr, **settings)


def loaded(**options):
    store = strata.Store(UNITS, {**OPTIONS, **options})
    store.load(weights())
    return store


class Reference:
    """torch.optim.AdamW in float64."""

    def __init__(self):
        self.weights = {name: value.astype(np.float64) for name, value in weights().items()}
        self.first = {name: np.zeros(shape) for name, shape in SHAPES.items()}
        self.second = {name: np.zeros(shape) for name, shape in SHAPES.items()}
        self.steps = 0

    def step(self, gradients, lr=0.01, decay=0.1):
        self.steps += 1
        for name, value in self.weights.items():
            g = gradients(name, value)
            value *= 1 - lr * (decay if value.ndim > 1 else 0)
            self.first[name] += 0.1 * (g - self.first[name])
            self.second[name] += 0.001 * (g * g - self.second[name])
            scale = np.sqrt(self.second[name] / (1 - 0.999**self.steps)) + 1e-8
            value -= lr * self.first[name] / (1 - 0.9**self.steps) / scale


ON_DEVICE = {"device": "emulated", "device_memory": "1MiB"}


class Devices(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.drive = {"host_memory": "240KiB", "nvme": [self.folder.name]}

    @staticmethod
    def run_step(store):
        def add(view, name):
            view.add_gradient(name, 2 * view.float32(name) + 1, scale=0.5)

        return run_step_with(store, add)

    def state(self, **options):
        with loaded(**options) as store:
            for _ in range(3):
                self.assertTrue(self.run_step(store).applied)
            return {plane: store.state(plane) for plane in ("weights", "exp_avg", "exp_avg_sq")}

    def test_have_the_state_of_the_host(self):
        for recipe in ("fp32", "bf16"):
            host = self.state(recipe=recipe)
            for place in ({}, self.drive):
                device = self.state(recipe=recipe, **ON_DEVICE, **place)
                for plane, tensors in host.items():
                    for name, values in tensors.items():
                        np.testing.assert_array_equal(device[plane][name], values, f"{plane} {name}")


class Stores(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.drive = {"host_memory": "240KiB", "nvme": [self.folder.name]}

    def test_groups_have_settings_of_their_own_and_tensors_may_be_frozen(self):
        groups = {"mid.weight": 1, "out.weight": 2, "in.weight": 2}
        units = [
            strata.Unit(unit.name, unit.tensors, frozen=["in.bias"], groups=groups)
            for unit in UNITS
        ]
        settings = {"mid.weight": (0.01, 0.3), "out.weight": (0.03, 0.2), "in.weight": (0.03, 0.2)}
        expected = weights()
        for more in ({}, {"host_memory": "928KiB", "nvme": self.folder.name}):
            with strata.Store(units, {**OPTIONS, **more}) as store:
                store.load(weights())
                for _ in range(2):
                    store.begin()
                    for unit in units:
                        store.acquire(unit.name, "forward")
                        store.release()
                    for unit in reversed(units):
                        with store.acquire(unit.name, "backward") as view:
                            for name in unit.tensors:
                                if name in settings:
                                    view.gradient(name)[...] += 1
                            if unit.name == "in":
                                with self.assertRaisesRegex(strata.UsageError, "in.bias.*frozen"):
                                    view.gradient("in.bias")
                    groups = [strata.GroupUpdate(0.01, 0.3), strata.GroupUpdate(0.03, 0.2)]
                    store.step(lr=1.0, groups=groups)
                for name, (lr, decay) in settings.items():  # equal gradients: a step is the rate
                    value = expected[name]
                    for _ in range(2):
                        value = value * (1 - lr * decay) - lr
                    np.testing.assert_allclose(store.read(name), value, rtol=1e-5, atol=1e-6)
                store.begin_forward()
                with store.acquire("in", "forward") as view:
                    np.testing.assert_array_equal(view["in.bias"], expected["in.bias"])
                store.discard()
                store.begin()
                with self.assertRaisesRegex(strata.ConfigError, "1 groups.*have 2"):
                    store.step(lr=1.0, groups=groups[:1])
                store.discard()

    def test_steps_are_adamw(self):
        gradient = lambda name, value: np.sin(3 * value) + 0.1
        reference = Reference()
        with loaded() as store:
            for _ in range(5):
                result = run_step(store, gradient)
                reference.step(gradient)
            self.assertEqual((result.step, result.applied), (5, True))
            for name, value in store.state().items():
                np.testing.assert_allclose(value, reference.weights[name], atol=2e-6)

    def test_state_on_a_drive_has_the_bits_of_state_in_memory(self):
        gradient = lambda name, value: value
        with loaded() as memory, loaded(**self.drive) as drive:
            for _ in range(3):
                self.assertEqual(run_step(memory, gradient), run_step(drive, gradient))
            for plane in ("weights", "exp_avg", "exp_avg_sq"):
                for name, value in memory.state(plane).items():
                    np.testing.assert_array_equal(value, drive.read(name, plane))
            self.assertGreater(drive.statistics().nvme_bytes_read, 0)

    def test_checkpoints_and_given_planes_go_on_exactly(self):
        gradient = lambda name, value: value
        with loaded() as store, loaded(**self.drive) as other, loaded() as third:
            run_step(store, gradient)
            other.load(checkpoint=store.save(os.path.join(self.folder.name, "saved")))
            third.load(
                store.state(),
                exp_avg=store.state("exp_avg"),
                exp_avg_sq=store.state("exp_avg_sq"),
                updates=1,
            )
            expected = run_step(store, gradient).grad_norm
            for each in (other, third):
                self.assertEqual(run_step(each, gradient).grad_norm, expected)
                for name, value in store.state().items():
                    np.testing.assert_array_equal(value, each.read(name))

    def test_gradients_are_summed_scaled_and_of_both_types(self):
        with loaded(accumulate=2) as store:
            store.begin()
            for micro_batch in range(2):
                for unit in UNITS:
                    store.acquire(unit.name, "forward")
                    store.release()
                for unit in reversed(UNITS):
                    with store.acquire(unit.name, "backward") as view:
                        for name, shape in unit.tensors.items():
                            view.add_gradient(name, np.full(shape, 4, np.float16), scale=0.5)
                            view.add_gradient(name, np.ones(shape))
                            self.assertEqual(view.gradient(name).flat[-1], 3 * (micro_batch + 1))
            elements = sum(np.prod(shape) for shape in SHAPES.values())
            self.assertAlmostEqual(store.step(0.0).grad_norm, 6 * np.sqrt(elements), places=4)

    def test_weights_come_from_files(self):
        given = weights()
        with tempfile.NamedTemporaryFile() as file:
            units, offset = [], 3
            file.write(b"abc")
            for unit in UNITS:
                sources = {}
                for name in unit.tensors:
                    sources[name] = strata.Source(file.name, offset, "float32")
                    offset += file.write(given[name].tobytes())
                units.append(strata.Unit(unit.name, unit.tensors, sources=sources))
            file.flush()
            with strata.Store(units, OPTIONS) as store, loaded() as other:
                store.load()
                run_step(store, lambda name, value: value)
                run_step(other, lambda name, value: value)
                for name, values in other.state().items():
                    np.testing.assert_array_equal(store.state()[name], values)
            with self.assertRaisesRegex(strata.ConfigError, "too few for"):
                strata.Store([strata.Unit("a", {"a": (9999,)}, sources={"a": strata.Source(file.name)})], OPTIONS)
            with self.assertRaisesRegex(strata.ConfigError, "dtype int8"):
                strata.Store([strata.Unit("a", {"a": (1,)}, sources={"a": strata.Source(file.name, 0, "int8")})], OPTIONS)

    def test_weights_of_16_bits(self):
        with loaded(recipe="bf16") as store:
            store.begin()
            with store.acquire("in", "forward") as view:
                self.assertEqual(view["in.bias"].dtype, np.uint16)
                near = view.float32("in.bias")
            np.testing.assert_allclose(near, weights()["in.bias"], rtol=2**-8)
            store.discard()
            # The masters are exact.
            np.testing.assert_array_equal(store.read("in.bias"), weights()["in.bias"])

    def test_an_exception_in_a_pass_leaves_the_next_step_whole(self):
        gradient = lambda name, value: value
        with loaded() as store, loaded() as plain:
            try:
                store.begin()
                with store.acquire("in", "forward") as view:
                    array = view["in.weight"]
                    raise KeyboardInterrupt
            except KeyboardInterrupt:
                store.discard()
            with self.assertRaisesRegex(strata.UsageError, "in use"):
                store.unload()  # would take the memory below the array
            self.assertEqual(array.shape, (12, 9))
            del array
            self.assertEqual(run_step(store, gradient), run_step(plain, gradient))

    def test_a_store_that_is_dropped_frees_what_it_has(self):
        def threads():
            return len(os.listdir("/proc/self/task"))

        before = threads()
        store = loaded()
        store.begin()
        store.acquire("in", "forward")
        self.assertGreater(threads(), before)
        del store
        gc.collect()
        self.assertEqual(threads(), before)

    def test_errors_have_classes_and_say_what_to_do(self):
        with self.assertRaisesRegex(strata.UsageError, "modell"):
            strata.Store(UNITS, {"modell": "x"})
        with self.assertRaisesRegex(strata.ConfigError, "size -1"):
            strata.Store([strata.Unit("a", {"a.weight": (-1,)})])
        with self.assertRaisesRegex(strata.DoesNotFit, "KiB"):
            strata.Store(UNITS, {**OPTIONS, "host_memory": "64KiB"}).plan()
        store = loaded()
        with self.assertRaises(strata.UsageError):
            store.release()
        store.begin()
        with self.assertRaisesRegex(strata.ConfigError, "^acquire: forward of mid .* order has forward of in next"):
            store.acquire("mid", "forward")
        with self.assertRaises(strata.ConfigError):
            store.acquire("unknown", "forward")
        with self.assertRaises(strata.UsageError):
            store.read("in.bias")
        store.close()
        store.close()
        with self.assertRaises(strata.HandleError):
            store.begin()
        self.assertTrue(issubclass(strata.DoesNotFit, MemoryError))

    def test_names_and_texts_that_no_unit_has_are_refused(self):
        shapes = {"a": (8, 8), "b": (8,)}
        for words, given in (
            ("frozen: c: no unit", {"frozen": ["c"]}),
            ("frozen: 'b' .give a list", {"frozen": "b"}),
            ("frozen: 3 .give a list", {"frozen": 3}),
            ("a: group: 'x'", {"groups": {"a": "x"}}),
            ("a: group: 4294967297 ", {"groups": {"a": 2**32 + 1}}),
            ("groups: 5", {"groups": 5}),
            ("a: source: 'file'", {"sources": {"a": "file"}}),
            ("groups: c: no unit", {"groups": {"c": 1}}),
            ("sources: c: no unit", {"sources": {"c": strata.Source("nowhere")}}),
        ):
            with self.assertRaisesRegex(strata.ConfigError, words):
                strata.Store([strata.Unit("u", shapes, **given)], OPTIONS)
        with self.assertRaisesRegex(strata.ConfigError, "a: shape: 8"):
            strata.Store([strata.Unit("u", {"a": 8})], OPTIONS)
        with self.assertRaisesRegex(strata.ConfigError, "a: shape: .18446744073709551620,"):
            strata.Store([strata.Unit("u", {"a": (2**64 + 4,)})], OPTIONS)
        with strata.Store(UNITS, OPTIONS) as store:
            with self.assertRaisesRegex(strata.ConfigError, "load: updates: 18446744073709551619"):
                store.load(weights(), exp_avg=weights(), exp_avg_sq=weights(), updates=2**64 + 3)
            store.load(weights())
            store.begin()
            with self.assertRaisesRegex(strata.ConfigError, "acquire: unit: 4294967296 "):
                store.acquire(2**32, "forward")
            store.discard()
        with self.assertRaisesRegex(strata.ConfigError, "order: units: 'in'"):
            strata.Store(UNITS, OPTIONS, order=[strata.Use("in", "forward")])
        for words, order in (
            ("^order: use 1: names in twice", [strata.Use(["in"], "backward"), strata.Use(["in", "in"], "forward")]),
            ("^order: in: has no backward use", [strata.Use(["in"], "forward")]),
            ("^order: use 0: -1 seconds", [strata.Use(["in"], "forward", seconds=-1)]),
        ):
            with self.assertRaisesRegex(strata.ConfigError, words):
                strata.Store(UNITS, OPTIONS, order=order)
        for words, unit in (
            ("^units: u: a: size 0", strata.Unit("u", {"a": (0,)})),
            ("^units: all are frozen", strata.Unit("u", shapes, frozen=True)),
            ("^units: u: no tensors", strata.Unit("u", {})),
            ("^units: a: group -1", strata.Unit("u", shapes, groups={"a": -1})),
        ):
            with self.assertRaisesRegex(strata.ConfigError, words), strata.Store([unit], OPTIONS) as store:
                store.plan()
        for words, units in (
            ("units: 'u' ", ["u"]),
            ("name: 7", [strata.Unit(7, shapes)]),
            ("tensors: 3", [strata.Unit("u", 3)]),
            ("a: shape", [strata.Unit("u", {"a": (2.5,)})]),
            ("u: tensors: 8", [strata.Unit("u", {8: (2,)})]),
            (r"zero bytes", [strata.Unit("u", {"a\0b": (2,)})]),
            ("no UTF-8", [strata.Unit("u\udc80", shapes)]),
        ):
            with self.assertRaisesRegex(strata.ConfigError, words):
                strata.Store(units, OPTIONS)
        with self.assertRaisesRegex(strata.ConfigError, "options: clip: <object"):
            strata.Store(UNITS, {"clip": object()})
        with loaded() as store, self.assertRaisesRegex(strata.ConfigError, "zero bytes"):
            store.save("a\0b")

    def test_values_are_lists_or_arrays_of_real_numbers(self):
        units = [strata.Unit("u", {"w": (2,)})]
        with strata.Store(units, {**OPTIONS, "threads": np.int64(1)}) as store:
            store.load({"w": [1, 2]})
            for wrong in ([1j, 2], [None, 2], np.array([1, "x"], object), ["a", "b"], [[1], [2, 3]]):
                with self.assertRaisesRegex(strata.ConfigError, "load: w: .*real numbers"):
                    store.load({"w": wrong})
                with self.assertRaisesRegex(strata.ConfigError, "write: w: .*real numbers"):
                    store.write("w", wrong)
            with self.assertRaisesRegex(strata.ConfigError, "weights: 5 .give arrays by name"):
                store.load(5)
            self.assertEqual(store.read("w").tolist(), [1, 2])
            store.begin()
            store.acquire("u", "forward")
            store.release()
            with store.acquire("u", "backward") as view:
                with self.assertRaisesRegex(strata.ConfigError, "real numbers"):
                    view.add_gradient("w", np.array([1j, 1]))
                view.add_gradient("w", [1, 1])
            with self.assertRaisesRegex(strata.ConfigError, "groups: 0.1 .give a GroupUpdate"):
                store.step(0.1, groups=[0.1])
            self.assertTrue(store.step(0.1).applied)

    def test_a_scale_of_gradients_is_divided_out(self):
        results = []
        for scale in (1, 1024):
            with loaded(clip=0.5) as store:
                for _ in range(3):
                    run_step(store, lambda name, w: (w + 1) * scale, gradient_scale=scale)
                norm = run_step(store, lambda name, w: w * scale, gradient_scale=scale).grad_norm
                results.append((norm, {n: v.tolist() for n, v in store.state().items()}))
                store.begin()
                with self.assertRaisesRegex(strata.ConfigError, "gradient_scale: 0"):
                    store.step(0.1, gradient_scale=0)
                store.discard()
        self.assertEqual(*results)

    def test_values_that_do_not_fit_are_refused_and_lose_nothing(self):
        given = weights()
        with loaded() as store:
            before = store.state()
            for name, shape in (("in.weight", (9, 12)), ("in.bias", (13,)), ("out.weight", (6,))):
                wrong = {**given, name: np.zeros(shape)}
                with self.assertRaisesRegex(strata.ConfigError, f"{name}: weights of shape"):
                    store.load(wrong)
                with self.assertRaisesRegex(strata.ConfigError, f"{name}: exp_avg of shape"):
                    store.load(given, exp_avg=wrong, exp_avg_sq=given, updates=1)
            with self.assertRaisesRegex(strata.ConfigError, "in.weight: no values are given"):
                store.load()
            with self.assertRaisesRegex(strata.ConfigError, "manifest.json"):
                store.load(checkpoint=self.folder.name)
            for name, values in store.state().items():
                np.testing.assert_array_equal(values, before[name])

    def test_an_interrupt_ends_a_load_and_is_raised(self):
        def interrupted(name, first, out):
            os.kill(os.getpid(), signal.SIGINT)
            out[...] = 7

        handler = signal.getsignal(signal.SIGINT)
        with loaded() as store:
            with self.assertRaises(KeyboardInterrupt):
                store.load(interrupted)
            self.assertIs(signal.getsignal(signal.SIGINT), handler)

    def test_what_a_callback_raises_is_raised(self):
        store = strata.Store(UNITS, OPTIONS)
        with self.assertRaises(ZeroDivisionError):
            store.load(lambda name, first, out: 1 // 0)
        with self.assertRaisesRegex(strata.ConfigError, "mid.weight"):
            store.load({name: value for name, value in weights().items() if "mid" not in name})
        with self.assertRaises(strata.Interrupted):
            store.load(lambda name, first, out: False)
        store.load(lambda name, first, out: bool(out.fill(1) is None))  # True has no meaning
        store.load(weights())
        self.assertTrue(run_step(store, lambda name, value: value).applied)
        self.assertFalse(run_step(store, lambda name, value: value * np.nan).applied)
        store.close()

    def test_another_order_has_units_together_and_forwards_alone(self):
        order = [
            strata.Use(["in", "out"], "forward"),
            strata.Use(["mid"], "forward", seconds=1e-4),
            strata.Use(["mid"], "backward"),
            strata.Use(["in", "out"], "backward"),
        ]
        store = strata.Store(UNITS, OPTIONS, order=order)
        store.load(weights())

        def forward():
            store.acquire("in", "forward")
            total = store.used("out")["out.weight"].sum()
            store.release()
            with store.acquire("mid", "forward"):
                return float(total)

        store.begin_forward()
        before = forward()
        store.end_forward()
        store.begin()
        forward()
        with store.acquire("mid", "backward"):
            pass
        with store.acquire("in", "backward"):
            store.used("out").add_gradient("out.weight", np.ones(7))
            array = store.used("out").gradient("out.weight")
            with self.assertRaisesRegex(strata.UsageError, "out: an array"):
                store.release()
            del array
        self.assertAlmostEqual(store.step(0.5).grad_norm, np.sqrt(7), places=5)
        self.assertEqual(len(store.use_seconds()), 4)
        store.begin_forward()
        self.assertLess(forward(), before - 1)
        store.end_forward()
        store.close()

    def test_settings_of_a_step_replace_the_options(self):
        gradient = lambda name, value: value
        with loaded() as store, loaded(clip=1.0, weight_decay=0) as other:
            run_step(store, gradient, clip=1.0, weight_decay=0.0)
            run_step(other, gradient)
            for name, value in store.state().items():
                np.testing.assert_array_equal(value, other.read(name))

    def test_another_thread_may_call(self):
        with loaded() as store:
            thread = threading.Thread(target=run_step, args=(store, lambda name, value: value))
            thread.start()
            thread.join()
            self.assertEqual(store.statistics().steps, 1)

    def test_a_forked_process_is_refused(self):
        store = loaded()
        child = os.fork()
        if child == 0:
            try:
                store.begin()
            except strata.ForkedError:
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        store.close()


if __name__ == "__main__":
    unittest.main()
