"""Compares networks with a bare PyTorch loop, and values of ``omega`` and ``sigma`` with one another.

    python benchmarks/networks.py                         # cost of a step against a bare loop: two minutes
    python benchmarks/networks.py --auto PICTURES         # PSNR of the value chosen by spectra, and of a ladder of values

Times are processor times. The costs are medians over blocks of steps that take turns in one process. The bare loops train
networks written here in plain PyTorch (WIRE in complex numbers), with the same number of weights, samples and steps; their
features are computed once where ours are. Scores beside published ones: ``pe-lightning reproduce tancik`` and ``kodak``.

``--auto`` reduces the pictures to ``--size`` (256) and trains on every second row and column, ``--steps`` steps (300).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from harness import Turns, machine, make_parser, make_trainer, print_row, print_titles, seconds_of
from lightning.pytorch import seed_everything
from torch import Tensor, nn

from pe_lightning import encoders
from pe_lightning.encodings import Simple
from pe_lightning.signals import Batching
from pe_lightning.training import ImageDataModule, SimpleMLP, TensorDataModule

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


def cost(blocks: int, names: list[str]) -> None:
    """Prints the table of costs."""
    print(f"{SIZE} x {SIZE} samples, depth {DEPTH}, width {WIDTH}; medians of {blocks} blocks of {BLOCK} steps")
    print_titles("network", "ms a step", "of the bare loop")
    for kind in names:
        data = TensorDataModule(torch.rand(1, 2 * SIZE, 2 * SIZE, 3))
        turns = Turns(bare_step(kind, data), BLOCK)
        make_trainer(BLOCK * (blocks + 2), turns).fit(SimpleMLP(depth=DEPTH, hidden_size=WIDTH, **NETWORKS[kind]), data)
        fit, bare, _ = turns.medians()
        print_row(kind, fit, fit / bare)


def auto(folder: str, count: int, steps: int, size: int) -> None:
    """Prints what the default, the chosen and other values reach."""
    paths = sorted(map(str, Path(folder).iterdir()))[:: max(1, len(list(Path(folder).iterdir())) // count)][:count]
    print(f"{count} pictures at {size} x {size}, every second row and column trained, {steps} steps; held out (trained), dB")
    print_titles("network", "value", "held out, dB", "trained, dB", "core s")
    rff = {"name": "rff", "num_features": 128}
    networks: dict[str, tuple[Callable[[Any], SimpleMLP], list[float]]] = {
        "SIREN, omega": (
            lambda omega: SimpleMLP("identity", activation="sine", depth=3, hidden_size=64, omega=omega),
            [10, 20, 30, 45, 60, 90],
        ),
        "rff, sigma": (lambda sigma: SimpleMLP({**rff, "sigma": sigma}, depth=2, hidden_size=64), [2, 4, 7, 10, 14, 21]),
    }
    for name, (make, ladder) in networks.items():
        for value in (None, "auto", *ladder):
            seed_everything(0, verbose=False)
            data = ImageDataModule(paths, resize=size, batching=Batching("points", size * size // 16))
            module, trainer = make(value), make_trainer(steps)
            seconds = seconds_of(lambda: trainer.fit(module, data))  # noqa: B023
            trainer.test(module, data, verbose=False)
            held_out, trained = (float(module.scores[f"{stage}/psnr"].mean()) for stage in ("test", "train"))
            chosen = f"auto: {module.solution.spectrum.value:.3g}" if value == "auto" else value or "default"
            print_row(name, chosen, held_out, trained, seconds)


def main() -> None:
    """Prints the tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), metavar="NAME")
    parser.add_argument("--auto", metavar="FOLDER", help="of pictures")
    parser.add_argument("--count", type=int, default=4, help="pictures")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--size", type=int, default=256, help="of a side of the pictures")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    print(machine())
    if options.auto:
        auto(options.auto, options.count, options.steps, options.size)
    else:
        cost(options.blocks, options.networks)


if __name__ == "__main__":
    main()
