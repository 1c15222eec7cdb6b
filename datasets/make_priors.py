"""Trains the networks that predict samples between known ones: those of the package, or ones of your own pictures.

    python datasets/make_priors.py pictures           # the prior of Local and Adaptive
    python datasets/make_priors.py cells my_photos    # the network that enlarges, from own pictures or folders alone

Further options are those of ``pe-lightning fit``; ``prior_pictures.yaml`` and ``prior_cells.yaml`` are the configurations.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import UserList
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jsonargparse.typing import ClosedUnitInterval, NonNegativeInt, PositiveFloat, PositiveInt
from lightning.pytorch import LightningDataModule
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR

from pe_fill.estimators.priors import PRIOR_KEY, prior_from
from pe_fill.networks.cells import CELL_INNER, CELL_PATCH, CellPrior, cell_contrast
from pe_fill.networks.local import INNER, PATCH, LocalPrior, blend_weight, contrast
from pe_lightning.__main__ import main as command
from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.evaluation import metrics
from pe_lightning.registry import Described
from pe_lightning.results.config_files import as_yaml
from pe_lightning.signals import Process, TrainLoader
from pe_lightning.signals.sources import read_pictures
from pe_lightning.training import TaskScores, TrainedModule, datamodule_of, trainer_of, warm_up_and_cosine

from drawing import draw_picture

PHOTOGRAPHS = {
    "skimage.data": (
        *("coffee.png", "chelsea.png", "rocket.jpg", "hubble_deep_field.jpg", "retina.jpg", "coins.png"),
        *("clock_motion.png", "ihc.png", "cell.png", "brick.png", "grass.png", "gravel.png"),
    ),
    "sklearn.datasets.images": ("china.jpg", "flower.jpg"),
    "matplotlib": ("mpl-data/sample_data/grace_hopper.jpg",),
}
"""Photographs of installed packages whose licences allow their use; docs/prior.md lists the licences."""
CANDIDATES = 4
"""Drawn patches for each trained one, so that patches of high contrast can be preferred."""
HELD_OUT_SHARE = 8
"""The lowest rows of every picture, one of this many, are validated on."""
MIN_HELD_OUT_ROWS = 16
"""Fewest held-out rows; smaller pictures are trained on as a whole."""
STEPS_PER_EPOCH = 500
LR_WARM_UP_STEPS = 50
"""Steps in which the learning rate rises linearly."""

Picture = NDArray[np.uint8]


class _Samples(NamedTuple):
    """The known samples of a patch, and the samples of the picture that are predicted from them.

    Args:
        spacings: Distance of known samples, in samples of the picture, of one batch after another.
        size: Known samples along each axis of a patch.
        inner: Known samples whose contrast scales a patch.
        means: Whether known samples are means over cells as long as their distance.
    """

    spacings: tuple[int, ...]
    size: int
    inner: slice
    means: bool

    def scale(self, known: Tensor) -> tuple[Tensor, Tensor | None]:
        """The scale of patches ``(B, n, n)`` and, for points, whether a patch needs no training: ``(B,)`` each."""
        inner = known[:, self.inner, self.inner]
        return (cell_contrast(inner), None) if self.means else contrast(inner)

    def offsets(self, spacing: int) -> tuple[Tensor, Tensor]:
        """Positions of the known and of the predicted samples, from the first sample of the middle cell."""
        known = (torch.arange(self.size) - (self.size - 1) // 2) * spacing
        # of points, the samples within half a cell around the cell, where the blend of cells is not zero
        around = (k for k in range(-spacing, 2 * spacing) if abs(k / spacing - 0.5) < 1)
        return known, torch.tensor([*(range(spacing) if self.means else around)])

    def batch(self, spacing: int) -> dict[str, Any]:
        """What the network takes beside patches; weights of the targets in the loss, and which are scored, ``(n, n)``."""
        wanted = self.offsets(spacing)[1]
        if self.means:
            ones = torch.ones(spacing, spacing)
            return {"at": spacing, "weight": ones, "scored": ones > 0}
        weight, known = blend_weight(wanted / spacing), wanted % spacing == 0
        return {"at": wanted / spacing, "weight": weight[:, None] * weight, "scored": ~(known[:, None] & known)}


SAMPLES = {
    "points": _Samples((2, 2, 2, 3, 2, 2, 2, 4), PATCH, INNER, means=False),
    "cells": _Samples((2, 3), CELL_PATCH, CELL_INNER, means=True),
}
"""By the name in the arguments of :class:`PatchDataModule`."""


def shipped_photographs() -> list[Picture]:
    """The pictures of :data:`PHOTOGRAPHS`, ``(H, W, 3 or 1)``."""
    try:
        paths = [str(resources.files(package) / name) for package, names in PHOTOGRAPHS.items() for name in names]
    except ModuleNotFoundError as error:
        raise InputError(
            'two photographs are part of scikit-learn: pip install "pe-lightning[tasks]", or name pictures of your '
            "own with --data.paths FOLDER"
        ) from error
    return [_bytes(values) for _, values in read_pictures(paths)]


def _bytes(values: NDArray[np.float32]) -> Picture:
    picture: Picture = np.round(values.clip(0, 1) * 255).astype(np.uint8)
    return picture


def _halved(picture: Picture) -> Picture:
    size = (picture.shape[1] // 2, picture.shape[0] // 2)
    planes = [Image.fromarray(np.ascontiguousarray(plane)) for plane in np.moveaxis(picture, -1, 0)]
    return np.stack([np.asarray(plane.resize(size, Image.Resampling.LANCZOS)) for plane in planes], -1)


class _Planes:
    """Channels of pictures of any sizes in one tensor, from which patches are drawn."""

    def __init__(self, pictures: Sequence[Picture]) -> None:
        planes = [picture[..., c] for picture in pictures for c in range(picture.shape[-1])]
        sizes = [plane.size for plane in planes]
        self.shapes = torch.tensor([plane.shape for plane in planes])
        self.starts = torch.tensor([0, *np.cumsum(sizes)[:-1].tolist()])
        self.data = torch.from_numpy(np.concatenate([plane.ravel() for plane in planes]))
        # large pictures do not outweigh the others
        self.weights = torch.tensor(sizes, dtype=torch.float64).sqrt()
        self.means: dict[int, Tensor] = {}

    def origins(self, count: int, before: int, after: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Random cells with some samples before and after their first sample along each axis.

        Returns:
            Positions of the first samples in :attr:`data` and widths of the planes, each ``(count,)``.
        """
        chosen = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        height, width = self.shapes[chosen].unbind(1)
        reach = before + after
        y = (torch.rand(count, generator=generator) * (height - reach)).long() + before
        x = (torch.rand(count, generator=generator) * (width - reach)).long() + before
        return self.starts[chosen] + y * width + x, width

    def around(self, cells: tuple[Tensor, Tensor], offsets: Tensor, data: Tensor | None = None) -> Tensor:
        """Values at all pairs of ``offsets`` ``(n,)`` from the first samples of cells: ``(count, n, n)``."""
        origin, width = (part[:, None, None] for part in cells)
        return (self.data if data is None else data)[origin + offsets[:, None] * width + offsets].float() / 255

    def means_of(self, factor: int) -> Tensor:
        """Means in 8 bits over the ``factor x factor`` samples from each one on, in the places of :attr:`data`."""
        if factor not in self.means:
            result = torch.zeros_like(self.data)
            for start, (height, width) in zip(self.starts.tolist(), self.shapes.tolist(), strict=True):
                plane = self.data[start : start + height * width].reshape(1, height, width).float()
                means = functional.avg_pool2d(plane, factor, 1)[0].round()
                target = result[start : start + height * width].view(height, width)
                target[: means.shape[0], : means.shape[1]] = means.to(result.dtype)
            self.means[factor] = result
        return self.means[factor]

    def draw(
        self, count: int, samples: _Samples, spacing: int, generator: torch.Generator, by_contrast: bool
    ) -> tuple[Tensor, Tensor]:
        """Random patches ``(count, n, n)`` of known samples, and the samples that are predicted, ``(count, m, m)``.

        With ``by_contrast`` their probability is in proportion to their squared scale, so that few patches are flat.
        """
        (known, wanted), means = samples.offsets(spacing), self.means_of(spacing) if samples.means else None
        reach = int(known[-1]) + (spacing - 1 if samples.means else 0)
        cells = self.origins(count * (CANDIDATES if by_contrast else 1), -int(known[0]), reach, generator)
        if by_contrast:
            scale, flat = samples.scale(self.around(cells, known, means))
            chances = scale.double().square()
            # relative probability of flat patches, which are interpolated bicubically and need no training
            chances = chances if flat is None else chances.masked_fill(flat, 1e-12)
            chosen = torch.multinomial(chances, count, replacement=True, generator=generator)
            cells = (cells[0][chosen], cells[1][chosen])
        return self.around(cells, known, means), self.around(cells, wanted)


