"""Makes the fits of ``device_cases.py`` on a device emulated in CPU memory, and compares them with those on the CPU.

    python tests/training/emulated_device.py                               # those of device_cases.py
    python tests/training/emulated_device.py fill.fill_device_cases gap   # of another module; whose names have a word

A tensor of the emulated device is a wrapper around a tensor of the CPU. An operation computes on what is inside, and fails
where it is given tensors of both devices, as it does with a GPU. So a tensor that is left on the CPU is found on a machine
without a GPU; kernels, precision and speed of a GPU are not tested. This runs in a process of its own: a process registers
the device once, for all that it does.
"""

from __future__ import annotations

import importlib
import logging
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

# experimental in PyTorch: the only way to a device whose operations are in Python
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

sys.path.insert(0, str(Path(__file__).parents[1]))

from device_cases import Case, assert_equal, scores
from fits import GAU, signals

from pe_lightning.signals import grid_axes
from pe_lightning.solvers import solve_blocks, solve_grid, solve_points
from pe_lightning.training.sharding import SignalsStrategy

NAME = "emulated"
DEVICE = torch.device("privateuseone", 0)
"""The device. Its type prints as ``NAME``."""

VIEWS = {"view", "_unsafe_view", "_reshape_alias", "alias", "as_strided", "detach", "expand", "permute", "select", "slice"}
VIEWS |= {"split", "squeeze", "t", "transpose", "unbind", "unsqueeze"}
"""Operations that compute nothing, and launch nothing on a GPU."""
WAITS = {"_linalg_eigh", "_linalg_svd", "equal", "linalg_qr", "nonzero"}
"""Operations for whose result, or its size, the CPU waits, besides reads of tensors of the device."""
launched: Counter[str] = Counter()
waited: Counter[str] = Counter()
"""Operations on the device, and those that the CPU waits for, by name."""
ALSO_CPU = {"copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_"}
"""Operations that take tensors of the CPU beside those of another device: copies, and indices."""


class Backend(_DummyBackendModule):
    """What ``torch.emulated`` has."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


class Emulated(Tensor):
    """A tensor of the emulated device, around one of the CPU."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Emulated:
        # a sparse matrix looks dense from outside
        memory = (inner.stride(), inner.storage_offset()) if inner.layout is torch.strided else (None, None)
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, *memory, dtype=inner.dtype, device=DEVICE)
        made.inner = inner
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The result of an operation, on the device of its tensors or on the one that it names."""
    given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    far = [x for x in given if isinstance(x, Emulated)]
    name = func.overloadpacket.__name__
    mixed = far and any(x.dim() for x in given if not isinstance(x, Emulated))
    if mixed and (name not in ALSO_CPU or (name.startswith("index") and not isinstance(args[0], Emulated))):
        raise RuntimeError(f"{name} of tensors on {DEVICE} and cpu")
    if far and name == "linalg_lstsq" and kwargs.get("driver") not in (None, "gels"):
        raise RuntimeError(f"{name} with the driver {kwargs['driver']}, which a GPU does not have")
    if name == "copy_":
        to_far = isinstance(args[0], Emulated)
    elif kwargs.get("device") is not None:
        to_far = torch.device(kwargs["device"]).type == NAME
    else:
        to_far = bool(far)
    if (far or to_far) and name not in VIEWS:
        launched[name] += 1
        waited[name] += name in WAITS or not to_far or name == "_local_scalar_dense"
    same = {id(x.inner): x for x in far}

    def inside(x: Any) -> Any:
        return x.inner if isinstance(x, Emulated) else torch.device("cpu") if isinstance(x, torch.device) else x

    def outside(x: Any) -> Any:
        return same.get(id(x), Emulated(x)) if isinstance(x, Tensor) and to_far else x

    return tree_map(outside, func(*tree_map(inside, args), **tree_map(inside, kwargs)))


class Operations(TorchDispatchMode):
    """Operations whose tensors are all of the CPU, and those without tensors, such as ``torch.zeros(3, device=...)``."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


