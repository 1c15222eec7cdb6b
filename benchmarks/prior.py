"""A network trained on other pictures, alone and mixed with the adaptive fit: docs/prior.md.

    python benchmarks/prior.py                          # pictures that scikit-image ships, words, rasters, textures
    python benchmarks/prior.py --paths natural16        # your own folder of pictures
    python benchmarks/prior.py --ship runs/patches-PatchRegression-gau/1/checkpoints/last.ckpt --name pictures
    python benchmarks/prior.py --ship runs/patches-CellRegression-cells/1/checkpoints/last.ckpt --name cells

Known are every second sample of each axis; PSNR in dB of the others, not clamped. No picture of the tables was trained on.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import enlarging
import numpy as np
import skimage.data
import torch
from harness import bicubic_psnr, files_of, load, make_parser, print_row, print_titles, run_sections, score_between
from matplotlib.cbook import get_sample_data
from PIL import Image
from scipy.ndimage import gaussian_filter
from torch import Tensor

import pe_lightning
from pe_lightning.estimators.priors import PRIOR_KEY, card, shipped_file
from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.results.checkpoint_files import locate, read_checkpoint
from pe_lightning.signals import grid_axes
from pe_lightning.training import Adaptive, Local, VideoDataModule, make_datamodule
from pe_papers.tasks.drawing import HELD_OUT_FONTS, draw_words
from pe_papers.tasks.patches import PHOTOGRAPHS

Pictures = dict[str, list[Tensor]]
METHODS = ("bicubic", "Adaptive", "Local *", "Adaptive, prior *")


def table(pictures: Pictures, pretrained: str = "pictures") -> dict[str, dict[str, float]]:
    """Prints a row per kind of picture: the mean of every method, and the gain by the prior; returns the means.

    Args:
        pictures: Lists of pictures ``(H, W, C)``, by kind.
        pretrained: Name of a shipped network, or a checkpoint.
    """
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
        gains = [row[3] - row[1] for row in scores]
        means = np.mean(scores, 0)
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
    found = {name: [unit(getattr(skimage.data, name)())] for name in ("astronaut", "camera", "page", "text")}
    words = [unit(draw_words(np.random.default_rng(1000 + k))) for k in range(count)]
    return {**found, "words, other fonts": words}


def other_pictures() -> Pictures:
    """What the prior was not made for: a raster, textures, single frequencies."""
    with get_sample_data("jacksboro_fault_dem.npz") as file:
        elevation = file["elevation"]
    random = np.random.default_rng(0)
    y, x = np.mgrid[:256, :256]
    return {
        "elevation": [unit(elevation)],
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


def figure(path: Path) -> None:
    """Parts of a photograph and of words: truth, bicubic, Adaptive without and with the prior."""
    rows = []
    words = held_out_pictures(1)["words, other fonts"][0]
    for truth, (top, left) in ((unit(skimage.data.astronaut()), (96, 190)), (words, (150, 200))):
        axes, data = grid_axes(truth.shape[:2]), make_datamodule(truth[None])
        bicubic = interpolate("bicubic", data.train_batch(), axes)[0]
        models = (Adaptive(pretrained=pretrained) for pretrained in ("none", "pictures"))
        fits = [pe_lightning.fit(data, model=model).predict_grid(axes)[0].detach() for model in models]
        part = (slice(top, top + 72), slice(left, left + 96))
        rows.append(torch.cat([values[part] for values in (truth, bicubic, *fits)], 1))
    picture = (torch.cat(rows).clamp(0, 1) * 255).round().byte().numpy()
    image = Image.fromarray(picture)
    image.resize((image.width * 3, image.height * 3), Image.Resampling.NEAREST).save(path, quality=88)


def ship(checkpoint: str, name: str) -> None:
    """Writes the prior of a checkpoint of a run as a file of the package, with its card."""
    path = locate(checkpoint)
    content = read_checkpoint(path)
    recipe = "cells" if "factors" in content[PRIOR_KEY] else "pictures"
    state = {key: value for key, value in content["state_dict"].items() if key.startswith("prior.")}
    target = shipped_file(name)
    target.parent.mkdir(exist_ok=True)
    torch.save({PRIOR_KEY: content[PRIOR_KEY], "state_dict": state}, target)
    run = json.loads((path.parents[1] / "metrics.json").read_text())
    described = {
        "sha256": hashlib.sha256(target.read_bytes()).hexdigest(),
        "command": f"pe-lightning fit --config prior/{recipe}",
        "seed": 0,
        "steps": run["steps"],
        "num_params": run["num_params"],
        "versions": run["versions"],
        "data": {"drawn": 100, "photographs": {package: list(names) for package, names in PHOTOGRAPHS.items()}},
        "data_fingerprint": run["data_fingerprint"],
        "held_out_rows_psnr": dict(zip(run["signals"], (round(v, 2) for v in run["test/psnr_per_signal"]), strict=True)),
        "held_out": ["astronaut", "camera", "page", "text", *HELD_OUT_FONTS],
        "licences": "docs/prior.md",
    }  # fmt: skip
    target.with_suffix(".json").write_text(json.dumps(described, indent=1) + "\n")
    card.cache_clear()
    if recipe == "cells":
        described["held_out_pictures_enlarged_by_2_psnr"] = enlarging.table(enlarging.shipped(), 2, ["Adaptive", "fill *"])
    else:
        described["held_out_pictures_rest_psnr"] = table(held_out_pictures(4), name)
    target.with_suffix(".json").write_text(json.dumps(described, indent=1) + "\n")


def main() -> None:
    """Runs the sections, or ships a prior."""
    parser = make_parser(__doc__)
    parser.add_argument("--paths", nargs="+", help="pictures or a folder, in place of those of scikit-image")
    parser.add_argument("--figure", type=Path, default=Path("prior.jpg"), help="file of the section figure")
    parser.add_argument("--pretrained", default="pictures", help="a shipped prior or a checkpoint")
    parser.add_argument("--ship", help="a checkpoint: make its prior one of the package, and do nothing else")
    parser.add_argument("--name", default="pictures", help="name of the prior that is shipped")
    options, _ = parser.parse_known_args()
    if options.ship:
        ship(options.ship, options.name)
        return
    paths = files_of(options.paths or [])
    pictures = {Path(options.paths[0]).name: [load(path) for path in paths]} if paths else held_out_pictures(4)
    sections = {
        "pictures": lambda options: table(pictures, options.pretrained),
        "others": lambda options: table(other_pictures(), options.pretrained),
        "clip": lambda options: clip(),
        "figure": lambda options: figure(options.figure),
    }
    run_sections(parser, sections)


if __name__ == "__main__":
    main()
