r"""An encoder measured on a grid of positions, beside what theory says of it.

The coordinate of position ``i`` of ``N`` is ``i/N``. Features are computed in float64, with dropout off. An encoder of
several axes is measured along its first, the other coordinates at 1/2.

Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561 (R), §3-4 and App. A; Zheng et al., *Trading
Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022 (T), §4 and Fig. 9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from scipy.linalg import svd
from torch import Tensor

from pe_lightning.encoders import Encoder, EncoderLike, LearnableFourier, Samples, automatic, for_data, resolve
from pe_lightning.encodings import encoder_rank, evaluating
from pe_lightning.errors import InputError

MAX_SAMPLES = 4096
"""Most positions, and most features, of a report: it takes all singular values, ``O(N K min(N, K))``."""
THRESHOLD = 10**-1.6
"""Similarity, relative to that at zero, down to which a distance counts as preserved: R §5.2 has ``k = 1.6``."""


def positions(samples: int) -> Tensor:
    """The coordinates ``i/N``, float64 ``(samples,)``."""
    return torch.arange(samples, dtype=torch.float64) / samples


def features(encoder: Encoder, x: Tensor) -> Tensor:
    """The features of coordinates ``(N,)``, as they are at evaluation, ``(N, K)``."""
    with evaluating(encoder):
        result: Tensor = encoder(_points(encoder, x, 0.5))
    return result


def distance(encoder: Encoder, samples: int) -> tuple[Tensor, Tensor]:
    r"""The similarity :math:`D(\Delta) = \psi(x) \cdot \psi(x + \Delta)` of the middle position to all others, over D(0).

    Returns:
        :math:`\Delta` from -1/2 to below 1/2 in steps of 1/N, and :math:`D(\Delta)/D(0)`, ``(samples,)`` each; zero
        everywhere if the middle has no features.

    Reference: R Eq. 6.
    """
    x = positions(samples)
    rows, middle = features(encoder, x), samples // 2
    products = rows @ rows[middle]
    return x - x[middle], products / (products[middle] if products[middle] > 0 else 1.0)


@torch.no_grad()
def distance_theory(encoder: Encoder, delta: Tensor) -> Tensor | None:
    r"""The encoder's closed form of :math:`D(\Delta)/D(0)` for ``delta`` ``(N,)``, or ``None`` if it has none."""
    try:
        similarity, zero = (
            encoder.distance(_points(encoder, delta, 0.0)),
            encoder.distance(_points(encoder, delta[:1] * 0, 0.0)),
        )
    except NotImplementedError:
        return None
    return similarity / zero


def singular_values(encoder: Encoder, x: Tensor) -> Tensor:
    """Of the features of coordinates ``(N,)``, largest first, ``(min(N, K),)``.

    Reference: T Fig. 9.
    """
    # by QR iterations: divide and conquer can fail to converge on Fourier features
    return torch.from_numpy(svd(features(encoder, x).numpy(), compute_uv=False, lapack_driver="gesvd"))


def numerical_rank(values: Tensor, size: int) -> int:
    """How many of a matrix's singular values are more than rounding, ``size`` being its larger dimension."""
    return int((values > values[0] * size * torch.finfo(torch.float64).eps).sum())


def condition_number(values: Tensor, size: int) -> float:
    """Of the Gram matrix of features, of the smaller size: the largest by the least squared singular value.

    Infinite where the features are linearly dependent to rounding (:func:`numerical_rank`).
    """
    return (values[0] / values[-1]).square().item() if 0 < len(values) == numerical_rank(values, size) else math.inf


