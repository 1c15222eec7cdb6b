"""Learns the patches that ``fill`` continues pictures with: ``pe_fill/estimators/weights/patches.pt`` and its card.

    python datasets/make_patches.py                        # half a minute of one core
    python datasets/make_patches.py --paths FOLDER --out my_patches.pt

The pictures are those of ``make_priors.py``: photographs that are part of installed packages, at
full and at half size, and drawn pictures. Patches of the mean over channels are drawn with a probability in proportion to
their contrast; those of a standard deviation below 0.01 are left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import pe_fill
from pe_fill.members.patch_mixture import SIDE, PatchMixture, closest, oriented_patches
from pe_fill.networks.cells import turns

from make_priors import PHOTOGRAPHS, PatchDataModule

WEIGHTS = Path(pe_fill.__file__).parent / "estimators" / "weights" / "patches.pt"
LEAST_CONTRAST = 0.01
"""Standard deviation of patches that are left out."""
CANDIDATES = 4
"""Patches that are drawn for each one that is kept."""
LEAST = 1e-4
"""Added to the diagonal of the covariances."""
PRIOR_COUNT = 10.0
"""Patches that the covariance of the iteration before counts as."""


def patches_of(pictures: list[NDArray[np.uint8]], count: int, random: np.random.Generator) -> NDArray[np.float32]:
    """About ``count`` patches, equally many of each picture: ``(P, 64)``."""
    found, each = [], count // len(pictures)
    for picture in pictures:
        plane = picture.astype(np.float32).mean(-1) / 255
        views = np.lib.stride_tricks.sliding_window_view(plane, (SIDE, SIDE))
        rows, columns = (random.integers(0, n, CANDIDATES * each) for n in views.shape[:2])
        some = views[rows, columns].reshape(-1, SIDE * SIDE)
        contrast = some.std(1)
        share = np.where(contrast > LEAST_CONTRAST, contrast + 0.02, 0).astype(np.float64)
        found.append(some[random.choice(len(some), min(each, int((share > 0).sum())), replace=False, p=share / share.sum())])
    return np.concatenate(found)


def fit_patches(patches: Tensor, components: int, iterations: int, seed: int = 0) -> PatchMixture:
    """Learns a mixture.

    Each patch is assigned to the component and orientation of the largest density; covariances are those of the assigned
    patches, divided by their quadratic form.

    Args:
        patches: ``(P, 64)``, of a contrast above that of noise.
        components: ``K``.
        iterations: Times that patches are assigned.
        seed: Seed of the patches that covariances start from.
    """
    patches = patches - patches.mean(1, keepdim=True)
    turn = turns(SIDE, patches.device)
    generator = torch.Generator().manual_seed(seed)
    first = patches[torch.randperm(len(patches), generator=generator)[:components]].double()
    first = first / first.square().mean(1, keepdim=True).sqrt()
    whole = patches.double().T @ (patches / patches.square().mean(1, keepdim=True)).double() / len(patches)
    covariances = 0.5 * whole + 0.5 * first[:, :, None] * first[:, None] / first.shape[1]
    shares = torch.full((components,), 1 / components, dtype=torch.float64)
    for _ in range(iterations):
        mixture = PatchMixture(shares, _normalised(covariances))
        tables = oriented_patches(mixture, patches.dtype)
        best, form = (
            torch.cat(each) for each in zip(*[closest(some, tables) for some in torch.split(patches, 1024)], strict=True)
        )
        component, orientation = best // len(turn), best % len(turn)
        standing = patches.gather(1, turn[orientation]) / form.clamp_min(1e-12).sqrt()[:, None]
        counts = torch.bincount(component, minlength=components).double()
        for number in range(components):
            some = standing[component == number].double()
            covariances[number] = some.T @ some + PRIOR_COUNT * mixture.covariances[number] / SIDE**2
        shares = (counts + 1) / (counts + 1).sum()
    return PatchMixture(shares, _normalised(covariances))


def _normalised(covariances: Tensor) -> Tensor:
    """With mean diagonal 1, positive definite."""
    found = covariances / covariances.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
    return found + LEAST * torch.eye(SIDE * SIDE, dtype=found.dtype)


def main() -> None:
    """Writes the mixture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", nargs="+", default=["shipped"], help="pictures of your own")
    parser.add_argument("--drawn", type=int, default=40, help="drawn pictures, which have a quarter of the patches")
    parser.add_argument("--patches", type=int, default=100_000)
    parser.add_argument("--components", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    options = parser.parse_args()
    pictures = PatchDataModule(options.paths, drawn=options.drawn, seed=options.seed).pictures
    random = np.random.default_rng(options.seed)
    shares = {"photographs": 0.75, "drawn": 0.25} if len(pictures) == 2 else dict.fromkeys(pictures, 1.0)
    drawn = [patches_of(some, round(shares[kind] * options.patches), random) for kind, some in pictures.items()]
    mixture = fit_patches(torch.from_numpy(np.concatenate(drawn)), options.components, options.iterations, options.seed)
    state = {"shares": mixture.shares.float(), "factors": torch.linalg.cholesky(mixture.covariances).half()}
    torch.save(state, options.out)
    card: dict[str, Any] = {
        "sha256": hashlib.sha256(options.out.read_bytes()).hexdigest(),
        "command": "python datasets/make_patches.py",
        "options": {name: value for name, value in vars(options).items() if name != "out"},
        "num_params": sum(each.numel() for each in state.values()),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        "photographs": PHOTOGRAPHS if options.paths == ["shipped"] else options.paths,
        "licence": "that of the package; licences of the photographs: docs/prior.md",
    }
    options.out.with_suffix(".json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