class Functions(TorchFunctionMode):
    """Functions that read or write memory without an operation."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        of_far = bool(args) and isinstance(args[0], Emulated)
        if func == Tensor.data.__get__ and of_far:
            return args[0].detach()
        if func == Tensor.data.__set__ and of_far:
            func(*args)
            args[0].inner = args[1].inner
            return None
        if func is Tensor.tolist and of_far:
            return args[0].cpu().tolist()
        if func is torch.unravel_index and of_far:  # it makes a tensor from a list
            return tuple(along.to(DEVICE) for along in func(args[0].cpu(), *args[1:], **kwargs))
        if func is Tensor.new_tensor and of_far:
            return torch.tensor(*args[1:], **{"dtype": args[0].dtype, **kwargs}).to(DEVICE)
        if func in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or "cpu").type == NAME:
            del kwargs["device"]
            return func(*args, **kwargs).to(DEVICE)
        if func in (Tensor.__getitem__, Tensor.__setitem__) and of_far:
            places = args[1] if isinstance(args[1], tuple) else (args[1],)
            args = (args[0], tuple(torch.tensor(x) if isinstance(x, list) else x for x in places), *args[2:])
        return func(*args, **kwargs)


class EmulatedAccelerator(CPUAccelerator):
    """The device, for a Trainer: that of the CPU but for the check of the device's type."""

    def setup_device(self, device: torch.device) -> None: ...


def check_collectives() -> None:
    """Processes of GPUs exchange tensors of the GPUs only: solvers, and signals after the fit, when they are on the CPU."""

    def exchange(tensor: Tensor, *_: Any) -> None:
        assert isinstance(tensor, Emulated), "a tensor of the CPU is exchanged"

    def gather(received: list[Tensor], tensor: Tensor) -> None:
        exchange(tensor)
        received[0].copy_(tensor)

    alone = {"is_initialized": lambda: True, "get_world_size": lambda: 2}
    with (
        Operations(),
        Functions(),
        patch.multiple(torch.distributed, all_reduce=exchange, broadcast=exchange, all_gather=gather, **alone),
    ):
        values, axes = signals(2, 12, 10).to(DEVICE), [x.to(DEVICE) for x in grid_axes((12, 10))]
        mask = torch.rand(12, 10).to(DEVICE) < 0.5
        solve_points(values, GAU, axes=axes, mask=mask, distributed=True)
        solve_blocks([((0, 0), values)], GAU, axes)
        stub = SimpleNamespace(world_size=1, root_device=DEVICE, num_signals=2)
        fitted = signals(2, 12, 10)
        assert torch.equal(SignalsStrategy.gather(stub, fitted), fitted)  # type: ignore[arg-type]


def check_operations() -> None:
    """An exact fit of a picture launches few operations and waits for fewer; its features are factorised on the CPU."""
    axes = grid_axes((96, 96))
    with Operations():
        values = (signals(1, 96, 96) + 0.2 * torch.randn(1, 96, 96, 2, generator=torch.Generator().manual_seed(0))).to(
            DEVICE
        )
    for ridge, operations, waits in ((1e-3, 40, 1), ("auto", 160, 6)):
        launched.clear()
        waited.clear()
        with Operations(), Functions():
            found = solve_grid(values, {"name": "gau", "num_features": 96}, axes, ridge=ridge)  # type: ignore[arg-type]
        assert found.mean.device == DEVICE
        assert launched.total() <= operations, launched
        assert waited.total() <= waits, waited


def main() -> None:
    """Prints a line for each case, and the traceback of what fails. Exit status: 1 if something does."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    _setup_privateuseone_for_python_backend(NAME, backend_module=Backend())
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        settings = {"default_root_dir": folder, "inference_mode": False, "num_sanity_val_steps": 0, "devices": 1, **quiet}

        def check_fit(case: Case) -> None:
            expected = scores(case, Trainer(accelerator="cpu", max_steps=case.steps, **settings))
            with Operations(), Functions():
                strategy = SingleDeviceStrategy(DEVICE, accelerator=EmulatedAccelerator())
                found = scores(case, Trainer(strategy=strategy, max_steps=case.steps, **settings))
            assert_equal(found, expected, decibels=0.01)

        module, *words = sys.argv[1:] or ["device_cases"]
        cases: dict[str, Case] = importlib.import_module(module).CASES
        checks = {
            "collectives": check_collectives,
            "operations": check_operations,
            **{name: partial(check_fit, case) for name, case in cases.items()},
        }
        for name, check in checks.items():
            if any(part not in name for part in words):
                continue
            try:
                check()
                print(name, "ok", flush=True)
            except (AssertionError, NotImplementedError, RuntimeError, TypeError, ValueError):
                traceback.print_exc()
                print(name, "FAILED", flush=True)
                failed += 1
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
