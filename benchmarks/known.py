"""Draws what "every second pixel of every second row is given" means, for docs/tutorials/photograph.md.

    python benchmarks/known.py --out docs/known.jpg

Part of samples://astronaut, magnified: the given pixels in their places, bicubic interpolation, ``pe_lightning.fit``, and
the truth. The fit and the interpolation are those of the whole photograph. Four core seconds.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from harness import make_parser

import pe_lightning
from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.signals.blocks import grid_axes
from pe_lightning.training import ImageDataModule

TOP, LEFT, SIZE = 334, 356, 48
"""Rings of the suit: edges, where methods differ most."""


def main() -> None:
    """Fits and draws."""
    parser = make_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = ImageDataModule("samples://astronaut")
    truth = data.values[0]
    axes = list(grid_axes(truth.shape[:-1]))
    given = torch.full_like(truth, 0.82)
    given[::2, ::2] = truth[::2, ::2]
    panels = {
        "one pixel of four": given,
        "bicubic": interpolate("bicubic", data.train_batch(), axes)[0],
        "pe_lightning.fit": pe_lightning.fit(data).grid(axes)[0].detach(),
        "truth": truth,
    }
    figure, places = plt.subplots(1, len(panels), figsize=(12, 3.4), layout="constrained")
    for place, (title, picture) in zip(places, panels.items(), strict=True):
        part = np.clip(picture[TOP : TOP + SIZE, LEFT : LEFT + SIZE].numpy(), 0, 1)
        place.imshow(part, interpolation="nearest")
        place.set_title(title, fontsize=18)
        place.axis("off")
    figure.savefig(options.out, dpi=100, pil_kwargs={"quality": 88})


if __name__ == "__main__":
    main()