def spectrum(delta: Tensor, similarity: Tensor) -> tuple[Tensor, Tensor]:
    r"""The Fourier transform of :math:`D(\Delta)`: how strongly features hold each frequency, the largest being 1.

    For shifted features it is the squared transform of the bump, and their squared singular values where they cover the
    axis as a circle (R Eqs. 11-12, 15).

    Args:
        delta: Displacements of :func:`distance`, ``(N,)``.
        similarity: :math:`D`, measured or of theory, ``(N,)``.

    Returns:
        Frequencies in periods per unit length and their power, ``(N // 2 + 1,)`` each.
    """
    power = torch.fft.rfft(similarity.roll(-(len(delta) // 2))).real
    return torch.arange(len(power), dtype=torch.float64), power / max(power.max().item(), 1e-300)


def preservation(delta: Tensor, similarity: Tensor, threshold: float = THRESHOLD) -> dict[str, float | None]:
    r"""How well :math:`D` tells displacements apart.

    - ``correlation``: of :math:`D(\Delta)` with :math:`-|\Delta|`, for :math:`|\Delta| \le 1/2`. Ideal distances are
      proportional (R Eq. 5): 1 for the square wave of half a period, near 0 for an impulse. ``None`` for a constant ``D``.
    - ``interval``: the largest ``l`` so that :math:`D(\Delta) \ge` ``threshold`` :math:`D(0)` for all
      :math:`|\Delta| \le l`, at most 1/2: over it "the distance is preserved" (R App. A after Eq. 14).

    Args:
        delta: Displacements of :func:`distance`, ``(N,)``.
        similarity: :math:`D(\Delta)/D(0)`, measured or of theory, ``(N,)``.
        threshold: :math:`10^{-k}`.
    """
    varies = bool((similarity - similarity.mean()).abs().max() > 1e-9)
    correlation = -torch.corrcoef(torch.stack([delta.abs(), similarity]))[0, 1].item() if varies else None
    middle = len(delta) // 2
    both = torch.minimum(
        *(side[: (len(delta) + 1) // 2] for side in (similarity[middle:], similarity[: middle + 1].flip(0)))
    )
    below = torch.nonzero(both < threshold).flatten().tolist()
    steps: float = below[0] if below else len(both) - 1
    if below and below[0]:  # linear between the last value above and the first below
        above, under = both[below[0] - 1].item(), both[below[0]].item()
        steps = below[0] - 1 + (above - threshold) / (above - under)
    return {"correlation": correlation, "interval": steps / len(delta)}


def spread(encoder: Encoder, samples: int) -> float | None:
    r"""How much the similarity depends on the position, and not on the displacement alone.

    The root mean square over all pairs of positions at most 1/2 apart of :math:`\psi(x) \cdot \psi(x + \Delta) -
    D(\Delta)`, :math:`D` from the middle position (:func:`distance`), divided by :math:`D(0)`. Zero for Fourier features;
    shifted ones lose a part of each bump at both ends. ``None`` if the middle has no features.

    Reference: "irrespective of the absolute position", R §3.3.
    """
    rows, middle = features(encoder, positions(samples)), samples // 2
    products = rows @ rows.mT
    if products[middle, middle] <= 0:
        return None
    index = torch.arange(samples)
    apart = index - index[:, None] + middle
    pairs = (apart >= 0) & (apart < samples)
    errors = products[pairs] - products[middle][apart[pairs]]
    return errors.square().mean().sqrt().item() / products[middle, middle].item()


def rank_curve(encoder: Encoder, counts: Sequence[int]) -> dict[str, list[float] | None]:
    """The stable rank of the same features at more and more positions, ``measured`` and by ``theory``.

    Reference: R Figs. 2-4.
    """
    theory = [rank_theory(encoder, count) for count in counts]
    return {
        "measured": [encoder_rank(encoder, _points(encoder, positions(count), 0.5)) for count in counts],
        "theory": None if None in theory else theory,  # type: ignore[dict-item]
    }


def rank_theory(encoder: Encoder, samples: int) -> float | None:
    """The encoder's closed form of the stable rank, or ``None`` if it has none."""
    try:
        return encoder.stable_rank(samples)
    except NotImplementedError:
        return None


def weight_histogram(encoder: LearnableFourier) -> dict[str, Any]:
    """Histogram of the weights ``W_r`` of learnable Fourier features in units of 1/γ, their standard deviation at first.

    Returns:
        ``weight``, the middles of the bins; ``density``; ``mean`` and ``std`` of the weights.

    Reference: Li et al., *Learnable Fourier Features*, NeurIPS 2021, Fig. 13.
    """
    weights = (encoder.frequencies.detach().cpu().double() * encoder.gamma).flatten()
    limit = max(4.0, weights.abs().max().item())
    # of a histogram of weights
    density, edges = torch.histogram(weights, 20, range=(-limit, limit), density=True)
    std, mean = torch.std_mean(weights, correction=0)
    middles = (edges[1:] + edges[:-1]) / 2
    return {"weight": middles.tolist(), "density": density.tolist(), "mean": mean.item(), "std": std.item()}


def analyze(encoder: EncoderLike, samples: int = 512, label: str | None = None) -> dict[str, Any]:
    r"""All measures of one encoder, as plain numbers and lists that JSON can hold.

    Args:
        encoder: An encoder, measured as it is; or its name or description, then made for the samples as a fit makes it:
            ``num_features: auto`` is one feature per sample, widths follow their distance.
        samples: Number ``N`` of positions.
        label: Its name in tables and figures; by default the registered name and the arguments that were given.

    Returns:
        ``label``, ``encoder`` (name and arguments in force), ``samples``, ``num_features``; ``stable_rank``,
        ``distance``, ``spectrum``, ``correlation`` and ``interval`` as ``{"measured": ..., "theory": ...}``, theory ``None``
        where the encoder declares none; ``deviation`` of measurement from theory: ``stable_rank`` relative, ``distance``
        the largest over all displacements, relative to :math:`D(0)`; ``numerical_rank``; ``condition`` of the Gram matrix,
        ``None`` if infinite; ``spread``, ``None`` if the middle has no features; ``singular_values``, relative to the
        largest; ``rank_curve`` with ``counts``; ``delta`` and ``frequencies``, the axes of ``distance`` and ``spectrum``;
        ``features``, some at all ``positions``; ``weights``, the :func:`weight_histogram` of ``lff``, ``None`` of others.

    Example:
        >>> report = analyze({"name": "gau", "num_features": 256, "sigma": 0.01}, samples=256)
        >>> {key: round(value, 1) for key, value in report["stable_rank"].items()}
        {'measured': 28.1, 'theory': 28.2}
    """
    if not 4 <= samples <= MAX_SAMPLES:
        raise InputError(f"analyze: samples must be from 4 to {MAX_SAMPLES} (encoder_rank takes more); got {samples}")
    sized = resolve(encoder)
    name = label or label_of(sized)
    if automatic(sized):
        raise InputError(
            f"{sized.name!r}: {automatic(sized)} 'auto' is chosen by a solver, on data; give a number, or leave it"
        )
    if not isinstance(encoder, Encoder):
        sized = for_data(sized, Samples((float(samples),) * sized.num_axes))
    if sized.num_features > MAX_SAMPLES:
        raise InputError(f"{sized.name!r}: analyze takes at most {MAX_SAMPLES} features, got {sized.num_features}")
    x, size = positions(samples), max(samples, sized.num_features)
    delta, measured = distance(sized, samples)
    theory = distance_theory(sized, delta)
    frequencies, power = spectrum(delta, measured)
    values = singular_values(sized, x)
    rank, rank_by_theory = (values / values[0]).square().sum().item() if values[0] > 0 else 0.0, rank_theory(sized, samples)
    condition = condition_number(values, size)
    kept, by_theory = preservation(delta, measured), None if theory is None else preservation(delta, theory)
    counts = sorted({round(samples ** (step / 12)) for step in range(2, 13)})
    # features that a report holds one by one
    shown = torch.linspace(0, sized.num_features - 1, min(8, sized.num_features)).long()
    return {
        "label": name,
        "encoder": {"name": sized.name, **sized.resolved()},
        "samples": samples,
        "num_features": sized.num_features,
        "stable_rank": {"measured": rank, "theory": rank_by_theory},
        "distance": {"measured": measured.tolist(), "theory": None if theory is None else theory.tolist()},
        "spectrum": {"measured": power.tolist(), "theory": None if theory is None else spectrum(delta, theory)[1].tolist()},
        **{key: {"measured": value, "theory": None if by_theory is None else by_theory[key]} for key, value in kept.items()},
        "deviation": {
            "stable_rank": None if rank_by_theory is None else abs(rank - rank_by_theory) / rank_by_theory,
            "distance": None if theory is None else (measured - theory).abs().max().item(),
        },
        "numerical_rank": numerical_rank(values, size),
        "condition": condition if math.isfinite(condition) else None,
        "spread": spread(sized, samples),
        "singular_values": (values / max(values[0].item(), 1e-300)).tolist(),
        "rank_curve": {"counts": counts, **rank_curve(sized, counts)},
        "delta": delta.tolist(),
        "frequencies": frequencies.tolist(),
        "positions": x.tolist(),
        "features": features(sized, x)[:, shown].T.tolist(),
        "weights": weight_histogram(sized) if isinstance(sized, LearnableFourier) else None,
    }


def label_of(encoder: Encoder) -> str:
    """The name of an encoder in figures, with the arguments that differ from their defaults: ``gau(sigma=0.01)``."""
    given = ", ".join(f"{key}={value}" for key, value in encoder.changed_arguments().items() if key != "num_features")
    return f"{encoder.name}({given})" if given else encoder.name


def _points(encoder: Encoder, x: Tensor, others: float) -> Tensor:
    """The inputs of an encoder along its first axis: ``(N,)``, or ``(N, num_axes)`` with the other coordinates fixed."""
    if encoder.num_axes == 1:
        return x
    rest = x.new_full((len(x), encoder.num_axes - 1), others)
    return torch.cat([x[:, None], rest], 1)
