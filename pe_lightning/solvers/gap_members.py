"""Methods that predict missing samples: the members of a mixture (:mod:`~pe_lightning.solvers.gap_mixture`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock

import torch
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from pe_lightning.encodings.bank import AnisotropicKernels
from pe_lightning.solvers.adaptive_points import NUM_NEIGHBOURS, RIDGE, AdaptivePoints
from pe_lightning.solvers.autoregressive import autoregressive
from pe_lightning.solvers.local_fourier import SETTINGS, FourierSettings, local_fourier
from pe_lightning.solvers.patch_mixture import SIDE, PatchSettings, fill_patches, shipped_patches

DENSE_SHARE = 0.5
"""Share of missing samples from which most blocks and patches have some: these are larger then, and fewer."""
DENSE_FOURIER, DENSE_PATCHES = FourierSettings(8, 32, 0.75, 1.0, (20, 50)), PatchSettings(stride=3)
LONG_FOURIER = {**SETTINGS, 2: FourierSettings(4, 32, 0.75, 1.0, (40,))}
"""Windows of the Fourier fits, by number of axes: of pictures one pass, half of the time for 0.1 dB less beside patches."""
SHORT_FOURIER = {
    1: FourierSettings(4, 32, 0.85, 1.0, (15, 25)),
    2: FourierSettings(4, 16, 0.75, 1.0, (20, 30)),
    3: FourierSettings(4, 8, 0.6, 1.0, (20, 30)),
}
"""Short windows, by number of axes."""
NEAR = 8.0
"""Distance from wanted samples, in samples, of the known samples that the adaptive fit takes."""
MAX_ADAPTIVE = {1: 1 << 18, 2: 1 << 12, 3: 0}
"""Known samples near gaps up to which the adaptive fit is a member by default, by number of axes."""
MAX_BIHARMONIC = 1 << 16
"""Missing samples up to which the biharmonic equation is a member by default."""
BANK_ANGLES, BANK_ASPECTS, BANK_WINDOW = 12, (2.0, 6.0), 0.8
"""The bank of the adaptive fit and the window of its errors: those of the model ``Adaptive``."""


@dataclass
class Gaps:
    """One signal with missing samples.

    Args:
        values: ``(N_1, ..., N_D, C)``, zero at missing samples.
        known: Which samples are known, ``(N_1, ..., N_D)`` booleans.
        wanted: Missing samples to predict, ``(N_1, ..., N_D)`` booleans.
        periodic: Which axes are periodic; none by default.
    """

    values: Tensor
    known: Tensor
    wanted: Tensor
    periodic: Sequence[bool] = ()
    _short: Tensor | None = field(default=None, init=False, repr=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    @property
    def dense(self) -> bool:
        """Whether this is a picture most of which is missing."""
        return self.known.ndim == 2 and float(self.known.float().mean()) < 1 - DENSE_SHARE

    def short_fourier(self) -> Tensor:
        """The sparse local Fourier fit in short windows, ``(N_1, ..., N_D, C)``; computed once for several threads."""
        with self._lock:
            if self._short is None:
                self._short = self.fourier(SHORT_FOURIER[self.known.ndim])
            return self._short

    def fourier(self, settings: FourierSettings) -> Tensor:
        """A sparse local Fourier fit, ``(N_1, ..., N_D, C)``."""
        return local_fourier(self.values, self.known, wanted=self.wanted, periodic=self.periodic, settings=settings)


Member = Callable[[Gaps], Tensor]
"""Values ``(N_1, ..., N_D, C)`` with at least the wanted samples predicted."""


def _fourier(gaps: Gaps) -> Tensor:
    return gaps.fourier(DENSE_FOURIER if gaps.dense else LONG_FOURIER[gaps.known.ndim])


def _patches(gaps: Gaps) -> Tensor:
    settings = DENSE_PATCHES if gaps.dense else PatchSettings()
    return fill_patches(gaps.short_fourier(), gaps.known, gaps.wanted, shipped_patches(), settings)


def _adaptive(gaps: Gaps) -> Tensor:
    known, axes = gaps.known, gaps.known.ndim
    near = known & (_distance_to(gaps.wanted) <= NEAR)
    if int(near.sum()) < 2 * NUM_NEIGHBOURS[axes - 1]:
        near = known
    bank = AnisotropicKernels("laplace", axes, *((BANK_ANGLES, BANK_ASPECTS) if axes > 1 else (0, ())))
    size, periodic = torch.tensor(known.shape, device=known.device), tuple(gaps.periodic)
    field = AdaptivePoints(
        bank, gaps.values[near], near.nonzero() / size, known.shape, BANK_WINDOW, RIDGE, periodic=periodic
    )
    found = gaps.values.clone()
    found[gaps.wanted] = field.at(gaps.wanted.nonzero() / size).to(found)
    return found


def _biharmonic(gaps: Gaps) -> Tensor:
    from skimage.restoration import inpaint_biharmonic  # takes a while, and not every fit needs it

    given, missing = gaps.values.cpu().double().numpy(), (~gaps.known).cpu().numpy()
    found = inpaint_biharmonic(given, missing, channel_axis=-1, split_into_regions=True)
    return torch.from_numpy(found).to(gaps.values)


def _neighbours(gaps: Gaps) -> Tensor:
    """Linear interpolation along the first axis, between frames."""
    values, known = gaps.values, gaps.known
    number = torch.arange(len(known), device=known.device).reshape(-1, *[1] * (known.ndim - 1)).expand(known.shape)
    before = torch.where(known, number, -1).cummax(0).values
    after = torch.where(known, number, len(known)).flip(0).cummin(0).values.flip(0)
    left = torch.where(before < 0, after, before).clamp(0, len(known) - 1)
    right = torch.where(after >= len(known), before, after).clamp(0, len(known) - 1)
    share = ((number - left) / (right - left).clamp_min(1)).clamp(0, 1).to(values)[..., None]
    low, high = (values.gather(0, at[..., None].expand_as(values)) for at in (left, right))
    found = low.lerp(high, share)
    never = (before < 0) & (after >= len(known))
    return torch.where(never[..., None], values[known].mean(0), found)


MEMBERS: dict[str, Member] = {
    "adaptive": _adaptive,
    "autoregressive": lambda gaps: autoregressive(gaps.values, gaps.known)[0],
    "biharmonic": _biharmonic,
    "fourier": _fourier,
    "fourier_short": Gaps.short_fourier,
    "neighbours": _neighbours,
    "patches": _patches,
}
"""Members by name."""


def default_members(known: Tensor) -> list[str]:
    """Members for a signal: Fourier fits, and those that apply to its axes and numbers of samples."""
    axes, missing = known.ndim, ~known
    names = ["fourier", "fourier_short"]
    if int((known & (_distance_to(missing) <= NEAR)).sum()) <= MAX_ADAPTIVE[axes]:
        names.append("adaptive")
    if axes == 1:
        names.append("autoregressive")
    if axes == 2 and min(known.shape) >= SIDE:
        names.append("patches")
    if axes == 2 and int(missing.sum()) <= MAX_BIHARMONIC:
        names.append("biharmonic")
    if axes != 2:
        names.append("neighbours")
    return sorted(names)


def _distance_to(wanted: Tensor) -> Tensor:
    """Distance of every sample from the wanted ones, in samples."""
    return torch.from_numpy(distance_transform_edt(~wanted.cpu().numpy())).to(wanted.device)
