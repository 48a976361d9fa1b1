# SPDX-License-Identifier: Apache-2.0
"""Weights that models see are copies, which are NaN from the release of their unit on."""

import pytest


@pytest.fixture(autouse=True)
def freed_weights_are_nan(request, monkeypatch):
    if "torch" not in request.module.__name__:
        yield
        return
    import numpy as np
    import torch

    from strata.torch._device import Streams, tensor_over
    from strata.torch._saved import Slot
    from strata.torch._uses import StoreUses

    class Held(np.ndarray):
        """An array that holds the memory of the unit that it is a copy of."""

    shown = []
    slot_of, release = StoreUses._slot, Streams.release

    def copied_slot(uses, view):
        slot = slot_of(uses, view)
        copy = slot.memory.numpy().copy().view(Held)
        copy.unit = view._buffers["weights"]
        shown.append(copy.view(np.ndarray))
        memory = tensor_over(copy, slot.memory.device)
        first = {name: values.data_ptr() - slot.begin for name, values in slot.weights.items()}
        weights = {
            name: memory[first[name] : first[name] + values.nbytes].view(values.dtype).view(values.shape)
            for name, values in slot.weights.items()
        }
        return Slot(memory, weights, slot.add)

    def released(streams, store):
        release(streams, store)
        for copy in shown:
            copy.fill(255)  # NaN in all types
        shown.clear()

    monkeypatch.setattr(StoreUses, "_slot", copied_slot)
    monkeypatch.setattr(Streams, "release", released)
    yield
