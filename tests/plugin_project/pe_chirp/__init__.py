"""A class for each registry of pe_lightning, a verb, hints, recipes: what ``pip install pe-chirp`` adds to commands."""

import math
from pathlib import Path

import torch
from lightning.pytorch import Callback

from pe_lightning.encoders import Encoder
from pe_lightning.estimators import Estimator, FitReport, FittedField, Variant
from pe_lightning.evaluation.baselines import Interpolation
from pe_lightning.evaluation.metrics import SignalMetric
from pe_lightning.hints import Hints
from pe_lightning.networks import Activation
from pe_lightning.registry import Description
from pe_lightning.signals import PointSplit, Sampling
from pe_lightning.signals.batches import GridBatch, SignalInfo
from pe_lightning.signals.raw import RawSignals, ValueRange
from pe_lightning.signals.sources import Source
from pe_lightning.signals.split_signals import Signals
from pe_lightning.training import SignalDataModule, SimpleMLP

RECIPES = Path(__file__).parent / "recipes"
"""The folder of ``chirp/image.yaml``, which ``--config chirp/image`` names."""
HINTS = Hints({"speeds": (("", "pe-lightning rates 3"),)}, {"": ("pe-lightning rates 3",)})
"""What ``pe-lightning speeds`` answers, and a line of the help."""


def rates(count: int, /, *, scale: float = 1.0) -> None:
    """Prints the rates of chirps.

    Args:
        count: Number of chirps.
        scale: Factor of the rates.
    """
    print(*(scale * rate for rate in range(count)))


class Chirp(Encoder):
    """Waves whose frequency grows along the axis: ``cos(pi i x^2)``, ``i = 0 .. K-1``.

    Args:
        num_features: Number of chirps ``K``.
    """

    formula = "cos(π i x²)"

    def __init__(self, num_features: int = 256) -> None:
        super().__init__(num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(*batch,)`` in [0, 1] -> ``(*batch, num_features)``."""
        rates = torch.arange(self.num_features, dtype=x.dtype, device=x.device)
        return torch.cos(math.pi * rates * x[..., None] ** 2)


class ChirpMLP(SimpleMLP):
    """A perceptron of its own name."""


class Sinc(Activation):
    """A sine that decays."""

    formula = "sin(π z) / (π z)"

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """``(*batch,)`` -> ``(*batch,)``."""
        return torch.sinc(z)


class Dice(SignalMetric):
    """Twice the intersection of the values above 0.5, over the sum of both sizes."""

    sums = ("both", "sizes")

    def terms(self, prediction: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Values above 0.5 in both, and in each."""
        inside = prediction > 0.5
        return inside & (target > 0.5), inside.float() + (target > 0.5).float()

    def compute(self) -> torch.Tensor:
        """One value per signal."""
        return torch.where(self.count > 0, 2 * self.both / self.sizes.clamp_min(1), torch.nan)


class Ball(Source):
    """Occupancy of a ball: 1 inside and 0 outside, scored by the Dice coefficient.

    Args:
        size: Samples per axis.
        radius: Of the ball, in units of the [0, 1] domain.
    """

    metric = "dice"

    def __init__(self, size: int = 16, radius: float = 0.3) -> None:
        self.size = size
        self.radius = radius

    def read(self) -> RawSignals:
        """One signal of three axes."""
        axis = torch.arange(self.size) / self.size - 0.5
        distance = torch.linalg.vector_norm(torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij")), dim=0)
        inside = (distance < self.radius).float().numpy()[None, ..., None]
        return RawSignals.in_memory(inside, ["ball"], ValueRange("uint8", (0.0,), (1.0,)))


class BallDataModule(SignalDataModule):
    """A ball.

    Args:
        size: Samples per axis.
        sampling: Which samples are trained on.
    """

    def __init__(self, size: int = 16, sampling: Sampling | str | Description = "checkerboard") -> None:
        super().__init__(Ball(size), sampling)


class Checkerboard(Sampling):
    """Samples whose indices add up to an even number.

    Args:
        odd: Whether the sum is odd instead.
    """

    def __init__(self, odd: bool = False) -> None:
        self.odd = odd

    def split(self, grid: tuple[int, ...], num_signals: int) -> PointSplit:
        """The same samples for all signals."""
        total = sum(torch.meshgrid(*(torch.arange(n) for n in grid), indexing="ij"))
        return PointSplit(tuple(grid), (total % 2 == self.odd).flatten().nonzero().T)


class Average(Interpolation):
    """The mean of the training samples, everywhere."""

    on_points = True

    def from_points(self, values: torch.Tensor, coords: torch.Tensor, axes: list[torch.Tensor]) -> torch.Tensor:
        """``(S, P, C)`` -> ``(S, N_1, ..., N_D, C)``."""
        shape = (len(values), *[1] * len(axes), values.shape[-1])
        return values.mean(1).reshape(shape).expand(len(values), *map(len, axes), values.shape[-1])


class StepCounter(Callback):
    """Reports the number of training steps in ``metrics.json``."""

    steps = 0

    def on_train_batch_end(self, *_: object) -> None:
        """Counts."""
        self.steps += 1

    def report(self) -> dict[str, int]:
        """Entries of ``metrics.json``."""
        return {"counted_steps": self.steps}


class NearestField(FittedField):
    """The value of the nearest sample.

    Args:
        values: Samples ``(S, P, C)``.
        coords: Their coordinates ``(P, D)``.
    """

    def __init__(self, values: torch.Tensor, coords: torch.Tensor) -> None:
        super().__init__("Nearest", FitReport("nearest"), values.device, coords.shape[-1])
        self.values, self.coords = values, coords

    def evaluate(self, points: torch.Tensor) -> torch.Tensor:
        """``(P, D)`` -> ``(S, P, C)``."""
        return self.values[:, torch.cdist(points.to(self.coords), self.coords).argmin(1)]

    def grid(self, axes: list[torch.Tensor]) -> torch.Tensor:
        """``D`` vectors -> ``(S, n_1, ..., n_D, C)``."""
        found = self.evaluate(torch.cartesian_prod(*axes).reshape(-1, len(axes)).to(self.device))
        return found.reshape(len(found), *map(len, axes), -1)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The samples."""
        return {"values": self.values, "coords": self.coords[None]}


class Nearest(Estimator):
    """Predicts the value of the nearest sample.

    Args:
        thinning: Keeps one sample of so many.
    """

    variants = (Variant("Nearest", {}, "Nearest: the value of the nearest sample."),)

    def __init__(self, thinning: int = 1) -> None:
        self.thinning = thinning

    def fit(self, train: Signals, device: torch.device | None = None) -> NearestField:
        """Keeps the samples."""
        batch = train.train_batch()
        coords = torch.cartesian_prod(*batch.axes) if isinstance(batch, GridBatch) else batch.coords[0]
        values = batch.values.flatten(1, -2)
        return NearestField(values[:, :: self.thinning].to(device), coords[:: self.thinning].to(device))

    def restore(self, state: dict[str, torch.Tensor], info: SignalInfo, device: torch.device) -> NearestField:
        """From the samples."""
        return NearestField(state["values"].to(device), state["coords"][0].to(device))
