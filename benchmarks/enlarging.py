"""Pictures that were reduced and are enlarged again, by ``pe_lightning.fill`` and by Pillow: docs/prior.md.

    python benchmarks/enlarging.py                          # pictures that scikit-image ships, by 2, 3 and 4
    python benchmarks/enlarging.py --paths natural16        # your own folder of pictures
    python benchmarks/enlarging.py --reduction bicubic --luminance   # the protocol of most tables of super-resolution

Pictures are reduced to means over cells, or by Pillow's BICUBIC, in 8 bits. PSNR in dB, of all pixels but four at each
border, since methods differ in what they take a picture to be beyond it. No picture of the tables was trained on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data
from harness import machine, make_parser, print_row, print_titles
from numpy.typing import NDArray
from PIL import Image
from PIL.Image import Resampling

from pe_lightning.estimators.filling import fill
from pe_papers.tasks.drawing import draw_words

Picture = NDArray[np.uint8]
BORDER = 4
METHODS: dict[str, dict[str, Any]] = {
    "exact gau": {"encoder": "gau", "model": "exact"},
    "Adaptive": {"pretrained": "none"},
    "fill *": {},
}
"""Arguments of :func:`pe_lightning.fill`, by name; * has seen other pictures."""


def shipped() -> dict[str, Picture]:
    """Photographs and text of scikit-image and words that were left out of training."""
    found = {name: np.asarray(getattr(skimage.data, name)()) for name in ("astronaut", "camera", "page", "text", "moon")}
    return {**found, "words": draw_words(np.random.default_rng(1000))}


def reduced(picture: Picture, factor: int, reduction: str) -> tuple[Picture, Picture]:
    """The picture without rows and columns that are left over, and the small one, in 8 bits."""
    height, width = (n // factor for n in picture.shape[:2])
    truth = picture[: height * factor, : width * factor]
    method = Resampling.BOX if reduction == "means" else Resampling.BICUBIC
    return truth, np.asarray(Image.fromarray(truth).resize((width, height), method))


def luminance(values: NDArray[Any]) -> NDArray[np.float64]:
    """Luminance of ITU-R BT.601 in [16, 235] of values in [0, 255]."""
    values = values.astype(np.float64)
    return values if values.ndim == 2 else 16 + values @ np.array([65.481, 128.553, 24.966]) / 255


def psnr(values: NDArray[Any], truth: Picture, of_luminance: bool) -> float:
    """PSNR in dB of the inner pixels."""
    one, other = (luminance(each) if of_luminance else each.astype(np.float64) for each in (values, truth))
    inner = (one - other)[BORDER:-BORDER, BORDER:-BORDER]
    return float(10 * np.log10(255**2 / max(1e-12, float(np.square(inner).mean()))))


def table(
    pictures: dict[str, Picture], factor: int, methods: Sequence[str], reduction: str = "means", of_luminance: bool = False
) -> dict[str, dict[str, float]]:
    """Prints a row per picture, means, and processor seconds; returns the rows."""
    rows, seconds, pixels = dict[str, dict[str, float]](), dict.fromkeys(methods, 0.0), 0
    print_titles(f"x{factor}", "BICUBIC", "LANCZOS", *methods)
    for name, picture in pictures.items():
        truth, small = reduced(picture, factor, reduction)
        size, row = (truth.shape[1], truth.shape[0]), dict[str, float]()
        pixels += size[0] * size[1]
        for method in (Resampling.BICUBIC, Resampling.LANCZOS):
            row[method.name] = psnr(np.asarray(Image.fromarray(small).resize(size, method)), truth, of_luminance)
        for label in methods:
            began = time.process_time()
            made = fill(small, upscale=factor, samples="cells", folds="none", axes=2, **METHODS[label]).values
            seconds[label] += time.process_time() - began
            row[label] = psnr(made, truth, of_luminance)
        rows[name] = {key: round(value, 2) for key, value in row.items()}
        print_row(name, *row.values())
    print_row("mean", *np.mean([list(row.values()) for row in rows.values()], 0))
    worst = min(row.get("fill *", np.nan) - max(row["LANCZOS"], row["BICUBIC"]) for row in rows.values())
    print_row("fill over the better of Pillow, worst", worst)
    print_row("core s per 512 x 768", "", "", *(used * 512 * 768 / pixels for used in seconds.values()))
    return rows


def main() -> None:
    """Prints the tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--paths", type=Path, help="a folder of pictures, in place of those of scikit-image")
    parser.add_argument("--factors", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--reduction", choices=("means", "bicubic"), default="means")
    parser.add_argument("--luminance", action="store_true", help="score the luminance alone")
    options = parser.parse_args()
    print(machine())
    pictures = shipped()
    if options.paths:
        pictures = {path.stem: np.asarray(Image.open(path).convert("RGB")) for path in sorted(options.paths.iterdir())}
    for factor in options.factors:
        table(pictures, factor, list(METHODS), options.reduction, options.luminance)


if __name__ == "__main__":
    main()
