"""Functions of cells that measure encoders, untrained or trained, by :mod:`pe_papers.analysis`."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer, seed_everything
from numpy.typing import NDArray
from scipy.spatial import ConvexHull
from torch import Tensor

from pe_lightning.encoders import Encoder, LearnableFourier, registry, resolve
from pe_lightning.encodings import Complex, Encoding, Simple
from pe_lightning.evaluation import metrics
from pe_lightning.signals import RawSignals, Source, ValueRange, sample_coordinates
from pe_lightning.training import SignalDataModule, SimpleMLP
from pe_papers import analysis
from pe_papers.analysis.ranks import encoding_rank, layer_ranks
from pe_papers.tasks import LayoutDataModule, LayoutRelations

CORNERS = ((4, 4), (4, 57), (31, 31), (57, 4), (57, 57))
"""The positions of Li et al. 2021, Figs. 5 and 6, on a grid of 64 x 64."""


def stable_ranks(
    encoder: Mapping[str, Any], samples: int | Sequence[int], widths: Sequence[float | None] = (None,)
) -> dict[str, Any]:
    """Stable ranks for several numbers of positions and widths of the features, with their theoretical values.

    Args:
        encoder: Name and arguments.
        samples: Numbers of positions.
        widths: Widths of the encoder; ``None`` for the width of ``encoder``.
    """
    columns: dict[str, list[Any]] = {"positions": [], "width": [], "stable_rank": [], "theory": [], "deviation": []}
    for count, width in itertools.product([samples] if isinstance(samples, int) else samples, widths):
        sized = resolve(dict(encoder) if width is None else {**encoder, "width": width})
        measured, theory = analysis.encoder_rank(sized, analysis.positions(count)), analysis.rank_theory(sized, count)
        deviation = None if theory is None else abs(measured - theory) / theory
        for values, value in zip(columns.values(), (count, width, measured, theory, deviation), strict=True):
            values.append(value)
    return columns


def displacements(encoder: Mapping[str, Any], samples: int) -> dict[str, Any]:
    r"""The similarity of the middle position to all others, :math:`D(\Delta)/D(0)`, with its theoretical value."""
    resolved = resolve(dict(encoder))
    delta, measured = analysis.distance(resolved, samples)
    theory = analysis.distance_theory(resolved, delta)
    curves = {"delta": delta.tolist(), "distance": measured.tolist()}
    if theory is None:
        return curves
    return {**curves, "theory": theory.tolist(), "deviation": (measured - theory).abs().tolist()}


def singular_values(encoder: Mapping[str, Any], samples: int, scattered: bool = False, every: int = 1) -> dict[str, Any]:
    """Singular values relative to the largest, and the numerical rank.

    Args:
        encoder: Name and arguments.
        samples: Number of positions.
        scattered: Whether positions are drawn from [0, 1) instead of evenly spaced.
        every: Stride of the returned values.
    """
    resolved = resolve(dict(encoder))
    x = analysis.positions(samples)
    if scattered:
        x = torch.rand(samples, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    values = analysis.singular_values(resolved, x)
    shown = (values / values[0])[::every]
    # a logarithmic axis has no zero
    return {
        "number": list(range(1, samples + 1, every))[: len(shown)],
        "singular_value": shown.clamp_min(1e-17).tolist(),
        "numerical_rank": analysis.numerical_rank(values, max(samples, resolved.num_features)),
    }


class ScoreOfLast(Callback):
    """Reports ``psnr_of_last``: the mean of the held-out PSNR after each of the last steps of a fit.

    Args:
        steps: Number of steps.
    """

    def __init__(self, steps: int = 100) -> None:
        self.steps = steps
        self.scores: list[float] = []

    def next_step(self, trainer: Trainer) -> int:
        return max(trainer.global_step + 1, trainer.max_steps - self.steps + 1)

    @torch.no_grad()
    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.global_step > trainer.max_steps - self.steps:
            assert isinstance(pl_module, SimpleMLP)
            batch = trainer.datamodule.evaluation_batch()  # type: ignore[attr-defined]
            metric = metrics.create("psnr", len(batch.values)).to(pl_module.device)
            metric.update(pl_module.predict_grid(batch.axes), batch.values, batch.mask)
            self.scores.append(metric.per_signal().mean().item())

    def report(self) -> dict[str, float]:
        return {"psnr_of_last": sum(self.scores) / len(self.scores)} if self.scores else {}


class NormalSignals(Source):
    """Standard normal numbers as signals, also outside of [0, 1].

    Args:
        shape: ``(S, N_1, ..., N_D, C)``.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = shape

    def read(self) -> RawSignals:
        values = torch.randn(*self.shape, generator=torch.Generator().manual_seed(0)).numpy()
        return RawSignals.in_memory(values, [f"normal{n}" for n in range(len(values))], ValueRange("float32"))


