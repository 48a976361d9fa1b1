# SPDX-License-Identifier: Apache-2.0
"""Stores that share one state, as threads: over TCP and over a transport written in Python."""

import queue
import tempfile
import threading
import unittest
from collections import defaultdict

import numpy as np

import strata
from test_store import OPTIONS, UNITS, run_step

def weights(name, first, out):
    out[...] = np.sin(np.arange(first, first + out.size, dtype=np.float32) + len(name))


def train(store, share):
    """Two steps in which a rank has `share` of the gradients."""
    store.load(weights)
    for _ in range(2):
        assert run_step(store, lambda _, weights: np.float32(share) * weights).applied
    return store.state()


class Wire(strata.Transport):
    """Queues between threads; `queues` by channel, sender and receiver."""

    def __init__(self, rank, queues, breaks=False):
        self.rank, self.queues, self.breaks, self.open = rank, queues, breaks, 0

    def send(self, channel, peer, data):
        if self.breaks:
            raise ValueError("the wire is cut")
        self.queues[channel, self.rank, peer].put(bytes(data))
        self.open += 1
        return None

    def receive(self, channel, peer, data):
        self.open += 1
        return self.queues[channel, peer, self.rank], data

    def wait(self, transfer, seconds):
        if transfer is not None:
            source, data = transfer
            came = source.get(timeout=seconds)
            if came is None:
                return False
            data[:] = came
        return True

    def interrupt(self, transfer):
        if transfer is not None:
            transfer[0].put(None)

    def end(self, transfer):
        self.open -= 1


class Ranks(unittest.TestCase):
    def on_threads(self, body):
        failures = []

        def run(rank):
            try:
                body(rank)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def check(self, ranks_of):
        with strata.Store(UNITS, OPTIONS) as alone:
            one = train(alone, 1.0)

        def body(rank):
            store = strata.Store(UNITS, {**OPTIONS, "ranks": 2})
            store.join(ranks_of(rank))
            state = train(store, 0.5)
            for name, values in one.items():
                np.testing.assert_array_equal(state[name], values)
            store.close()

        self.on_threads(body)

    def test_share_the_state_of_one(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(lambda rank: strata.Ranks(rank, directory=folder + "/meet"))

    def test_exchange_by_a_transport_in_python(self):
        queues = defaultdict(queue.Queue)
        wires = [Wire(rank, queues) for rank in range(2)]
        self.check(lambda rank: strata.Ranks(rank, transport=wires[rank]))
        self.assertEqual([wire.open for wire in wires], [0, 0])

    def test_an_exception_of_a_transport_is_the_cause(self):
        store = strata.Store(UNITS, {**OPTIONS, "ranks": 2})
        with self.assertRaises(strata.DeadlineError) as caught:
            store.join(strata.Ranks(0, transport=Wire(0, defaultdict(queue.Queue), breaks=True)))
        self.assertIsInstance(caught.exception.__cause__, ValueError)
        with self.assertRaisesRegex(strata.UsageError, "start with join"):
            store.load(weights)
        store.close()

    def test_texts_with_zero_bytes_are_named_and_the_secret_is_not_shown(self):
        place = {"directory": "/tmp/meet", "address": "a:1", "secret": "k" * 16, "interface": "lo"}
        with strata.Store(UNITS, {**OPTIONS, "ranks": 2}) as store:
            for name, value in place.items():
                with self.assertRaisesRegex(strata.ConfigError, f"join: {name}.*zero byte") as caught:
                    store.join(strata.Ranks(0, **{**place, name: value + "\0x"}))
                self.assertNotIn("kkkk", str(caught.exception))
            with self.assertRaisesRegex(strata.ConfigError, "join: interface: 3"):
                store.join(strata.Ranks(0, **{**place, "interface": 3}))


if __name__ == "__main__":
    unittest.main()
