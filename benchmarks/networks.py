"""Compares networks with a bare PyTorch loop, with their published scores, and values of ``omega`` with one another.

    python benchmarks/networks.py                         # cost of a step against a bare loop: two minutes
    python benchmarks/networks.py --published PICTURES    # PSNR beside published scores
    python benchmarks/networks.py --auto PICTURES         # PSNR of the value chosen by spectra, and of a ladder of values

Times are processor times. The costs are medians over blocks of steps that take turns in one process. The bare loops train
networks written here in plain PyTorch (WIRE in complex numbers), with the same number of weights, samples and steps; their
features are computed once where ours are.

``--published`` reduces the pictures (``--size``, 128), and the networks so that they have as many parameters per trained
sample as the published ones; it takes ``--steps`` steps (1000) of all samples. Pictures, sizes and steps differ from those
of the published scores, so compare the order and the distance, not the digits. ``reproduce tancik`` and ``reproduce kodak``
have the published protocols in full.

``--auto`` reduces the pictures to ``--size`` (256) and trains on every second row and column, ``--steps`` steps (300).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness import Turns, machine, make_parser, make_trainer, print_row, print_titles, seconds_of
from lightning.pytorch import seed_everything
from torch import Tensor, nn

from pe_lightning import encoders
from pe_lightning.encodings import Simple
from pe_lightning.signals import Batching, GridSampling
from pe_lightning.training import ImageDataModule, SimpleMLP, TensorDataModule
from pe_papers.reproduce.definition import load

SIZE, DEPTH, WIDTH, BLOCK = 64, 3, 128, 5
IDENTITY: dict[str, Any] = {"encoder": "identity"}
NETWORKS: dict[str, dict[str, Any]] = {
    "relu, rff": {"encoder": {"name": "rff", "num_features": 256}},
    **{f"{name}, identity": {**IDENTITY, "activation": name} for name in ("sine", "gabor", "finer", "gauss", "staf")},
    "relu, lff": {"encoder": {"name": "lff", "num_features": 128}},
    "relu, hash": {"encoder": "hash"},
    "relu, planes": {"encoder": "planes"},
}


@dataclass(frozen=True)
class Published:
    """A published score of a network, and how it was measured.

    Args:
        psnr: In dB, mean over pictures.
        parameters: Of the network.
        samples: Trained samples of a picture.
        held_out: Whether samples between the trained ones are scored (both indices odd); else the trained ones are.
        protocol: Pictures and training.
        source: Where the score is published.
    """

    psnr: float
    parameters: int
    samples: int
    held_out: bool
    protocol: str
    source: str


def published_scores() -> dict[str, list[Published]]:
    """The published scores of each network: those of the definitions of ``reproduce``, and one of another program."""
    kodak = {
        entry.labels["method"]: [
            Published(psnr, parameters, 768 * 512, False, "Kodak", "Ye et al. (CARA)")
            for parameters, psnr in zip(
                entry.settings["arguments.parameters"], entry.settings["arguments.psnr"], strict=True
            )
        ]
        for entry in load("kodak").entries()
        if entry.labels["block"] == "published"
    }
    photographs = {
        entry.labels["method"]: entry.paper[0] or math.nan
        for entry in load("tancik").entries()
        if entry.labels["block"] == "natural"
    }
    where = (256**2, True, "16 photographs, 2000 steps", "Tancik et al. 2020")
    wire = Published(28.78, 199_000, 512**2, False, "photographs of 512 x 512, 5000 steps", "program of Liu et al. (FINER)")
    return {
        "relu, identity": [Published(photographs["none"], 133_123, *where)],
        "relu, rff": [Published(photographs["rff"], 263_683, *where)],
        "sine, identity": kodak["SIREN"],
        "gabor, identity": [*kodak["WIRE"], wire],
        "relu, hash": kodak["Instant-NGP"],
        # no published score of these was found at a source that states its protocol
        "finer, identity": [],
        "gauss, identity": [],
        "staf, identity": [],
    }


WITHOUT_SCORE = Published(math.nan, 207_000, 768 * 512, False, "none found", "")


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


def width_of(parameters: float, inputs: int) -> int:
    """Units of three hidden layers with about so many parameters, for a picture of three channels."""
    linear = inputs + 6
    return max(4, round((math.sqrt(linear**2 + 8 * parameters) - linear) / 4))


def smaller(kind: str, score: Published, samples: int, size: int, steps: int) -> SimpleMLP:
    """Returns a network with as many parameters per trained sample as the published one."""
    parameters = score.parameters * samples / score.samples
    if kind == "relu, hash":
        encoder = {"name": "hash", "num_levels": 8, "level_features": 2, "finest": size, "span": size / 8}
        perceptron = 16 * 16 + 16 * 16 + 3 * 16 + 35
        table = max(16, round((parameters - perceptron) / 16))
        return SimpleMLP(
            encoder=encoder | {"table_size": table}, depth=2, hidden_size=16, optimizer=partial(torch.optim.Adam, lr=1e-2)
        )
    if kind == "relu, rff":  # sigma and the share of the features as published, for fewer samples
        features = 2 * round(math.sqrt(parameters) / 2)
        encoder = {"name": "rff", "num_features": features, "sigma": 10 * size / 512}
        return SimpleMLP(
            encoder=encoder, depth=3, hidden_size=features // 2, sigmoid=True, optimizer=partial(torch.optim.Adam, lr=1e-3)
        )
    activation = kind.partition(",")[0]
    options: dict[str, Any] = {}
    if activation == "relu":
        options = {"sigmoid": True, "optimizer": partial(torch.optim.Adam, lr=1e-2)}
    if activation == "gabor":  # the rate falls to a tenth, as in its authors' program; their omega is for larger pictures
        options = {"omega": 10, "lr_scheduler": partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.1 ** (1 / steps))}
    return SimpleMLP(encoder="identity", activation=activation, depth=3, hidden_size=width_of(parameters, 2), **options)


def compare_with_published(folder: str, names: list[str], count: int, steps: int, size: int) -> None:
    """Prints published scores beside those of smaller networks on the reader's pictures."""
    paths = sorted(map(str, Path(folder).iterdir()))[:count]
    print(f"{len(paths)} pictures at {size} x {size}, {steps} steps of all trained samples\n")
    columns = ["network", "published (dB)", "parameters per sample", "scored", "protocol, source", "here (dB)"]
    columns += ["parameters", "core seconds"]
    print_titles(*columns)
    for kind in names:
        scores: dict[tuple[float, bool], tuple[float, int, float]] = {}
        for score in published_scores()[kind] or [WITHOUT_SCORE]:
            seed_everything(0, verbose=False)
            stride = 2 if score.held_out else 1
            data = ImageDataModule(
                paths, resize=size, sampling=GridSampling(stride), eval_mask="odd" if score.held_out else "all"
            )
            share = score.parameters / score.samples
            if (share, score.held_out) not in scores:
                module, fit = smaller(kind, score, (size // stride) ** 2, size, steps), make_trainer(steps)
                seconds = seconds_of(lambda: fit.fit(module, data))  # noqa: B023
                fit.test(module, data, verbose=False)
                psnr = float(module.scores["test/psnr"].mean())
                each = sum(parameter.numel() for parameter in module.parameters()) // len(paths)
                scores[share, score.held_out] = psnr, each, seconds / len(paths)
            psnr, each, seconds = scores[share, score.held_out]
            published = "" if math.isnan(score.psnr) else score.psnr
            what = "between" if score.held_out else "trained"
            where = ", ".join(filter(None, [score.protocol, score.source]))
            print_row(kind, published, share, what, where, psnr, each, seconds)


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
    parser.add_argument("--networks", nargs="+", choices=[*NETWORKS, "relu, identity"], metavar="NAME")
    parser.add_argument("--published", metavar="FOLDER", help="of pictures")
    parser.add_argument("--auto", metavar="FOLDER", help="of pictures")
    parser.add_argument("--count", type=int, default=4, help="pictures")
    parser.add_argument("--steps", type=int, help="default: 1000 with --published, 300 with --auto")
    parser.add_argument("--size", type=int, help="of a side of the pictures; default: 128 with --published, 256 with --auto")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    print(machine())
    if options.published:
        names = [name for name in options.networks or published_scores() if name in published_scores()]
        compare_with_published(options.published, names, options.count, options.steps or 1000, options.size or 128)
    elif options.auto:
        auto(options.auto, options.count, options.steps or 300, options.size or 256)
    else:
        cost(options.blocks, [name for name in options.networks or NETWORKS if name in NETWORKS])


if __name__ == "__main__":
    main()