class _PatchLoader(TrainLoader):
    """Random patches; batch ``k`` depends on the seed and on ``k`` alone."""

    def __init__(self, data: PatchDataModule, planes: Mapping[str, _Planes], process: Process) -> None:
        super().__init__(1, STEPS_PER_EPOCH, process, data.seed)
        self.planes, self.data = planes, data

    def one_pass(self, number: int, first: int) -> Iterator[Any]:
        data, samples = self.data, SAMPLES[self.data.samples]
        generator = torch.Generator().manual_seed((self.seed << 32) + number)
        size, spacing = data.batch_size, samples.spacings[number % len(samples.spacings)]
        counts = [size] if len(self.planes) == 1 else [size // 2, size - size // 2]
        drawn = [
            planes.draw(n, samples, spacing, generator, by_contrast=True)
            for n, planes in zip(counts, self.planes.values(), strict=True)
        ]
        patches, targets = (torch.cat(some) for some in zip(*drawn, strict=True))
        scale, _ = samples.scale(patches)
        if data.noise:
            patches = patches + data.noise * torch.randn(patches.shape, generator=generator)
        own = self.process.share(size)
        batch = {"patches": patches[own], "targets": targets[own], "scale": scale[own], "total": size}
        yield {**batch, **samples.batch(spacing)}


class _Batches(UserList[dict[str, Any]]):
    """Batches in memory; Lightning takes a list for several loaders."""


class PatchDataModule(LightningDataModule):
    """Patches of pictures on a coarser grid, and the samples between, to train priors (``prior_pictures.yaml``).

    Known samples are 2, 3 or 4 samples apart, or are means over cells of 2 x 2 or 3 x 3 samples (``prior_cells.yaml``).
    Half of a batch is of photographs, which are also used at half their size, and half of drawn pictures. The lowest eighth
    of the rows of every picture is held out, for validation and test.

    Args:
        paths: Pictures or folders, in place of ``shipped``: the photographs that scikit-image, scikit-learn and Matplotlib
            ship and whose licences allow it (docs/prior.md); ``[]``: drawn pictures alone.
        drawn: Number of drawn pictures (:func:`~drawing.draw_picture`); 0: photographs alone.
        noise: Standard deviation of noise that is added to the known samples, relative to the range; the truth has none.
        batch_size: Patches in a batch of all processes.
        seed: Seed of the drawn pictures and of the patches.
        samples: What the known samples are: every second, third or fourth sample (``points``), or means (``cells``).
    """

    task: ClassVar[str] = "patches"

    def __init__(
        self,
        paths: str | list[str] = "shipped",
        drawn: NonNegativeInt = 100,
        noise: ClosedUnitInterval = 0.0,
        batch_size: PositiveInt = 1024,
        seed: NonNegativeInt = 0,
        samples: Literal["points", "cells"] = "points",
    ) -> None:
        super().__init__()
        self.samples = samples
        self.paths = [paths] if isinstance(paths, str) else list(paths)
        self.drawn, self.noise = drawn, noise
        self.batch_size, self.seed = batch_size, seed
        if not self.paths and not drawn:
            raise InputError("PatchDataModule: there is no picture: give paths, or drawn above 0")

    @cached_property
    def pictures(self) -> dict[str, list[Picture]]:
        """The pictures by kind, ``photographs`` and ``drawn``."""
        pictures: dict[str, list[Picture]] = {}
        if self.paths:
            # the value of ``paths`` that stands for :data:`PHOTOGRAPHS`
            whole = shipped_photographs() if self.paths == ["shipped"] else self._own()
            small = [_halved(picture) for picture in whole]
            pictures["photographs"] = whole + [picture for picture in small if min(picture.shape[:2]) > self._smallest]
        if self.drawn:
            random = np.random.default_rng(self.seed)
            pictures["drawn"] = [draw_picture(random) for _ in range(self.drawn)]
        return pictures

    def _own(self) -> list[Picture]:
        pictures = []
        for name, values in read_pictures(self.paths):
            if min(values.shape[:2]) <= self._smallest:
                height, width = values.shape[:2]
                raise InputError(f"{name!r} is {height}x{width}; patches need more than {self._smallest} samples per axis")
            pictures.append(_bytes(values))
        return pictures

    @property
    def _smallest(self) -> int:
        """Samples of the largest patch along each axis."""
        return SAMPLES[self.samples].size * max(SAMPLES[self.samples].spacings)

    @property
    def sets(self) -> list[str]:
        """Names of the test sets: the kinds of pictures that have held-out rows."""
        return [kind for kind, pictures in self.pictures.items() if any(map(self._held_out_rows, pictures))]

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any picture."""
        digest = hashlib.sha256(f"{self.noise}{self.samples if self.samples == 'cells' else ''}".encode())
        for pictures in self.pictures.values():
            for picture in pictures:
                digest.update(f"{picture.shape};".encode() + np.ascontiguousarray(picture).tobytes())
        return digest.hexdigest()[:16]

    def prepare_data(self) -> None:
        _ = self.pictures

    @property
    def process(self) -> Process:
        return Process() if self.trainer is None else Process(self.trainer.global_rank, self.trainer.world_size)

    def _held_out_rows(self, picture: Picture) -> int:
        rows = len(picture) // HELD_OUT_SHARE
        return rows if rows >= MIN_HELD_OUT_ROWS else 0

    def train_dataloader(self) -> TrainLoader:
        planes = {
            kind: _Planes([picture[: len(picture) - self._held_out_rows(picture)] for picture in pictures])
            for kind, pictures in self.pictures.items()
        }
        return _PatchLoader(self, planes, self.process)

    def val_dataloader(self) -> _Batches:
        batches, samples = _Batches(), SAMPLES[self.samples]
        for number, kind in enumerate(self.sets):
            planes = _Planes([p[len(p) - rows :] for p in self.pictures[kind] if (rows := self._held_out_rows(p))])
            generator = torch.Generator().manual_seed(self.seed)
            for _ in range(4):
                patches, targets = planes.draw(2048, samples, 2, generator, by_contrast=False)
                batches.append({**samples.batch(2), "patches": patches, "targets": targets, "subset": number})
        return _Batches(batches[self.process.rank :: self.process.world_size])

    def test_dataloader(self) -> _Batches:
        return self.val_dataloader()


class PatchRegression(TrainedModule):
    """Trains the prior of :class:`~pe_fill.Local` and ``Adaptive``: predicts the samples between known ones of patches.

    The loss is the mean squared error at all samples of a cell and half a cell around it, weighted as cells are blended.
    Patches are drawn with a probability in proportion to their squared scale, by which their errors are divided: the
    expected loss of each kind of picture is in proportion to the mean over all its patches. The rate of Adam falls to zero
    as a half cosine. Scores are the PSNR of the samples between the known ones, in held-out rows of the pictures.

    Args:
        encoder: Encoder of the place within a cell; ``null``: five Gaussians (:class:`~pe_fill.networks.local.LocalPrior`).
        width: Units per hidden layer.
        depth: Number of hidden layers.
        activation: Name of the activation.
        lr: The highest learning rate.
    """

    may_differ: ClassVar[frozenset[str]] = frozenset({"lr"})
    content_key: ClassVar[str] = PRIOR_KEY
    content: ClassVar[str] = "trained prior"
    scorer: TaskScores

    def __init__(
        self,
        encoder: Described[Encoder] | None = None,
        width: PositiveInt = 192,
        depth: PositiveInt = 2,
        activation: str = "relu",
        lr: PositiveFloat = 3e-3,
    ) -> None:
        super().__init__()
        self.metric_name = "psnr"
        # plain numbers: the parser makes instances of the types, which a checkpoint cannot hold
        width, depth, self.lr = int(width), int(depth), float(lr)
        with torch.device("cpu"), torch.inference_mode(False), torch.enable_grad():
            self.prior = self._make_prior(encoder, width, depth, activation)
        self.scorer = TaskScores("psnr", 1)
        arguments = {"width": width, "depth": depth, "activation": activation, "lr": self.lr}
        self.save_arguments(**self._encoder_arguments(), **arguments)

    def _make_prior(self, encoder: Described[Encoder] | None, width: int, depth: int, activation: str) -> LocalPrior:
        return LocalPrior(encoder, width, depth, activation)

    def _encoder_arguments(self) -> dict[str, Any]:
        return {"encoder": self.prior.encoders[0].spec()}

    def configure_model(self) -> None:
        """Makes the scores for the DataModule's test sets."""
        if (trainer := trainer_of(self)) is None:
            return
        if (data := datamodule_of(trainer, PatchDataModule)) is None:
            raise InputError(f"{type(self).__name__} trains on patches: give the DataModule (--data PatchDataModule)")
        self.scorer = TaskScores("psnr", max(1, len(data.sets))).to(self.device)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint[PRIOR_KEY] = self.prior.spec()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self.prior.negated = prior_from(checkpoint[PRIOR_KEY]).negated

    def make_optimizer(self) -> tuple[torch.optim.Optimizer, LambdaLR, str]:
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr)
        schedule = warm_up_and_cosine(optimizer, LR_WARM_UP_STEPS, self.trainer.estimated_stepping_batches)
        return optimizer, schedule, "cosine"

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        weight = batch["weight"]
        errors = (self.prior(batch["patches"], batch["at"]) - batch["targets"]) / batch["scale"][:, None, None]
        errors = errors.square() * (weight / weight.sum())
        # processes average their gradients, and each has its share of the sum
        loss: Tensor = errors.sum() * (self.trainer.world_size / batch["total"])
        if self.logs_this_step:
            self.log_step({"train/loss": self.trainer.strategy.reduce(loss.detach().clone(), reduce_op="mean")})
        return loss

    def _add(self, metric: metrics.SignalMetric, batch: dict[str, Any]) -> None:
        predicted, count = self.prior(batch["patches"], batch["at"]), len(metric.count)
        sets = torch.arange(count, device=self.device) == (batch["subset"] if count > 1 else 0)
        shape = (count, *predicted.shape, 1)
        prediction, truth = (each[None, ..., None].expand(shape) for each in (predicted, batch["targets"]))
        metric.update(prediction, truth, sets[:, None, None, None] & batch["scored"].expand(shape[:-1]))

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        self._add(self.scorer.held_out, batch)

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        self._add(self.scorer.tested, batch)

    def describe(self) -> dict[str, Any]:
        data = datamodule_of(trainer_of(self), PatchDataModule)
        return {
            "model": type(self).__name__,
            "num_params": self.prior.num_params,
            "data_name": PatchDataModule.task,
            "signals": data.sets if data is not None and data.sets else ["data"],
            "encoder": self._encoder(),
            "learned": {},
            "optimizer": {"name": "Adam", "lr": self.lr, "schedule": "cosine"},
            "protocol": "held-out rows",
            "sampling": {"name": "grid"},
            "data_fingerprint": None if data is None else data.fingerprint,
        }

    def _encoder(self) -> dict[str, Any]:
        encoder = self.prior.encoders[0]
        return {"name": encoder.name, **encoder.resolved()}


