# SPDX-License-Identifier: Apache-2.0
"""Arrays over units in memory: they cannot outlive their unit, whatever library shows them, and memory
of a device goes to others by its interface for CUDA and by DLPack."""

import ctypes
import unittest
import warnings
import weakref

import numpy as np

import strata
from test_store import ON_DEVICE, OPTIONS, UNITS, loaded, weights

try:
    import torch
except ImportError:
    torch = None


IS_VERSIONED = np.lib.NumpyVersion(np.__version__) >= "2.1.0"  # of DLPack 1.0


def in_backward(store, name):
    """The view of a unit in the backward of a step."""
    store.begin()
    for unit in UNITS:
        store.acquire(unit.name, "forward")
        store.release()
    for unit in reversed(UNITS):
        view = store.acquire(unit.name, "backward")
        if unit.name == name:
            return view
        store.release()


class Views(unittest.TestCase):
    def test_a_view_cannot_outlive_its_unit(self):
        with loaded() as store:
            store.begin()
            view = store.acquire("in", "forward")
            array = view["in.weight"]
            with self.assertRaises(ValueError):
                array[0, 0] = 1  # weights are read-only
            with self.assertRaises(strata.UsageError):
                view.gradient("in.weight")
            with self.assertRaisesRegex(strata.UsageError, "in use"):
                store.release()
            part = array.T[2]  # over the same memory
            del array
            with self.assertRaisesRegex(strata.UsageError, "in use"):
                store.release()
            del part
            store.release()
            with self.assertRaisesRegex(strata.UsageError, "released"):
                view["in.weight"]

    def test_a_view_shows_all_after_a_release_that_was_refused(self):
        with loaded() as store:
            store.begin()
            for unit in UNITS:
                store.acquire(unit.name, "forward")
                store.release()
            view = store.acquire("out", "backward")
            gradient = view.gradient("out.weight")
            with self.assertRaisesRegex(strata.UsageError, "in use"):
                store.release()
            np.testing.assert_array_equal(view["out.weight"], weights()["out.weight"])
            del gradient
            self.assertEqual(view.gradient("out.weight").shape, (7,))
            store.release()
            store.discard()

    def test_a_close_that_was_refused_leaves_the_use_as_it_was(self):
        with loaded() as store:
            store.begin()
            with store.acquire("in", "forward") as view:
                array = view["in.weight"]
                for call in (store.close, store.unload, store.release):
                    with self.assertRaisesRegex(strata.UsageError, "in use"):
                        call()
                np.testing.assert_array_equal(view["in.weight"], weights()["in.weight"])
                del array
            with self.assertRaisesRegex(strata.UsageError, "released"):
                view["in.weight"]
            store.acquire(UNITS[1].name, "forward")
            store.discard()

    def test_a_use_of_two_units_is_released_whole_or_not(self):
        units = [strata.Unit(name, {name + ".weight": (4,)}) for name in "ab"]
        order = [strata.Use(["a", "b"], which) for which in ("forward", "backward")]
        with strata.Store(units, OPTIONS, order=order) as store:
            store.load({name + ".weight": np.ones(4, np.float32) for name in "ab"})
            store.begin()
            first, second = store.acquire("a", "forward"), store.used("b")
            array = second["b.weight"]
            with self.assertRaisesRegex(strata.UsageError, "release: b: .*in use"):
                store.release()
            self.assertEqual(first["a.weight"].sum(), 4)
            del array
            store.release()
            store.discard()

    def test_dlpack_shows_gradients_without_a_copy_and_holds_them(self):
        with loaded() as store:
            view = in_backward(store, "mid")
            array = np.from_dlpack(view.gradient("mid.weight"))
            view.gradient("mid.weight")[3:5] += 2
            part = array[3:5]
            self.assertEqual(part.sum(), 2 * part.size)
            if IS_VERSIONED:  # before, NumPy shows all as read-only
                part += 1
                self.assertEqual(view.gradient("mid.weight").sum(), 3 * part.size)
            del array
            with self.assertRaisesRegex(strata.UsageError, "mid: an array or tensor over it is in use"):
                store.release()
            del part
            store.release()
            store.discard()

    def test_dlpack_of_weights_is_read_only_or_refused(self):
        with loaded() as store:
            store.begin()
            view = store.acquire("in", "forward")
            try:
                array = np.from_dlpack(view["in.weight"])
            except BufferError as error:  # NumPy 1 has no word for memory that is read-only
                self.assertIn("readonly", str(error))
                array = None
            if array is not None:
                self.assertFalse(array.flags.writeable)
                np.testing.assert_array_equal(array, weights()["in.weight"])
                with self.assertRaisesRegex(strata.UsageError, "in use"):
                    store.release()
            del array
            store.release()
            store.discard()

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_tensors_of_torch_hold_what_they_show(self):
        with loaded() as store:
            view = in_backward(store, "mid")
            tensor = torch.from_dlpack(view.gradient("mid.weight"))
            tensor.add_(1)
            self.assertEqual(view.gradient("mid.weight").sum(), tensor.numel())
            self.assertEqual(tensor.data_ptr(), view.gradient("mid.weight").ctypes.data)
            if IS_VERSIONED:
                read = torch.from_dlpack(view["mid.weight"])
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # PyTorch has no tensors that are read-only
                    read = torch.from_numpy(view["mid.weight"])
            self.assertTrue(np.array_equal(read.numpy(), weights()["mid.weight"]))
            with self.assertRaisesRegex(strata.UsageError, "in use"):
                store.release()
            del tensor
            with self.assertRaisesRegex(strata.UsageError, "in use"):
                store.release()
            del read
            store.release()
            store.discard()


