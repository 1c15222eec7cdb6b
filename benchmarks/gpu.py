"""Seconds of fits on a GPU and on the processors of the same machine, with the PSNR of both.

    python benchmarks/gpu.py                                    # all fits within five minutes
    python benchmarks/gpu.py --only photograph --budget 60

Gaussian encoder unless the name says another; settings are those of the papers' tables:

- photograph: every second pixel of both axes of 512 x 512 RGB is known; ``folder`` has 16 of its crops, fitted together.
- random: a quarter of the pixels, at random.
- clip: every second sample of the three axes of 128 x 128 x 128 RGB, a window that slides over a picture.

A fit that does not end within its share of ``--budget`` is stopped; its seconds are then all steps at the speed of its own,
marked ``~``, and it has no PSNR. The first step is left out of ms per step.

Every fit is first made once untimed on the same data, of steps a few, since a GPU loads a kernel when it is first used.
These fits count operations (calls of PyTorch's kernels, without views) and synchronisations (tensors whose numbers or shape
the processor waits for): of one step, or of a fit without steps; ``-`` if 20 steps take longer than a fifth of its share.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from harness import load, machine, make_parser, make_trainer, print_row, print_titles
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pe_fill import Adaptive
from pe_lightning.signals import RandomSampling
from pe_lightning.training import ComplexLinear, CoordinateModule, SimpleMLP, TensorDataModule

COUNTED = 20
"""Steps whose operations are counted."""
WAITING = {"_local_scalar_dense", "_unique2", "equal", "masked_select", "nonzero", "unique_consecutive", "unique_dim"}
"""Operations whose result the processor waits for."""


@dataclass(frozen=True)
class Fit:
    """A fit of the table: what is fitted, by which model, in how many steps."""

    data: str
    name: str
    make: Callable[[], CoordinateModule]
    steps: int = 0


def gau(num_features: int, sigma: float) -> dict[str, Any]:
    """The encoder."""
    return {"name": "gau", "num_features": num_features, "sigma": sigma}


FITS = [
    *(
        Fit(data, *fit)
        for data, sigmas in {"photograph": (0.0025, 0.004), "folder": (0.0025, 0.004), "random": (0.0035, 0.005)}.items()
        for fit in (
            ("closed form", partial(ComplexLinear, gau(256, sigmas[0]), solver="exact")),
            ("linear layer", partial(ComplexLinear, gau(256, sigmas[1])), 2000),
            ("MLP 4 x 256", partial(SimpleMLP, gau(512, 0.006)), 2000),
        )
    ),
    Fit("photograph", "Adaptive", Adaptive),
    Fit("photograph", "hash, MLP 2 x 64", partial(SimpleMLP, "hash", depth=2, hidden_size=64), 500),
    Fit("clip", "closed form", partial(ComplexLinear, gau(64, 0.009), solver="exact")),
    Fit("clip", "linear layer", partial(ComplexLinear, gau(64, 0.015)), 500),
    Fit("clip", "MLP 5 x 512", partial(SimpleMLP, gau(768, 0.015), depth=5, hidden_size=512), 500),
]


def datamodule(name: str, size: int, cube: int) -> TensorDataModule:
    """The data of a fit."""
    picture = load("samples://astronaut")[:size, :size]
    if name == "clip":
        return TensorDataModule(torch.stack([picture[t : t + cube, t : t + cube] for t in range(cube)])[None])
    if name == "random":
        return TensorDataModule(picture[None], sampling=RandomSampling(0.25))
    if name == "folder":
        return TensorDataModule(torch.stack([picture.roll((32 * shift, 32 * shift), (0, 1)) for shift in range(16)]))
    return TensorDataModule(picture[None])


class Stopwatch(Callback):
    """Seconds of the steps after the first, and an end when the time is up."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.first = self.seconds = 0.0
        self.steps = 0
        self._began = self._since = time.perf_counter()

    def next_step(self, trainer: Trainer) -> int | None:
        """The first step; others when Lightning takes one, which are looked at too."""
        return None if trainer.global_step else 1

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Looks at the clock when the device has done its work."""
        step = trainer.global_step
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        if step == 1:
            self.first, self._since = now - self._began, now
        self.steps, self.seconds = step - 1, now - self._since
        trainer.should_stop = now - self._began > self.limit


class Operations(TorchDispatchMode):
    """Counts operations, without views, and those that the processor waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.waits = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.count += 1
            self.waits += self._waits(func.overloadpacket.__name__, args, result)
        return result

    def _waits(self, name: str, args: Any, result: Any) -> bool:
        given = [x for x in tree_leaves(args) if isinstance(x, Tensor)]
        by_mask = name in ("index", "index_put", "index_put_") and any(x.dtype == torch.bool for x in given[1:])
        to_processor = name in ("_to_copy", "copy_") and result.is_cpu and not all(x.is_cpu for x in given)
        return name in WAITING or by_mask or to_processor