class CellRegression(PatchRegression):
    """Trains the network that divides the cells of pictures: predicts means over parts of a cell from the cells around it.

    Patches are drawn, and the network is trained, as by :class:`PatchRegression`.

    Args:
        width: Units per hidden layer.
        depth: Number of hidden layers.
        activation: Name of the activation.
        lr: The highest learning rate.
    """

    def __init__(
        self, width: PositiveInt = 128, depth: PositiveInt = 2, activation: str = "relu", lr: PositiveFloat = 3e-3
    ) -> None:
        super().__init__(None, width, depth, activation, lr)

    def _make_prior(self, encoder: object, width: int, depth: int, activation: str) -> CellPrior:  # type: ignore[override]
        return CellPrior(SAMPLES["cells"].spacings, width, depth, activation)

    def _encoder_arguments(self) -> dict[str, Any]:
        return {}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Loads a network of the same shape."""
        TrainedModule.on_load_checkpoint(self, checkpoint)

    def _encoder(self) -> dict[str, Any]:
        return {"name": "cells"}


def main() -> int:
    """Trains one of the networks; the exit status of ``pe-lightning fit``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=["pictures", "cells"])
    parser.add_argument("paths", nargs="*", help="pictures or folders, in place of the photographs and drawn pictures")
    given, options = parser.parse_known_args()
    if given.paths:
        options = [f"--data.paths={as_yaml(given.paths)}", "--data.drawn=0", *options]
    return command(["fit", "--config", str(Path(__file__).with_name(f"prior_{given.network}.yaml")), *options])


if __name__ == "__main__":
    raise SystemExit(main())
