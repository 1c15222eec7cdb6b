"""What a training step of each network costs against a bare PyTorch loop, and eight signals together against in turn.

    python benchmarks/networks.py                             # both, of every network: three minutes
    python benchmarks/networks.py --auto PICTURES             # what a choice by spectra is worth: PSNR of a ladder of values

Times are those of the processor: medians over blocks of steps that take turns in one process. The bare loops are of
networks written here in plain PyTorch (WIRE in complex numbers), with the same number of weights, samples and steps; their
features are computed once where ours are. ``--auto`` reduces the pictures to 256 x 256 and trains on every second row and
column.
"""

from __future__ import annotations

import argparse
import logging
import math
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from quiet import machine
from torch import Tensor, nn

from pe_lightning import encoders
from pe_lightning.data import Batching, ImageDataModule, TensorDataModule
from pe_lightning.encodings import Simple
from pe_lightning.modules import SimpleMLP

SIZE, DEPTH, WIDTH, BLOCK = 64, 3, 128, 5
IDENTITY: dict[str, Any] = {"encoder": "identity"}
NETWORKS: dict[str, dict[str, Any]] = {
    "relu, rff": {"encoder": {"name": "rff", "num_features": 256}},
    **{f"{name}, identity": {**IDENTITY, "activation": name} for name in ("sine", "gabor", "finer", "gauss", "staf")},
    "relu, lff": {"encoder": {"name": "lff", "num_features": 128}},
    "relu, hash": {"encoder": "hash"},
    "relu, planes": {"encoder": "planes"},
}


class Bare(nn.Module):
    """A perceptron in a few lines."""

    def __init__(self, name: str, inputs: int) -> None:
        super().__init__()
        self.name = name
        width, dtype = (round(WIDTH / math.sqrt(2)), torch.cfloat) if name == "gabor" else (WIDTH, torch.float32)
        hidden = [nn.Linear(width, width, dtype=dtype) for _ in range(DEPTH - 1)]
        self.layers = nn.ModuleList([nn.Linear(inputs, width), *hidden, nn.Linear(width, 3, dtype=dtype)])
        if name == "staf":
            self.terms = nn.ParameterList([torch.rand(3, 5) for _ in range(DEPTH)])

    def activation(self, z: Tensor, place: int) -> Tensor:
        """After the layer of this number."""
        if self.name == "staf":
            return sum(b * torch.sin(w * z + phi) for w, phi, b in self.terms[place].unbind(1))  # type: ignore[return-value]
        formulas: dict[str, Callable[[Tensor], Tensor]] = {
            "relu": torch.relu,
            "sine": lambda z: torch.sin(30 * z),
            "gabor": lambda z: torch.exp(20j * z - (10 * z).abs().square()),
            "finer": lambda z: torch.sin(30 * (z.detach().abs() + 1) * z),
            "gauss": lambda z: torch.exp(-((10 * z) ** 2)),
        }
        return formulas[self.name](z)

    def forward(self, x: Tensor) -> Tensor:
        """Values from features."""
        for place, layer in enumerate(self.layers[:-1]):
            x = self.activation(layer(x), place)
        x = self.layers[-1](x)
        return x.real if x.is_complex() else x


def bare_step(kind: str, data: TensorDataModule) -> Callable[[], None]:
    """A step of a bare loop."""
    activation = kind.partition(",")[0]
    batch = data.train_batch()
    coords = torch.stack(torch.meshgrid(*batch.axes, indexing="ij"), -1).flatten(0, 1)  # type: ignore[arg-type]
    target = batch.values[0].flatten(0, 1)
    given = NETWORKS[kind]["encoder"]
    encoding = Simple(encoders.resolve(given).for_data(encoders.Samples((SIZE, SIZE), use="perceptron")), 2)
    network = Bare(activation, encoding.num_features)
    trained = list(encoding.parameters())
    features = None if trained else encoding(coords)
    optimizer = torch.optim.Adam([*network.parameters(), *trained], lr=1e-3, fused=activation != "gabor")

    def step() -> None:
        optimizer.zero_grad()
        (network(encoding(coords) if features is None else features) - target).square().mean().backward()
        optimizer.step()

    return step


