"""Files of tensors, one tensor at a time. Which damage is refused: test_hf.py and test_meta.py."""

import weakref

import torch
from foreign import assert_equal
from safetensors.torch import load_file

from gyre.checkpoint import write_safetensors


def test_tensors_pass_through_memory_one_by_one(tmp_path):
    alive = []

    def tensors():
        for _ in range(4):
            assert sum(reference() is not None for reference in alive) <= 1
            tensor = torch.ones(3, 5)
            alive.append(weakref.ref(tensor))
            yield tensor
            del tensor

    like = {f"t{n}": torch.empty(3, 5) for n in range(4)}
    write_safetensors(tmp_path / "a.safetensors", like, tensors())
    assert_equal(load_file(tmp_path / "a.safetensors"), {name: torch.ones(3, 5) for name in like})
