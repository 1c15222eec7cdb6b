"""The choice of padding, number of features, width and ridge of exact fits. Prints one table per section.

    python benchmarks/choice.py                                          # pictures of scikit-image; ten minutes on one core
    python benchmarks/choice.py --paths FOLDER                           # with crops and rows of pictures, such as natural16
    python benchmarks/choice.py --only holes                             # missing samples

- ``regret``: dB below the best of a grid of 3 paddings, 1 or 2 features per sample, 7 widths and 24 ridges, chosen with the
  samples that are predicted, mean and worst by kind of signal and encoder. ``chosen``: what the library chooses. The rules
  choose from the same grid: ``halved``, by every second trained sample, predicted from the others with features for the
  coarser grid, as in version 0.3; ``left out``, by leave-one-out errors; ``evidence``, by the marginal likelihood.
- ``smooth``: PSNR of 0.5 + 0.25 sin(k y + 0.3) cos(k x - 0.2), with the padding, width and rule that are chosen.
- ``holes``: PSNR with no, one and 1, 5 and 10 % of the trained samples missing, of every encoder without parameters.

Every second sample of every axis is trained, the others are predicted.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from harness import files_of, load, make_parser, print_row, print_titles, run_sections
from torch import Tensor

import pe_lightning
from pe_lightning import encoders
from pe_lightning.encoders import Encoder, samples_per_unit, sized, widened
from pe_lightning.encoders.resolution import shrunk
from pe_lightning.linalg import factor_axes, mode_products
from pe_lightning.solvers.leave_one_out import ResidualMap

ENCODERS = ("gau", "tri", "laplace", "rff", "linf")
RIDGES = 10.0 ** torch.arange(-10, 1.51, 0.5, dtype=torch.float64)
FACTORS = [2 ** (k / 2) for k in range(-2, 5)]
PADDINGS = ("edge", 2, 4)
RULES = ("halved", "left out", "evidence")


def picture(name: str) -> Tensor:
    """A picture of scikit-image, ``(H, W, C)`` in [0, 1]."""
    import skimage.data

    values = torch.from_numpy(getattr(skimage.data, name)() / 255).float()
    return values if values.ndim == 3 else values[..., None]


def wave(size: int, rate: float) -> Tensor:
    """A smooth picture ``(size, size, 1)``."""
    x = torch.arange(size) / size
    return (0.5 + 0.25 * torch.sin(rate * x + 0.3)[:, None] * torch.cos(rate * x - 0.2))[..., None]


def signals(paths: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    """Kind and values ``(*grid, C)``."""
    for name in ("astronaut", "chelsea", "coffee", "rocket"):
        yield "photographs", picture(name)[96:192, 160:256]
        yield "rows", picture(name)[150, :384]
    for path in files_of(paths):
        values = load(path)
        yield "photographs", values[200:296, 200:296]
        yield "rows", values[250]
    yield "text", picture("page")[40:136, 60:156]
    yield "text", picture("page")[20:148, 200:328]
    yield "text", picture("text")[:128, :128]
    for name, step in (("astronaut", 2), ("coffee", 1)):
        yield (
            "clips",
            torch.stack([picture(name)[100 + t : 140 + t, 200 + step * t : 240 + step * t, :1] for t in range(16)]),
        )
    for size, rate in ((20, 4), (32, 5), (48, 9)):
        yield "smooth", wave(size, rate)
    generator = torch.Generator().manual_seed(0)
    for deviation in (0.02, 0.1):
        for values in (picture("chelsea")[96:192, 160:256], wave(64, 9), picture("rocket")[150, :384]):
            # within [0, 1], so that no range is measured
            yield "noisy", 0.25 + 0.5 * values + deviation / 2 * torch.randn(values.shape, generator=generator)


@dataclass
class Fits:
    """Fits of the trained samples of a signal ``(*grid, C)`` by all ridges, in float64."""

    values: Tensor
    made: Sequence[Encoder]

    def __post_init__(self) -> None:
        y = self.values.double().movedim(-1, 0)
        self.axes = [torch.arange(n, dtype=torch.float64) / n for n in y.shape[1:]]
        self.trained = y[(slice(None), *[slice(None, None, 2)] * len(self.axes))]
        self.mean = self.trained.flatten(1).mean(1).reshape(-1, *[1] * len(self.axes))

    @staticmethod
    def _errors(whole: Tensor, features: Sequence[Tensor]) -> list[float]:
        every = (slice(None), *[slice(None, None, 2)] * len(features))
        known = whole[every]
        mean = known.flatten(1).mean(1).reshape(-1, *[1] * len(features))
        factors = factor_axes([f[::2] for f in features])
        spectrum = mode_products(known - mean, [factor.left().T for factor in factors])
        singular = reduce(torch.kron, [factor.singular_values for factor in factors]).reshape(spectrum.shape[1:])
        unit = math.prod(factor.mean_diagonal for factor in factors)
        bases = [f @ factor.right for f, factor in zip(features, factors, strict=True)]
        held = torch.ones(whole.shape[1:], dtype=torch.bool)
        held[every[1:]] = False
        found = []
        for ridge in RIDGES:
            weights = spectrum * singular / (singular.square() + ridge * unit)
            found.append(float((mode_products(weights, bases) + mean - whole)[:, held].square().mean()))
        return found

    def scores(self) -> dict[str, list[float]]:
        """PSNR of the predicted samples, and what each rule maximises, by ridge."""
        whole = self.values.double().movedim(-1, 0)
        features = [e(x) for e, x in zip(self.made, self.axes, strict=True)]
        halved = [shrunk(e, 2.0)(x[::2]) for e, x in zip(self.made, self.axes, strict=True)]
        found = {"truth": [-10 * math.log10(error) for error in self._errors(whole, features)]}
        found["halved"] = [-10 * math.log10(error) for error in self._errors(self.trained, halved)]
        residuals = ResidualMap(factor_axes([f[::2] for f in features]), whole.device)
        inside, outside = residuals.spectrum(self.trained - self.mean)
        count, rank = self.trained[0].numel(), residuals.power.numel()
        beyond = 0.0 if outside is None else float(outside.square().sum())
        found["left out"], found["evidence"] = [], []
        for ridge in RIDGES:
            gain, absolute = residuals.gain(ridge), float(ridge * residuals.unit)
            errors = residuals.residuals((inside, outside), gain) / residuals.diagonal(gain).clamp_min(1e-300)
            found["left out"].append(-10 * math.log10(float(errors.square().mean())))
            power = residuals.power + absolute
            quadratic = float((inside.square() / power).sum()) + beyond / absolute
            volume = float(power.log().sum()) + (count - rank) * math.log(absolute)
            found["evidence"].append(-math.log(quadratic) - volume / count)
        return found


def candidates(name: str, grid: Sequence[int]) -> Iterator[tuple[Encoder, ...]]:
    """The encoders of the grid of paddings, features and widths, one per axis."""
    samples = [samples_per_unit(torch.arange(n, dtype=torch.float64)[::2] / n) for n in grid]
    given: dict[str, Any] = {"seed": 0} if name == "rff" else {}
    shifted = "padding" in encoders.registry.parameters(encoders.registry.get(name))
    for padding, count, factor in itertools.product(PADDINGS if shifted else (None,), (1, 2), FACTORS):
        encoder = encoders.create(name, **given, **({"padding": padding} if shifted else {}))
        made = {n: widened(sized([encoder], [1 / (n * count)], [n])[0], n, factor) for n in set(samples)}
        yield tuple(made[n] for n in samples)


def regret(options: argparse.Namespace) -> None:
    """Prints how far below the best each rule is."""
    below: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for kind, values in signals(options.paths):
        for name in ENCODERS:
            scores: dict[str, list[float]] = defaultdict(list)
            for made in candidates(name, values.shape[:-1]):
                for key, entries in Fits(values, made).scores().items():
                    scores[key] += entries
            best = max(scores["truth"])
            fitted = pe_lightning.fit(values[None], {"name": name, "seed": 0} if name == "rff" else name)
            below[kind, name, "chosen"].append(best - fitted.psnr)
            for rule in RULES:
                below[kind, name, rule].append(best - scores["truth"][int(np.argmax(scores[rule]))])
    rules = ("chosen", *RULES)
    print_titles("signals", "encoder", *[f"{rule}, mean" for rule in rules], *[f"{rule}, worst" for rule in rules])
    for kind, name in dict.fromkeys(key[:2] for key in below):
        every = [below[kind, name, rule] for rule in rules]
        print_row(f"{kind} ({len(every[0])})", name, *map(np.mean, every), *map(max, every))


def smooth(options: argparse.Namespace) -> None:
    """Prints what is chosen for smooth signals."""
    print_titles("encoder", "samples, k", "dB", "width, times the rule's", "padding", "features per sample", "rule")
    for name, (size, rate) in itertools.product(ENCODERS, ((20, 4), (32, 5), (48, 9))):
        found = pe_lightning.fit(wave(size, rate)[None], {"name": name, "seed": 0} if name == "rff" else name)
        assert found.solution is not None
        choice = found.solution.choice
        assert choice is not None
        more = (choice["padding"] or "-", choice["features_per_sample"], choice["rule"])
        print_row(name, f"{size}, {rate}", found.psnr, choice["factor"], *more)


def with_holes(values: Tensor, share: float) -> Tensor:
    """``(1, H, W, C)`` with this share of the trained samples missing, one for a negative share."""
    half = values.shape[1] // 2
    count = 1 if share < 0 else round(share * half * half)
    index = torch.randperm(half * half, generator=torch.Generator().manual_seed(1))[:count]
    found = values.clone()
    found[0, 2 * (index // half), 2 * (index % half)] = torch.nan
    return found


def holes(options: argparse.Namespace) -> None:
    """Prints the scores with missing samples."""
    shares = (0.0, -1.0, 0.01, 0.05, 0.1)
    print_titles("picture", "encoder", "all known", "one missing", "1 %", "5 %", "10 %")
    for picture_name, name in itertools.product(("chelsea", "coffee"), encoders.registry):
        given = {"name": name, "seed": 0} if "seed" in encoders.registry.parameters(encoders.registry.get(name)) else name
        if any(True for _ in encoders.resolve(given).parameters()):
            continue
        values = picture(picture_name)[None, :96, :96]
        print_row(picture_name, name, *[pe_lightning.fit(with_holes(values, share), given).psnr for share in shares])


if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--paths", nargs="+", default=[], help="pictures or folders, for the section regret")
    warnings.simplefilter("ignore")
    logging.getLogger("pe_lightning").setLevel(logging.ERROR)
    run_sections(parser, {"regret": regret, "smooth": smooth, "holes": holes})