def fitted(
    fit: Fit, data: TensorDataModule, device: str, limit: float, steps: int
) -> tuple[CoordinateModule, Trainer, Stopwatch, float]:
    """A fit of so many steps on a device, and its seconds."""
    seed_everything(0, verbose=False)
    watch, module = Stopwatch(limit), fit.make()
    trainer = make_trainer(steps, watch, accelerator=device, devices=1)
    began = time.perf_counter()
    trainer.fit(module, data)
    if device == "cuda":
        torch.cuda.synchronize()
    return module, trainer, watch, time.perf_counter() - began


def warm_up(fit: Fit, data: TensorDataModule, device: str, limit: float) -> list[object]:
    """Makes a fit untimed, so that its kernels are loaded; its operations and synchronisations, of steps those of one."""
    counts = []
    for steps in (2, 2, 2 + COUNTED) if fit.steps else (0, 0):  # the first one prepares the data too
        with Operations() as found:
            _, trainer, watch = fitted(fit, data, device, limit, steps)[:3]
        counts.append((found.count, found.waits))
        if fit.steps and (trainer.global_step < steps or watch.seconds / watch.steps * COUNTED > limit):
            return ["-", "-"]
    before, last = counts[-2:]
    if not fit.steps:
        return [*last]
    return [f"{(many - few) / COUNTED:.4g}" for few, many in zip(before, last, strict=True)]


def run(fit: Fit, data: TensorDataModule, device: str, limit: float) -> tuple[float, list[object]]:
    """Seconds of a fit on a device, and what its row says; ``-`` is what there is not."""
    counts, on_gpu = warm_up(fit, data, device, limit / 5), device == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    module, trainer, watch, seconds = fitted(fit, data, device, limit, fit.steps)
    psnr, mark = "-", ""
    if trainer.global_step < fit.steps:
        step = watch.seconds / watch.steps if watch.steps else watch.first
        seconds, mark = watch.first + step * (fit.steps - 1), "~"
    else:
        trainer.test(module, data, verbose=False)
        psnr = f"{module.psnr:.2f}"
    milliseconds = f"{watch.seconds / watch.steps * 1e3:.2f}" if watch.steps else "-"
    memory = f"{torch.cuda.max_memory_allocated() / 2**20:.0f}" if on_gpu else "-"
    return seconds, [device, f"{mark}{seconds:.2f}", milliseconds, *counts, psnr, memory]


if __name__ == "__main__":
    parser = make_parser(__doc__)
    devices = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--only", nargs="+", choices=["photograph", "folder", "random", "clip"], metavar="DATA")
    parser.add_argument("--size", type=int, default=512, help="pixels of the picture per axis")
    parser.add_argument("--cube", type=int, default=128, help="samples of the clip per axis")
    parser.add_argument("--budget", type=float, default=240.0, help="seconds of fitting, shared by all fits")
    options = parser.parse_args()
    print(machine())
    fits = [fit for fit in FITS if not options.only or fit.data in options.only]
    runs, left = len(fits) * len(devices), options.budget
    counted = ("operations", "synchronisations")
    print_titles(
        "data", "fit", "device", "seconds", "ms per step", *counted, "PSNR, dB", "MB of the GPU", "ratio to the first device"
    )
    for fit in fits:
        data, seconds = datamodule(fit.data, options.size, options.cube), []
        for device in devices:
            began = time.perf_counter()
            spent, cells = run(fit, data, device, left / runs)
            seconds.append(spent)
            print_row(fit.data, fit.name, *cells, f"{spent / seconds[0]:.2f}")
            left, runs = left - (time.perf_counter() - began), runs - 1