class _Ranks(Callback):
    def __init__(self, coords: Tensor, rank: float, every: int) -> None:
        self.coords, self.rank, self.every = coords, rank, every
        self.rows: list[tuple[int, str, float, float]] = []

    def next_step(self, trainer: Trainer) -> int:
        return trainer.global_step + self.every - trainer.global_step % self.every if trainer.global_step else 1

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        assert isinstance(pl_module, SimpleMLP)
        step = trainer.global_step
        if step == 1 or step % self.every == 0:
            psnr = pl_module.batch_psnr.item()
            ranks = {"features": self.rank, **layer_ranks(pl_module, self.coords.to(pl_module.device))}
            self.rows += [(step, layer, rank, psnr) for layer, rank in ranks.items()]


def ranks_in_training(
    data: SignalDataModule,
    encoder: Mapping[str, Any],
    steps: int,
    learning_rate: float,
    random: bool = False,
    every: int = 100,
    depth: int = 4,
    width: int = 256,
) -> dict[str, Any]:
    """Stable rank of the features and of every hidden layer of an MLP, and its training PSNR, against steps.

    The features are not normalised, as in the authors' program.

    Args:
        data: The signals.
        encoder: Name and arguments.
        steps: Optimiser steps.
        learning_rate: Learning rate of Adam.
        random: Whether to fit normally distributed noise of the same size instead of the signals.
        every: Steps between two measurements.
        depth: Number of hidden layers.
        width: Units per hidden layer.
    """
    if random:
        shape = (data.info.num_signals, *data.info.grid, data.info.channels)
        data = SignalDataModule(NormalSignals(shape), sampling=data.sampling, batching=data.batching)
    module = _module(encoder, learning_rate, depth, width, normalize=False)
    module.build_from(data)
    batch = data.train_batch()
    coords = sample_coordinates(batch, 2048)
    callback = _Ranks(coords, encoding_rank(module, batch, coords), every)
    _fit(module, data, steps, [callback])
    return dict(
        zip(("step", "layer", "stable_rank", "train_psnr"), map(list, zip(*callback.rows, strict=True)), strict=True)
    )


def similarity_maps(
    data: SignalDataModule, encoder: Mapping[str, Any], steps: int, learning_rate: float, positions: int = 64
) -> dict[str, Any]:
    """Similarity of five positions to all others, after fitting a picture with an encoder below an MLP.

    Args:
        data: A picture.
        encoder: Name and arguments. For an encoder with an MLP, the features below it are compared, as in the paper.
        steps: Optimiser steps; 0 for the untrained encoder.
        learning_rate: Learning rate of Adam.
        positions: Positions per axis.

    Returns:
        ``image``: the five maps, placed like their positions, each scaled from its minimum (0) to its maximum (1).

    Reference: Li et al. 2021, Figs. 5 to 10 and 15.
    """
    module = _module(encoder, learning_rate)
    module.build_from(data)
    _fit(module, data, steps, [])
    return {"image": _corner_maps(analysis.encoding_of(module), positions)}


def layout_similarity_maps(
    encoder: Mapping[str, Any], steps: int, num_train: int = 16384, positions: int = 32
) -> dict[str, Any]:
    """Similarity of five upper left corners of boxes to all others, after training on layout relations.

    Args:
        encoder: Name and arguments. Boxes are (left, top, right, bottom), with lower right corners in the middle.
        steps: Optimiser steps; 0 for the untrained encoder.
        num_train: Number of training scenes.
        positions: Positions per axis.

    Returns:
        ``image`` as in :func:`similarity_maps`, with a row per top and a column per left coordinate.

    Reference: Li et al. 2021, Figs. 11 and 12.
    """
    learned = _layout_encoder(encoder, steps, num_train)
    return {"image": np.array(_corner_maps(learned, positions, lower_right=(0.5, 0.5))).T.tolist()}


def layout_weights(encoder: Mapping[str, Any], steps: int, num_train: int = 16384) -> dict[str, Any]:
    """Histogram of ``W_r`` of learnable Fourier features, after training on layout relations.

    Args:
        encoder: Name and arguments.
        steps: Optimiser steps; 0 for the untrained encoder.
        num_train: Number of training scenes.

    Reference: Li et al. 2021, Fig. 13.
    """
    learned = _layout_encoder(encoder, steps, num_train)
    assert isinstance(learned, LearnableFourier)
    return analysis.weight_histogram(learned)


def _layout_encoder(encoder: Mapping[str, Any], steps: int, num_train: int) -> Encoder | Simple:
    seed_everything(0, verbose=False)
    task, data = LayoutRelations(resolve(dict(encoder)), combine="concat"), LayoutDataModule(num_train, num_test=64)
    task.build(data.info)
    _fit(task, data, steps, [], gradient_clip_val=1.0)
    assert task.encoder is not None
    return task.encoder.cpu()


