"""Sparse exact fits of all samples: PSNR, bytes and core seconds against the numbers kept. Prints one table per section.

    python benchmarks/sparse.py --paths FOLDER               # your own pictures, such as the 24 of Kodak
    python benchmarks/sparse.py --only pictures codecs       # some of the sections, of photographs of scikit-image

- ``pictures``: all pixels of each picture: PSNR of predictions clamped to [0, 1], mean over pictures; bytes of the
  checkpoint; core seconds of fit and prediction. JPEG (4:4:4, optimised) has the highest quality that needs no more bytes.
- ``codecs``: bytes of a sparse fit of 30,000 numbers in float16, and of JPEG and JPEG 2000 of no lower PSNR.
- ``signals``: a clip, a volume and sound: 5.3 seconds recorded.
- ``noise``: ``pe_fill.fill(smooth=True)`` and ``num_coefficients: auto`` on noisy pictures beside non-local means of
  scikit-image: middles (96 x 96) of photographs and textures of scikit-image, and of ``--paths``.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from harness import PHOTOGRAPHS, files_of, load, make_parser, make_trainer, print_row, print_titles, psnr, run_sections
from lightning.pytorch.utilities import disable_possible_user_warnings
from PIL import Image
from torch import Tensor

from pe_fill import SparseLinear, fill
from pe_lightning.signals.sampling import GridSampling
from pe_lightning.signals.sources.paths import video_samples
from pe_lightning.training import TensorDataModule, VideoDataModule

COUNTS = (10_000, 30_000, 50_000, 103_500, 207_000, 337_000, 471_000, 560_000)
TEXTURES = ("brick", "grass", "gravel", "coins", "moon", "immunohistochemistry")
"""Of scikit-image."""


def clamped_psnr(found: Any, truth: Tensor) -> float:
    """PSNR of predictions clamped to [0, 1]."""
    return psnr(np.clip(np.asarray(found), 0, 1) - np.asarray(truth))


def fit(values: Tensor, keep: Any, **options: Any) -> tuple[SparseLinear, Tensor, float, int]:
    """The model, its prediction of all samples, core seconds of both, and bytes of the checkpoint."""
    data, trainer = TensorDataModule(values[None], sampling=GridSampling(stride=1), eval_mask="none"), make_trainer(0)
    began = time.process_time()
    model = SparseLinear("keys", num_coefficients=keep, ridge=0.0, **options)
    trainer.fit(model, data)
    with torch.no_grad():
        found = model.predict_grid(data.evaluation_batch().axes)[0]
    spent = time.process_time() - began
    with tempfile.TemporaryDirectory() as folder:
        trainer.save_checkpoint(Path(folder) / "it.ckpt")
        size = (Path(folder) / "it.ckpt").stat().st_size
    return model, found, spent, size


def coded(values: Tensor, kind: str, fits: Callable[[float, int], bool], highest: bool) -> tuple[float, int]:
    """PSNR and bytes of the picture as JPEG (4:4:4), JPEG 2000 or WebP, of the highest or lowest quality that fits."""
    pixels = Image.fromarray((255 * values.numpy()).round().astype(np.uint8))
    low, high, best = 0, 1001 if kind == "JPEG2000" else 101, (float("nan"), 0)
    while high - low > 1:
        quality = (low + high) // 2
        options: dict[str, Any] = {"quality": quality, "subsampling": 0, "optimize": True, "method": 4}
        if kind == "JPEG2000":  # tenths of a dB
            options = {"quality_mode": "dB", "quality_layers": [quality / 10], "irreversible": True, "mct": 1}
        buffer = io.BytesIO()
        pixels.save(buffer, kind, **options)
        made = clamped_psnr(np.asarray(Image.open(buffer).convert("RGB")) / 255, values), buffer.tell()
        best = made if fits(*made) else best
        low, high = (quality, high) if fits(*made) == highest else (low, quality)
    return best


def pictures(paths: list[str]) -> None:
    """PSNR, bytes and seconds by numbers kept."""
    images = [load(path) for path in paths]
    print_titles("numbers", "pictures", "PSNR, dB", "bytes", "core s", "JPEG, dB", "its bytes")
    for count in COUNTS:
        rows = []
        for image in images:
            if count <= image.numel():
                _, found, spent, size = fit(image, count)
                jpeg = coded(image, "JPEG", lambda _, used, size=size: used <= size, highest=True)
                rows.append([clamped_psnr(found, image), size, spent, *jpeg])
        if rows:
            score, size, _, jpeg, jpeg_size = np.nanmean(rows, 0)
            seconds = statistics.median(row[2] for row in rows)
            print_row(count, len(rows), score, round(size), seconds, jpeg, round(jpeg_size))


def codecs(paths: list[str], count: int = 30_000) -> None:
    """Bytes at equal quality."""
    rows = []
    for image in map(load, paths):
        _, found, _, size = fit(image, count, storage_dtype="float16")
        wanted = clamped_psnr(found, image)
        others = [coded(image, kind, lambda score, _: score >= wanted, highest=False)[1] for kind in ("JPEG", "JPEG2000")]  # noqa: B023
        rows.append((wanted, size, *others))
    score, size, jpeg, jpeg_2000 = np.mean(rows, 0)
    print_titles(f"PSNR of {count:,} numbers, dB", "sparse fit, bytes", "JPEG", "times", "JPEG 2000", "times")
    print_row(score, round(size), round(jpeg), size / max(1, jpeg), round(jpeg_2000), size / max(1, jpeg_2000))


def sound() -> Tensor:
    """The sound of the clip, mixed to one channel: ``(P, 1)`` in [0, 1]."""
    with av.open(str(video_samples()["bigbuckbunny"])) as file:
        parts = [frame.to_ndarray().mean(0) for frame in file.decode(audio=0)]
    mixed = torch.from_numpy(np.concatenate(parts)).float()
    return (0.5 + 0.5 * mixed / mixed.abs().max())[:, None]


def signals(_: argparse.Namespace) -> None:
    """A clip, a volume and sound."""
    clip = VideoDataModule("samples://bigbuckbunny", frames=(0, 64), resize=(128, 128)).values[0]
    made = {
        f"clip {tuple(clip.shape)}, resized": clip,
        "volume": VideoDataModule("samples://phantom3d").values[0],
        "sound of the clip, 48 kHz": sound(),
    }
    print_titles("signal", "kept", "numbers", "PSNR, dB", "bytes", "float32 bytes", "core s")
    for name, values in made.items():
        for share in (0.01, 0.03, 0.1):
            model, found, spent, size = fit(values, share)
            print_row(name, f"{share:.0%}", model.num_params, clamped_psnr(found, values), size, 4 * values.numel(), spent)


def noise(options: argparse.Namespace) -> None:
    """PSNR in dB of noisy pictures, against the pictures without noise: means, and the worst gain over the noisy picture."""
    from skimage import data, img_as_float32
    from skimage.restoration import denoise_nl_means

    def middle(picture: Any) -> Any:
        top, left = ((size - 96) // 2 for size in picture.shape[:2])
        return picture.reshape(*picture.shape[:2], -1)[top : top + 96, left : left + 96]

    groups = {
        name: {picture: middle(img_as_float32(getattr(data, picture)())) for picture in names}
        for name, names in {"photographs": PHOTOGRAPHS, "textures": TEXTURES}.items()
    }
    if options.paths != parser.get_default("paths"):
        groups[Path(options.paths[0]).name] = {path: middle(load(path).numpy()) for path in files_of(options.paths)}
    titles = ("pictures", "noise", "found", "noisy", "non-local means", "num_coefficients: auto")
    print_titles(*titles, "fill", "worst gain", "core s of auto", "of fill")
    for group, found in groups.items():
        for level in options.levels:
            rows = []
            for number, clean in enumerate(found.values()):
                drawn = np.random.default_rng(number).normal(0, level, clean.shape)
                noisy = (255 * clean + drawn).clip(0, 255).round().astype(np.uint8)
                given, sigma = noisy / 255, max(level, 0.5) / 255
                about = {"patch_size": 5, "patch_distance": 6, "h": 0.8 * sigma, "sigma": sigma}
                about |= {"channel_axis": -1} if given.shape[-1] > 1 else {}
                peer = clamped_psnr(denoise_nl_means(given.squeeze(), **about).reshape(clean.shape), clean)
                auto = fit(torch.from_numpy(given).float(), "auto")
                began = time.process_time()
                filled = fill(noisy, smooth=True, folds="none", axes=2)
                spent = time.process_time() - began
                before, after = (min(99.0, clamped_psnr(x / 255, clean)) for x in (noisy, filled.values))
                sparse = min(99.0, clamped_psnr(auto[1], clean))
                rows.append([filled.signals[0].noise, before, peer, sparse, after, after - before, auto[2], spent])
            *means, _, auto_seconds, seconds = np.mean(rows, 0)
            print_row(f"{group} ({len(rows)})", level, *means, min(row[-3] for row in rows), auto_seconds, seconds)


if __name__ == "__main__":
    parser = make_parser(__doc__)
    photographs = [f"samples://{name}" for name in PHOTOGRAPHS]
    parser.add_argument("--paths", nargs="+", default=photographs, help="pictures, or folders of them")
    parser.add_argument("--levels", nargs="+", type=int, default=[0, 5, 10, 25, 50], help="noise, of 255")
    torch.set_num_threads(1)
    disable_possible_user_warnings()
    fit(torch.rand(16, 16, 3), 0.5)  # what is imported and compiled on first use
    sections: dict[str, Callable[[argparse.Namespace], None]] = {
        name: lambda options, section=section: section(files_of(options.paths))  # type: ignore[misc]
        for name, section in {"pictures": pictures, "codecs": codecs}.items()
    }
    sections |= {"signals": signals, "noise": noise}
    run_sections(parser, sections)
