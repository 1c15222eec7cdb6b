"""Networks trained on other pictures, alone and mixed with the adaptive fit: docs/prior.md.

    python benchmarks/prior.py                          # pictures that scikit-image ships, words, rasters, textures
    python benchmarks/prior.py --only pictures enlarging --paths natural16        # your own folder of pictures
    python benchmarks/prior.py --only enlarging --factors 2 --reduction bicubic --luminance   # protocol of super-resolution
    python benchmarks/prior.py --ship runs/patches-PatchRegression-gau/1/checkpoints/last.ckpt --name pictures
    python benchmarks/prior.py --ship runs/patches-CellRegression-cells/1/checkpoints/last.ckpt --name cells

- ``pictures``, ``others``, ``clip``: every second sample of each axis is known; PSNR in dB of the others, not clamped.
- ``enlarging``: pictures are reduced to means over cells, or by Pillow's BICUBIC, in 8 bits, and enlarged by
  ``pe_fill.fill`` and by Pillow. PSNR of all pixels but four at each border.

No picture of the tables was trained on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data
import torch
from harness import bicubic_psnr, files_of, load, make_parser, print_row, print_titles, psnr, run_sections, score_between
from matplotlib.cbook import get_sample_data
from numpy.typing import NDArray
from PIL import Image
from PIL.Image import Resampling
from scipy.ndimage import gaussian_filter
from skimage.color import rgb2ycbcr
from torch import Tensor

import pe_lightning
from pe_fill import Adaptive, Local
from pe_fill.estimators.priors import PRIOR_KEY, card, shipped_file
from pe_fill.filling import fill
from pe_lightning.results.checkpoint_files import locate, read_checkpoint
from pe_lightning.training import VideoDataModule

from drawing import HELD_OUT_FONTS, draw_words
from make_priors import PHOTOGRAPHS

Pictures = dict[str, list[Tensor]]
Bytes = NDArray[np.uint8]
METHODS = ("bicubic", "Adaptive", "Local *", "Adaptive, prior *")
HELD_OUT = ("astronaut", "camera", "page", "text")
"""Pictures of scikit-image that were left out of training; the section ``enlarging`` has the moon too."""
BORDER = 4
ENLARGED: dict[str, dict[str, Any]] = {
    "exact gau": {"encoder": "gau", "model": "exact"},
    "Adaptive": {"pretrained": "none"},
    "fill *": {},
}
"""Arguments of :func:`pe_fill.fill`, by name; * has seen other pictures."""


# -- between known samples ----------------------------------------------------------------------------------------------


def table(pictures: Pictures, pretrained: str = "pictures") -> dict[str, dict[str, float]]:
    """Prints a row per kind of picture: the mean of every method, and the gain by the prior; returns the means."""
    models = {
        "Adaptive": lambda: {"model": Adaptive(pretrained="none")},
        "Local *": lambda: {"model": Local(pretrained)},
        "Adaptive, prior *": lambda: {"model": Adaptive(pretrained=pretrained)},
    }
    print_titles("pictures", *METHODS, "weight", "gain", "worst")
    summary = {}
    for kind, some in pictures.items():
        scores, weights = list[list[float]](), list[float]()
        for picture in some:
            fits = score_between(picture, models)
            scores.append([bicubic_psnr(picture), *(fitted.psnr for fitted in fits.values())])
            weights.append(fits["Adaptive, prior *"].describe()["prior"]["weight"][0])
        gains, means = [row[3] - row[1] for row in scores], np.mean(scores, 0)
        print_row(f"{kind} ({len(some)})", *means, np.mean(weights), np.mean(gains), min(gains))
        summary[kind] = {method: round(float(mean), 2) for method, mean in zip(METHODS, means, strict=True)}
    return summary


def unit(values: object) -> Tensor:
    """An array ``(H, W)`` or ``(H, W, C)`` in [0, 1]: bytes divided by 255, else from its minimum to its maximum."""
    array = np.asarray(values)
    scaled = array / 255 if array.dtype == np.uint8 else (array - array.min()) / np.ptp(array)
    tensor = torch.from_numpy(np.ascontiguousarray(scaled, dtype=np.float32))
    return tensor if tensor.ndim == 3 else tensor[..., None]


def held_out_pictures(count: int) -> Pictures:
    """Photographs and text of scikit-image that were left out of training, and words in fonts that were."""
    words = [unit(draw_words(np.random.default_rng(1000 + k))) for k in range(count)]
    return {**{name: [unit(getattr(skimage.data, name)())] for name in HELD_OUT}, "words, other fonts": words}


def other_pictures() -> Pictures:
    """Signals unlike those of the training: a raster, textures, single frequencies."""
    random, (y, x) = np.random.default_rng(0), np.mgrid[:256, :256]
    return {
        "elevation": [unit(get_sample_data("jacksboro_fault_dem.npz")["elevation"])],
        "rough textures": [unit(gaussian_filter(random.standard_normal((200, 200)), s)) for s in (0.7, 1, 1.3, 1.6, 2)],
        "single frequencies": [unit(np.sin(2 * np.pi * f * (0.8 * x + 0.6 * y))) for f in (0.05, 0.1, 0.14, 0.18, 0.24)],
    }


def clip() -> None:
    """A clip of which every frame is known at every second pixel."""
    print_titles("method", "PSNR, dB")
    for pretrained in ("none", "pictures"):
        sampling = {"name": "grid", "stride": [1, 2, 2]}
        movie = VideoDataModule("samples://bigbuckbunny", frames=(40, 56), resize=(192, 192), sampling=sampling)
        print_row(f"Adaptive, {pretrained}", pe_lightning.fit(movie, model=Adaptive(pretrained=pretrained)).psnr)


# -- enlarging ----------------------------------------------------------------------------------------------------------


def shipped() -> dict[str, Bytes]:
    """Photographs and text of scikit-image and words that were left out of training."""
    found = {name: np.asarray(getattr(skimage.data, name)()) for name in (*HELD_OUT, "moon")}
    return {**found, "words": draw_words(np.random.default_rng(1000))}


def enlarged(
    pictures: dict[str, Bytes], factor: int, methods: list[str], reduction: str = "means", of_luminance: bool = False
) -> dict[str, dict[str, float]]:
    """Prints a row per picture, means, and processor seconds; returns the rows."""
    rows, seconds, pixels = dict[str, dict[str, float]](), dict.fromkeys(methods, 0.0), 0
    print_titles(f"x{factor}", "BICUBIC", "LANCZOS", *methods)
    for name, picture in pictures.items():
        height, width = (n // factor for n in picture.shape[:2])
        truth, size = picture[: height * factor, : width * factor], (width * factor, height * factor)
        filter = Resampling.BOX if reduction == "means" else Resampling.BICUBIC
        small = Image.fromarray(truth).resize((width, height), filter)
        made = {m.name: np.asarray(small.resize(size, m)) for m in (Resampling.BICUBIC, Resampling.LANCZOS)}
        for label in methods:
            began = time.process_time()
            options = {"samples": "cells", "folds": "none", "axes": 2, **ENLARGED[label]}
            made[label] = fill(np.asarray(small), upscale=factor, **options).values
            seconds[label] += time.process_time() - began
        scored = {"": truth, **made}
        if of_luminance and truth.ndim == 3:
            scored = {key: rgb2ycbcr(x)[..., 0] for key, x in scored.items()}
        errors = {key: (scored[key] - np.float64(scored[""]))[BORDER:-BORDER, BORDER:-BORDER] for key in made}
        rows[name] = {key: round(psnr(x / 255), 2) for key, x in errors.items()}
        pixels += truth.shape[0] * truth.shape[1]
        print_row(name, *rows[name].values())
    print_row("mean", *np.mean([list(row.values()) for row in rows.values()], 0))
    worst = min(row.get("fill *", np.nan) - max(row["LANCZOS"], row["BICUBIC"]) for row in rows.values())
    print_row("fill over the better of Pillow, worst", worst)
    print_row("core s per 512 x 768", "", "", *(used * 512 * 768 / pixels for used in seconds.values()))
    return rows


# -- shipping -----------------------------------------------------------------------------------------------------------


def ship(checkpoint: str, name: str) -> None:
    """Writes the prior of a checkpoint of a run as a file of the package, with its card."""
    path, target = locate(checkpoint), shipped_file(name)
    content = read_checkpoint(path)
    recipe = "cells" if "factors" in content[PRIOR_KEY] else "pictures"
    state = {key: value for key, value in content["state_dict"].items() if key.startswith("prior.")}
    target.parent.mkdir(exist_ok=True)
    torch.save({PRIOR_KEY: content[PRIOR_KEY], "state_dict": state}, target)
    run = json.loads((path.parents[1] / "metrics.json").read_text())
    described = {
        "sha256": hashlib.sha256(target.read_bytes()).hexdigest(),
        "command": f"pe-lightning fit --config prior/{recipe}",
        "seed": 0,
        **{key: run[key] for key in ("steps", "num_params", "versions")},
        "data": {"drawn": 100, "photographs": {package: list(names) for package, names in PHOTOGRAPHS.items()}},
        "data_fingerprint": run["data_fingerprint"],
        "held_out_rows_psnr": dict(zip(run["signals"], (round(v, 2) for v in run["test/psnr_per_signal"]), strict=True)),
        "held_out": [*HELD_OUT, *HELD_OUT_FONTS],
        "licences": "docs/prior.md",
    }  # fmt: skip
    target.with_suffix(".json").write_text(json.dumps(described, indent=1) + "\n")
    card.cache_clear()
    if recipe == "cells":
        described["held_out_pictures_enlarged_by_2_psnr"] = enlarged(shipped(), 2, ["Adaptive", "fill *"])
    else:
        described["held_out_pictures_rest_psnr"] = table(held_out_pictures(4), name)
    target.with_suffix(".json").write_text(json.dumps(described, indent=1) + "\n")


def main() -> None:
    """Runs the sections, or ships a prior."""
    parser = make_parser(__doc__)
    parser.add_argument("--paths", nargs="+", help="pictures or a folder, in place of those of scikit-image")
    parser.add_argument("--pretrained", default="pictures", help="a shipped prior or a checkpoint")
    parser.add_argument("--factors", nargs="+", type=int, default=[2, 4], help="of enlarging")
    parser.add_argument("--reduction", choices=("means", "bicubic"), default="means")
    parser.add_argument("--luminance", action="store_true", help="enlarging: score the luminance alone")
    parser.add_argument("--ship", help="a checkpoint: make its prior one of the package, and do nothing else")
    parser.add_argument("--name", default="pictures", help="name of the prior that is shipped")
    options, _ = parser.parse_known_args()
    if options.ship:
        return ship(options.ship, options.name)
    paths = files_of(options.paths or [])

    def pictures(options: argparse.Namespace) -> None:
        own = {Path(options.paths[0]).name: [load(path) for path in paths]} if paths else held_out_pictures(4)
        table(own, options.pretrained)

    def enlarging(options: argparse.Namespace) -> None:
        own = {Path(path).stem: np.asarray(Image.open(path).convert("RGB")) for path in paths} or shipped()
        for factor in options.factors:
            enlarged(own, factor, list(ENLARGED), options.reduction, options.luminance)

    others = {"others": lambda options: table(other_pictures(), options.pretrained), "clip": lambda options: clip()}
    return run_sections(parser, {"pictures": pictures, **others, "enlarging": enlarging})


if __name__ == "__main__":
    main()
