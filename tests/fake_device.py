"""A device that does not exist: its tensors compute on the CPU, reject CPU tensors, and record host synchronisations.

The tensors claim the device `meta`, the only one besides the CPU that every build of torch accepts in autograd. An
operation that makes the CPU wait for a GPU is recorded by name: reading a value, copying to the CPU, copying from
memory that is not pinned, and operations whose result has a shape that depends on values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from cscct.data import base, batches

DEVICE = torch.device("meta")
READS = {"_local_scalar_dense", "equal", "is_nonzero"}
DATA_DEPENDENT = {
    "nonzero",
    "masked_select",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",
    "repeat_interleave",
}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
COPIES = {"_to_copy", "copy_", "_pin_memory", "is_pinned"}


class FakeTensor(Tensor):
    """A tensor on the fake device, with its values in `content`, a CPU tensor."""

    content: Tensor

    @staticmethod
    def __new__(cls, real: Tensor) -> FakeTensor:
        tensor = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            real.shape,
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            device=DEVICE,
        )
        tensor.content = real
        return tensor

    def __repr__(self, **_: Any) -> str:
        return f"FakeTensor({self.content})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied = self.detach().clone()
        is_parameter = isinstance(self, torch.nn.Parameter)
        copied = torch.nn.Parameter(copied, self.requires_grad) if is_parameter else copied
        memo[id(self)] = copied
        return copied

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} was called on the fake device outside of `fake_device`.")


def _content(tensor: Tensor) -> Tensor:
    return tensor.content if isinstance(tensor, FakeTensor) else tensor


def _map(function: Callable[[Tensor], Any], values: Any) -> Any:
    """Apply a function to the tensors in nested sequences and dictionaries."""
    if isinstance(values, Tensor):
        return function(values)
    if isinstance(values, dict):
        return {key: _map(function, value) for key, value in values.items()}
    return type(values)(_map(function, value) for value in values) if isinstance(values, list | tuple) else values


class FakeDevice(TorchDispatchMode):
    """Executes the operations of the fake device, and those that create tensors on it.

    Attributes:
        synchronisations: Names of the operations that would make the CPU wait, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.synchronisations: list[str] = []
        self.pinned = WeakIdKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        leaves: list[Tensor] = []
        _map(leaves.append, [list(args), kwargs])
        fakes = [leaf for leaf in leaves if isinstance(leaf, FakeTensor)]
        created = kwargs.get("device") is not None and torch.device(kwargs["device"]) == DEVICE
        if name == "is_pinned":
            return args[0] in self.pinned
        if name == "_pin_memory":
            copied = args[0].clone()
            self.pinned[copied] = True
            return copied
        if fakes or created:
            self._record(name, args, kwargs, bool(fakes))
        if fakes and name not in COPIES:
            others = [leaf for leaf in leaves if not isinstance(leaf, FakeTensor) and leaf.ndim]
            indices = name in INDEXING  # torch itself accepts indices of the CPU, and copies them
            assert not others or indices, f"{name} mixes tensors of the fake device and of the CPU"
            if others:
                self.synchronisations.append(f"{name} with indices of the CPU")
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        if name == "_to_copy" and not created and "device" not in kwargs:
            created = bool(fakes)
        elif name == "_to_copy" and not created:
            fakes = []
        real_args, real_kwargs = _map(_content, [list(args), kwargs])
        result = func(*real_args, **real_kwargs)
        if name == "copy_":
            return args[0]
        if not fakes and not created:
            return result
        known = {id(fake.content): fake for fake in fakes}
        return _map(lambda tensor: known[id(tensor)] if id(tensor) in known else FakeTensor(tensor), result)

    def _record(self, name: str, args: Any, kwargs: Any, from_fake: bool) -> None:
        if name in READS | DATA_DEPENDENT:
            self.synchronisations.append(name)
        elif name in INDEXING:
            masks = [index for index in args[1] if index is not None and index.dtype in (torch.bool, torch.uint8)]
            self.synchronisations += [f"{name} with a mask"] * bool(masks)
        elif name == "_to_copy" and kwargs.get("device") is not None:
            to_fake = torch.device(kwargs["device"]) == DEVICE
            blocking = not kwargs.get("non_blocking") or (to_fake and args[0] not in self.pinned)
            if to_fake != from_fake and blocking:
                self.synchronisations.append("copy to the device" if to_fake else "copy to the CPU")
        elif name == "copy_" and isinstance(args[0], FakeTensor) != isinstance(args[1], FakeTensor):
            self.synchronisations.append("copy between CPU and device")


@contextmanager
def fake_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    """Make the fake device available in this thread; tensors are copied to it as to a GPU, from pinned memory."""
    monkeypatch.setattr(base, "PINNED_DEVICES", {DEVICE.type})
    monkeypatch.setattr(batches, "prefetch", lambda make, count, depth: map(make, range(count)))
    with FakeDevice() as device:
        yield device