def direction_map(encoder: Mapping[str, Any], layout: str, positions: int = 64) -> dict[str, Any]:
    """Similarity of the middle of a square to all other positions, for a layout of directions.

    Args:
        encoder: Name and arguments.
        layout: Layout of the simple encoding, or ``grid`` for the complex encoding.
        positions: Positions per axis.

    Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Fig. 11 (right).
    """
    resolved = resolve(dict(encoder))
    encoding = Complex(resolved, 2) if layout == "grid" else Simple(resolved, 2, layout)  # type: ignore[arg-type]
    similarity = analysis.similarity(encoding, (0.5, 0.5), [analysis.positions(positions)] * 2)
    return {"image": _scaled(similarity).tolist()}


def layout_hull(subset: str, num_test: int = 1024, shown: int = 200) -> dict[str, Any]:
    """Boxes of a test set of layout relations, projected on the principal plane of the training boxes, and their hull.

    Args:
        subset: The test set.
        num_test: Number of its scenes.
        shown: Number of boxes whose position is returned.

    Returns:
        ``points`` and ``hull``, each two lists of coordinates: some boxes, and the convex hull of the projected training
        boxes; ``inside``, the share of all boxes that lie in the convex hull of the training boxes in four dimensions.

    Reference: Li et al. 2021, Fig. 16 and App. E.
    """
    examples = LayoutDataModule(num_test=num_test).examples
    trained, boxes = (np.unique(examples[name]["positions"].flatten(0, 1).numpy(), axis=0) for name in ("train", subset))
    # of each facet the outward normal and its offset
    facets = ConvexHull(trained).equations
    inside = (boxes @ facets[:, :-1].T + facets[:, -1] <= 1e-9).all(1)
    middle = trained.mean(0)
    plane = np.linalg.svd(trained - middle, full_matrices=False)[2][:2].T
    edge = ConvexHull((trained - middle) @ plane)
    hull = edge.points[[*edge.vertices, edge.vertices[0]]]
    drawn = np.random.default_rng(0).choice(boxes, min(shown, len(boxes)), replace=False)
    x, y = ((drawn - middle) @ plane).T.tolist()
    return {"points": [x, y], "hull": hull.T.tolist(), "inside": float(inside.mean())}


def _corner_maps(encoding: Encoder | Encoding, positions: int, lower_right: Sequence[float] = ()) -> list[list[Any]]:
    """The maps of four corners and the middle in one image, with empty gaps between them."""
    encoding = analysis.without_mlp(encoding)
    axes = [analysis.positions(positions)] * 2 + [torch.tensor([value], dtype=torch.float64) for value in lower_right]
    image = np.full((3 * positions + 4, 3 * positions + 4), None)
    for (row, column), cell in zip(CORNERS, ((0, 0), (0, 2), (1, 1), (2, 0), (2, 2)), strict=True):
        similarity = analysis.similarity(encoding, (row / 64, column / 64, *lower_right), axes)
        top, left = (index * (positions + 2) for index in cell)
        image[top : top + positions, left : left + positions] = _scaled(similarity.reshape(positions, positions))
    return image.tolist()


def _scaled(similarity: Tensor) -> NDArray[np.float64]:
    low, high = similarity.aminmax()
    scaled: NDArray[np.float64] = ((similarity - low) / (high - low).clamp_min(1e-12)).double().numpy()
    return np.round(scaled, 3)


class Coordinate(Encoder):
    """The coordinate itself, in [0, 1]: no encoding in the authors' program of Zheng et al. 2021, Fig. 8."""

    normalizable = False

    def __init__(self) -> None:
        super().__init__(num_features=1)

    def forward(self, x: Tensor) -> Tensor:
        return x[..., None]


def _module(
    encoder: Mapping[str, Any], learning_rate: float, depth: int = 2, width: int = 128, normalize: bool = True
) -> SimpleMLP:
    seed_everything(0, verbose=False)
    arguments = dict(encoder)
    resolved = registry.create(arguments.pop("name"), **arguments)
    return SimpleMLP(
        resolved,
        depth,
        width,
        normalize=normalize,
        optimizer=lambda p: torch.optim.Adam(p, lr=learning_rate, weight_decay=1e-8),
    )


def _fit(module: LightningModule, data: LightningDataModule, steps: int, callbacks: list[Callback], **options: Any) -> None:
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, **options}
    logging.disable(logging.INFO)  # messages of Lightning about every fit
    try:
        trainer = Trainer(max_steps=steps, callbacks=callbacks, enable_model_summary=False, limit_val_batches=0, **quiet)
        trainer.fit(module, data)
    finally:
        logging.disable(logging.NOTSET)
    module.cpu()