class Tensor(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def tensor_in(capsule):
    name, offset = (b"dltensor", 0)
    if "versioned" in repr(capsule):
        name, offset = (b"dltensor_versioned", 32)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    return Tensor.from_address(pointer(capsule, name) + offset)


def on_host(shape=(3, 4), **more):
    """DeviceMemory that lies in host memory, where NumPy and PyTorch may look at it; and its values."""
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return strata.DeviceMemory(values.ctypes.data, shape, "<f4", values, **more), values


class Devices(unittest.TestCase):
    def test_arrays_are_the_devices(self):
        with loaded(**ON_DEVICE) as store:
            store.begin()
            with store.acquire("in", "forward") as view:
                array = view["in.weight"]
                self.assertIsInstance(array, strata.DeviceMemory)
                told = array.__cuda_array_interface__
                self.assertEqual(told["shape"], (12, 9))
                self.assertEqual(told["typestr"], "<f4")
                np.testing.assert_array_equal(view.float32("in.weight"), weights()["in.weight"])
                with self.assertRaisesRegex(strata.UsageError, "in use"):
                    store.release()
                del array, told
            store.discard()
            self.assertGreater(store.statistics().device_bytes, 0)

    def test_capsules_say_what_the_memory_is(self):
        memory, values = on_host(device=(2, 3))
        self.assertEqual(memory.__dlpack_device__(), (2, 3))
        for given in ({}, {"max_version": (1, 0), "dl_device": (2, 3), "copy": False}):
            capsule = memory.__dlpack__(**given)
            self.assertEqual("versioned" in repr(capsule), bool(given) and IS_VERSIONED)
            told = tensor_in(capsule)
            self.assertEqual((told.data, list(told.device)), (values.ctypes.data, [2, 3]))
            self.assertEqual((told.code, told.bits, told.lanes, told.byte_offset), (2, 32, 1, 0))
            self.assertEqual(told.shape[: told.rank], [3, 4])

    def test_what_a_capsule_makes_holds_the_memory(self):
        for consumer in (np.from_dlpack, *([torch.from_dlpack] if torch else [])):
            memory, values = on_host(device=(1, 0))
            held = weakref.ref(memory)
            shown = consumer(memory)
            self.assertEqual(shown[1, 2], 6)
            if consumer is not np.from_dlpack or IS_VERSIONED:
                shown[1, 2] = -5
                self.assertEqual(values[1, 2], -5)
            del memory
            self.assertIsNotNone(held())
            del shown
            self.assertIsNone(held())

    def test_a_capsule_that_nobody_takes_frees_the_memory(self):
        memory, _ = on_host()
        held = weakref.ref(memory)
        capsule = memory.__dlpack__()
        del memory
        self.assertIsNotNone(held())
        del capsule
        self.assertIsNone(held())

    def test_the_stream_of_a_consumer_is_that_of_the_use(self):
        for own, others, refused in (
            (None, (None, -1, 0, 1, 2, 77), ()),  # it was waited for
            (0, (None, -1, 0, 1), (2, 77)),
            (77, (-1, 77), (None, 0, 1, 2, 78)),
        ):
            memory, _ = on_host(stream=own)
            for stream in others:
                memory.__dlpack__(stream=stream)
            for stream in refused:
                with self.assertRaisesRegex(BufferError, "acquire it with the stream that computes"):
                    memory.__dlpack__(stream=stream)

    def test_copies_and_other_devices_are_refused(self):
        memory, _ = on_host()
        for given in ({"copy": True}, {"dl_device": (1, 0)}):
            with self.assertRaisesRegex(BufferError, "copy it there"):
                memory.__dlpack__(**given)

    def test_units_of_a_device_are_held_by_capsules(self):
        with loaded(**ON_DEVICE) as store:
            store.begin()
            view = store.acquire("in", "forward")
            capsule = view["in.weight"].__dlpack__(stream=9)
            told = tensor_in(capsule)
            self.assertEqual(list(told.device), [12, 0])  # emulated
            self.assertEqual(told.data, view["in.weight"].address)
            with self.assertRaisesRegex(strata.UsageError, "in use"):
                store.release()
            del capsule
            store.release()
            store.discard()

    def test_memory_of_a_view_has_the_device_and_stream_of_its_use(self):
        order = [strata.Use(["in", "mid"], which) for which in ("forward", "backward")]
        with strata.Store(UNITS[:2], OPTIONS, order=order) as store:
            store.load(weights())
            store.begin_forward()
            views = [store.acquire("in", "forward", stream=7), store.used("mid")]
            self.assertEqual([view._on_device(0, (1,), "<f4").stream for view in views], [7, 7])
            del views
            store.release()
            store.end_forward()
        for option, device in (("cuda", (2, 0)), ("cuda:1", (2, 1)), (None, (12, 0)), ("cuda:x", (2, 0))):
            self.assertEqual(strata._device_memory.device_of(option), device)


if __name__ == "__main__":
    unittest.main()