class Turns(Callback):
    """Lets a bare loop take its steps after every block of ours."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.step, self.ours, self.bare = step, [], []  # type: ignore[var-annotated]
        self.began = 0.0

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """After a block."""
        if trainer.global_step % BLOCK:
            return
        now = time.process_time()
        self.ours.append(now - self.began)
        for _ in range(BLOCK):
            self.step()
        self.bare.append(time.process_time() - now)
        self.began = time.process_time()


def trainer(steps: int, *callbacks: Callback) -> Trainer:
    """A quiet Trainer on the CPU."""
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "num_sanity_val_steps": 0, "limit_val_batches": 0, "accelerator": "cpu"}
    return Trainer(max_steps=steps, callbacks=list(callbacks), **quiet)


def cost(blocks: int, names: list[str]) -> None:
    """Prints the table of costs."""
    print(f"{SIZE} x {SIZE} samples, depth {DEPTH}, width {WIDTH}; medians of {blocks} blocks of {BLOCK} steps")
    print(f"{'network':<18}{'ms a step':>10}{'/ bare loop':>13}{'8 together / in turn':>22}")
    for kind in names:
        arguments = NETWORKS[kind]
        data = TensorDataModule(torch.rand(1, 2 * SIZE, 2 * SIZE, 3))
        module, turns = SimpleMLP(depth=DEPTH, width=WIDTH, **arguments), Turns(bare_step(kind, data))
        trainer(BLOCK * (blocks + 2), turns).fit(module, data)
        ours, bare = (statistics.median(times[2:]) / BLOCK for times in (turns.ours, turns.bare))
        eight = TensorDataModule(torch.rand(8, 2 * SIZE, 2 * SIZE, 3))
        steps = [loop(SimpleMLP(depth=DEPTH, width=WIDTH, **arguments), some) for some in (eight, data)]
        times: list[list[float]] = [[], []]
        for _ in range(max(3, blocks // 2)):
            for step, count, seen in zip(steps, (1, 8), times, strict=True):
                began = time.process_time()
                for _ in range(count):
                    step()
                seen.append(time.process_time() - began)
        together, alone = (statistics.median(seen[1:]) for seen in times)
        print(f"{kind:<18}{1000 * ours:>10.1f}{ours / bare:>13.2f}{together / alone:>22.2f}", flush=True)


def loop(module: SimpleMLP, data: TensorDataModule) -> Callable[[], None]:
    """A step of a module without a Trainer."""
    module.build_from(data)
    batch, optimizer = data.train_batch(), module.optimizer(list(module.parameters()))  # type: ignore[misc]

    def step() -> None:
        optimizer.zero_grad()
        module.errors(batch).square().mean(1).sum().backward()
        optimizer.step()

    return step


def auto(folder: str, count: int, steps: int, size: int) -> None:
    """Prints what the default, the chosen and other values reach."""
    paths = sorted(map(str, Path(folder).iterdir()))[:: max(1, len(list(Path(folder).iterdir())) // count)][:count]
    print(f"{count} pictures at {size} x {size}, every second row and column trained, {steps} steps; held out (trained), dB")
    rows: dict[str, tuple[dict[str, Any], str, list[float]]] = {
        "sine": ({**IDENTITY, "activation": "sine", "depth": 3, "width": 64}, "omega", [10, 20, 30, 45, 60, 90]),
        "rff": ({"encoder": {"name": "rff", "num_features": 128}, "depth": 2, "width": 64}, "sigma", [2, 4, 7, 10, 14, 21]),
    }
    for name, (arguments, option, ladder) in rows.items():
        for value in (None, "auto", *ladder):
            seed_everything(0, verbose=False)
            data = ImageDataModule(paths, resize=size, batching=Batching("points", size * size // 16))
            if option == "omega":
                module = SimpleMLP(**arguments, omega=value)  # type: ignore[arg-type]
            else:
                module = SimpleMLP(**{**arguments, "encoder": {**arguments["encoder"], "sigma": value}})
            one = trainer(steps)
            began = time.process_time()
            one.fit(module, data)
            seconds = time.process_time() - began
            one.test(module, data, verbose=False)
            held, trained = (float(module.scores[f"{stage}/psnr"].mean()) for stage in ("test", "train"))
            chosen = (
                f" = {module.solution.spectrum.value:.3g}, chosen in {module.solution.spectrum.seconds:.1f} s"
                if value == "auto"
                else ""
            )  # type: ignore[index]
            print(f"{name} {option}={value or 'default'}{chosen}: {held:.2f} ({trained:.2f}), {seconds:.0f} s", flush=True)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), metavar="NAME")
    parser.add_argument("--auto", metavar="FOLDER", help="of pictures")
    parser.add_argument("--count", type=int, default=4, help="pictures")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--size", type=int, default=256)
    options = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    print(machine())
    if options.auto:
        auto(options.auto, options.count, options.steps, options.size)
    else:
        cost(options.blocks, options.networks)


if __name__ == "__main__":
    main()
