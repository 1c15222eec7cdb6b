"""Sparse exact fits of all samples: PSNR, bytes and core seconds against the numbers kept. Prints one table per section.

    python benchmarks/sparse.py                              # photographs of scikit-image; some minutes of one core
    python benchmarks/sparse.py --paths FOLDER               # your own pictures, such as the 24 of Kodak
    python benchmarks/sparse.py --only pictures,worth        # some of the sections

- ``pictures``: all pixels of each picture, by ``ComplexLinear("keys", num_coefficients=...)``: PSNR of predictions clamped
  to [0, 1], mean over pictures; bytes of the checkpoint; core seconds of the fit and of one prediction of the whole picture.
  JPEG (4:4:4, optimised) and WebP at the highest quality that takes as many bytes at most. Published results on Kodak.
- ``codecs``: bytes of a sparse fit of 30,000 numbers in float16, and of the smallest JPEG and JPEG 2000 of no
  lower PSNR.
- ``worth``: transforms; the rotation of channels; ranking by the norms of synthesis vectors; a least-squares solve on the
  kept numbers; float16.
- ``signals``: a clip, a volume and sound: 5.3 seconds recorded, ten seconds synthesised (:func:`plucked_strings`), and
  recordings of your own, ``--sounds``.
- ``memory``: peak memory of ``pe-lightning fit`` with the recipes: 4096 x 4096 pixels, 128 frames of 512 x 512, a minute of
  sound. Four core minutes and 3 GB; not run unless named.
- ``noise``: ``num_coefficients: auto`` on noisy pictures beside ``denoise_wavelet`` of scikit-image and total variation;
  eight pictures.
- ``held-out``: the same between held-out samples, beside the dense exact fit.
- ``trade``: the first picture at 1e4 to 5.6e5 numbers beside stored results of trained networks on the same one
  (``trade_all.json``), as a figure, ``--figure``.

Core seconds are :func:`time.process_time`, one thread.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import soundfile
import torch
from lightning.pytorch.utilities import disable_possible_user_warnings
from PIL import Image
from quiet import machine, make_trainer
from scipy.signal import lfilter
from torch import Tensor

from pe_lightning.linalg import LIFTINGS, lifting
from pe_lightning.networks.sparse import Coefficients, axis_norms
from pe_lightning.signals.sampling import GridSampling
from pe_lightning.signals.sources.paths import video_samples
from pe_lightning.solvers import solve_grid
from pe_lightning.solvers.solution import encode
from pe_lightning.training import ComplexLinear, ImageDataModule, RowDataModule, TensorDataModule, VideoDataModule
from pe_papers.reproduce.definition import load as load_definition

SECTIONS = ("pictures", "codecs", "worth", "signals", "noise", "held-out", "trade", "memory")
ON_REQUEST = {"trade", "memory"}
SOUND_RATE = 44_100
COUNTS = (10_000, 30_000, 50_000, 103_500, 207_000, 337_000, 471_000, 560_000)
PHOTOGRAPHS = ("astronaut", "coffee", "chelsea", "rocket")
STORED = Path(__file__).with_name("trade_all.json")


def load(path: str) -> Tensor:
    """A picture as values in [0, 1], ``(H, W, 3)``."""
    return ImageDataModule(path).dataset.values[0]


def everything(values: Tensor) -> TensorDataModule:
    """A DataModule that trains on all samples."""
    return TensorDataModule(values[None], sampling=GridSampling(stride=1), eval_mask="none")


def psnr(found: Any, truth: Any) -> float:
    """Of predictions clamped to [0, 1]."""
    error = (torch.as_tensor(found).clamp(0, 1) - torch.as_tensor(truth)).double().square().mean()
    return float(-10 * torch.log10(error)) if error > 0 else float("inf")


def fit(values: Tensor, keep: Any, **options: Any) -> tuple[ComplexLinear, Tensor, float, int]:
    """The model, its prediction of all samples, core seconds of both, and bytes of the checkpoint."""
    data, trainer = everything(values), make_trainer(0)
    began = time.process_time()
    model = ComplexLinear("keys", num_coefficients=keep, ridge=0.0, **options)
    trainer.fit(model, data)
    with torch.no_grad():
        found = model.predict_grid(data.evaluation_batch().axes)[0]
    spent = time.process_time() - began
    with tempfile.TemporaryDirectory() as folder:
        trainer.save_checkpoint(Path(folder) / "it.ckpt")
        size = (Path(folder) / "it.ckpt").stat().st_size
    return model, found, spent, size


def coded(values: Tensor, kind: str, most: int) -> tuple[float, int]:
    """PSNR and bytes of the picture as JPEG or WebP of the highest quality that takes ``most`` bytes at most."""
    pixels = (255 * values.numpy()).round().astype(np.uint8)
    options: dict[str, Any] = {"subsampling": 0, "optimize": True} if kind == "JPEG" else {"method": 4}
    best = (float("nan"), 0)
    low, high = 0, 101
    while high - low > 1:
        quality = (low + high) // 2
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, kind, quality=quality, **options)
        if buffer.tell() <= most:
            low, best = quality, (psnr(np.asarray(Image.open(buffer).convert("RGB")) / 255, values), buffer.tell())
        else:
            high = quality
    return best


def pictures(paths: list[str]) -> None:
    """PSNR, bytes and seconds by numbers kept."""
    images = [load(path) for path in paths]
    names = ", ".join(Path(path).stem for path in paths[:4]) + (", ..." if len(paths) > 4 else "")
    print(f"\npictures: {len(images)} ({names}), all pixels, clamped\n")
    titles = "numbers", "pictures", "PSNR, dB", "bytes", "of them positions", "core s"
    print(f"| {' | '.join(titles)} | JPEG, dB | its bytes | WebP, dB | its bytes |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for count in COUNTS:
        rows = []
        for image in images:
            if count > image.numel():
                continue
            model, found, spent, size = fit(image, count)
            positions = model.sparse_weights[0].pack()["positions"].numel()
            rows.append(
                [psnr(found, image), size, positions, spent, *coded(image, "JPEG", size), *coded(image, "WEBP", size)]
            )
        if rows:
            m, spent = np.nanmean(rows, 0), statistics.median(row[3] for row in rows)
            print(
                f"| {count:,} | {len(rows)} | {m[0]:.2f} | {m[1]:,.0f} | {m[2]:,.0f} | {spent:.2f} "
                f"| {m[4]:.2f} | {m[5]:,.0f} | {m[6]:.2f} | {m[7]:,.0f} |",
                flush=True,
            )
    print("\npublished, the 24 pictures of Kodak (positions of ours are not counted as numbers):")
    for entry in load_definition("kodak").entries():
        if entry.labels["block"] == "published":
            pairs = zip(entry.settings["arguments.parameters"], entry.settings["arguments.psnr"], strict=True)
            print(f"  {entry.labels['method']}: " + ", ".join(f"{count:,}: {value:.2f}" for count, value in pairs))


def smallest(values: Tensor, kind: str, wanted: float) -> int:
    """Bytes of the picture as JPEG (4:4:4) or JPEG 2000 of the lowest quality that has at least this PSNR."""
    pixels = Image.fromarray((255 * values.numpy()).round().astype(np.uint8))
    low, high, size = 0, 100 if kind == "JPEG" else 1000, 0  # JPEG 2000: tenths of a dB
    while high - low > 1:
        quality = (low + high) // 2
        options: dict[str, Any] = {"quality": quality, "subsampling": 0, "optimize": True}
        if kind == "JPEG2000":
            options = {"quality_mode": "dB", "quality_layers": [quality / 10], "irreversible": True, "mct": 1}
        buffer = io.BytesIO()
        pixels.save(buffer, kind, **options)
        if psnr(np.asarray(Image.open(buffer).convert("RGB")) / 255, values) >= wanted:
            high, size = quality, buffer.tell()
        else:
            low = quality
    return size


def codecs(paths: list[str], count: int = 30_000) -> None:
    """Bytes at equal quality."""
    rows = []
    for image in map(load, paths):
        _, found, _, size = fit(image, count, storage_dtype="float16")
        wanted = psnr(found, image)
        rows.append((wanted, size, smallest(image, "JPEG", wanted), smallest(image, "JPEG2000", wanted)))
    m = np.mean(rows, 0)
    print(f"\ncodecs: {len(rows)} pictures, {count:,} numbers in float16, clamped, means\n")
    print("| PSNR, dB | sparse fit, bytes | JPEG | times | JPEG 2000 | times |\n| ---: | ---: | ---: | ---: | ---: | ---: |")
    print(f"| {m[0]:.2f} | {m[1]:,.0f} | {m[2]:,.0f} | {m[1] / m[2]:.1f} | {m[3]:,.0f} | {m[1] / m[3]:.1f} |")


def refined(coefficients: Coefficients, weight: Tensor, count: int, steps: int = 4) -> Tensor:
    """The kept numbers solved for by conjugate gradients on the samples, from where they are."""
    made, axes = lifting(coefficients.transform), range(1, weight.ndim)
    target = (coefficients.rotation.T @ weight.flatten(1)).reshape(weight.shape)
    z = coefficients.keep(count).coefficients()
    mask = z != 0

    def adjoint(residual: Tensor) -> Tensor:
        zero = torch.zeros_like(residual, requires_grad=True)
        return torch.autograd.grad(made.inverse_all(zero, axes), zero, residual)[0] * mask

    residual = target - made.inverse_all(z, axes)
    gradient = adjoint(residual)
    direction, squared = gradient, gradient.square().sum()
    for _ in range(steps):
        moved = made.inverse_all(direction, axes)
        step = squared / moved.square().sum()
        z, residual = z + step * direction, residual - step * moved
        gradient = adjoint(residual)
        following = gradient.square().sum()
        direction, squared = gradient + following / squared * direction, following
    return (coefficients.rotation @ made.inverse_all(z, axes).flatten(1)).reshape(weight.shape)


def worth(paths: list[str]) -> None:
    """What each part adds."""
    counts = [10_000, 103_500, 207_000, 337_000]
    rows: dict[str, list[list[float]]] = {}
    for path in paths:
        image = load(path).movedim(-1, 0).contiguous()
        if image.numel() < counts[-1]:
            continue
        weight = image - image.flatten(1).mean(1)[:, None, None]
        ones = [torch.ones(n, dtype=torch.float64) for n in weight.shape[1:]]
        whole = {name: Coefficients(weight, name) for name in LIFTINGS}
        whole["9/7, channels not rotated"] = Coefficients(weight, "9/7", rotate=False)
        whole["9/7, ranked without norms"] = Coefficients(weight, "9/7", ones)

        def score(found: Tensor, truth: Tensor = weight) -> float:
            return float(-10 * torch.log10((found - truth).square().mean()))

        for name, made in whole.items():
            rows.setdefault(name, []).append([score(made.keep(count).weight()) for count in counts])
        made = whole["9/7"]
        rows.setdefault("9/7, kept as float16", []).append([score(made.keep(n, "float16").weight()) for n in counts])
        rows.setdefault("9/7, then least squares", []).append([score(refined(made, weight, n)) for n in counts])
    print(f"\nworth: PSNR in dB, not clamped, {len(rows['9/7'])} pictures\n")
    print("| | " + " | ".join(f"{count:,}" for count in counts) + " |\n| --- | " + "---: | " * len(counts))
    for name, found in rows.items():
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in np.mean(found, 0)) + " |", flush=True)
    smooth: dict[str, list[list[float]]] = {}
    for path in paths[:2]:
        image = load(path)
        for encoder in ("bspline", "gau"):
            found = solve_grid(image[None], {"name": encoder, "num_features": "auto"}, ridge=0.0)
            axes = [torch.arange(n, dtype=torch.float64) / n for n in image.shape[:2]]
            for name, norms in (("with norms over the samples", None), ("with norms of the weights alone", 1)):
                smooth.setdefault(f"{encoder}, {name}", []).append(
                    [encoder_score(image, found, axes, count, norms is None) for count in counts]
                )
    for name, found in smooth.items():
        print(f"| {name} (2 pictures) | " + " | ".join(f"{value:.2f}" for value in np.mean(found, 0)) + " |", flush=True)


def encoder_score(image: Tensor, found: Any, axes: list[Tensor], count: int, over_samples: bool) -> float:
    """PSNR of the largest numbers of an encoder that does not interpolate."""
    norms = None
    if over_samples:
        matrices = encode(found.encoders, axes, image.device)
        norms = [axis_norms("9/7", *pair) for pair in zip(found.encoders, matrices, strict=True)]
    kept = Coefficients(found.weight[0], "9/7", norms).keep(count)
    prediction = replace(found, weight=kept.weight()[None]).predict(axes)[0]
    return float(-10 * torch.log10((prediction - image).square().mean()))


def sound() -> Tensor:
    """The sound of the clip, mixed to one channel: ``(P, 1)`` in [0, 1]."""
    with av.open(str(video_samples()["bigbuckbunny"])) as file:
        parts = [frame.to_ndarray().mean(0) for frame in file.decode(audio=0)]
    mixed = torch.from_numpy(np.concatenate(parts)).float()
    return (0.5 + 0.5 * mixed / mixed.abs().max())[:, None]


def plucked_strings(seconds: int) -> Tensor:
    """Synthesised sound: overlapping tones of plucked strings, one every quarter of a second, ``(P, 1)`` in [0, 1].

    A string is a delay line with a two-point mean in its loop, excited by noise: Karplus and Strong, *Digital synthesis of
    plucked-string and drum timbres*, Computer Music Journal 7, 1983.
    """
    generator, length = np.random.default_rng(0), SOUND_RATE * seconds
    mixed, ring = np.zeros(length + 2 * SOUND_RATE), 2 * SOUND_RATE
    for number in range(4 * seconds):
        period = round(SOUND_RATE / (110 * 2 ** (generator.integers(0, 37) / 12)))  # three octaves above 110 Hz
        excitation = np.zeros(ring)
        excitation[:period] = generator.uniform(-1, 1, period)
        loop = np.zeros(period + 2)
        loop[[0, period, period + 1]] = 1, -0.498, -0.498
        start = number * SOUND_RATE // 4
        mixed[start : start + ring] += lfilter([1.0], loop, excitation)
    heard = torch.from_numpy(mixed[:length]).float()
    return (0.5 + 0.5 * heard / heard.abs().max())[:, None]


def signals(recordings: list[str]) -> None:
    """A clip, a volume and sounds."""
    clip = VideoDataModule("samples://bigbuckbunny", frames=(0, 64), resize=(128, 128)).dataset.values[0]
    # the clip of the prototype: a corner of the frames, which is smoother than whole frames made small
    corner = VideoDataModule("samples://bigbuckbunny", frames=(0, 64)).dataset.values[0][:, :128, :128].contiguous()
    volume = VideoDataModule("samples://phantom3d").dataset.values[0]
    heard = sound()
    strings = plucked_strings(10)
    made = {
        f"clip {tuple(clip.shape)}, resized": clip,
        f"clip {tuple(corner.shape)}, upper left corner of the frames": corner,
        f"volume {tuple(volume.shape)}": volume,
        f"sound of the clip, {len(heard) / 48000:.1f} s at 48 kHz": heard,
        f"plucked strings, synthesised, {len(strings) / SOUND_RATE:.1f} s at 44.1 kHz": strings,
        **{Path(path).stem: RowDataModule(path).dataset.values[0] for path in recordings},
    }
    print("\nsignals: all samples\n\n| signal | kept | numbers | PSNR, dB | bytes | float32 bytes | core s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, values in made.items():
        for share in (0.01, 0.03, 0.1):
            model, found, spent, size = fit(values, share)
            row = f"{psnr(found, values):.2f} | {size:,} | {4 * values.numel():,} | {spent:.2f}"
            print(f"| {name} | {share:.0%} | {model.num_params:,} | {row} |", flush=True)


def memory() -> None:
    """Peak memory of the command, of a process for each signal; the same with a small signal is that of the libraries."""
    generator = np.random.default_rng(0)
    picture = Image.fromarray((255 * load(f"samples://{PHOTOGRAPHS[0]}").numpy()).astype(np.uint8))
    grain = generator.normal(0, 3, (4096, 4096, 3))
    large = (np.asarray(picture.resize((4096, 4096), Image.Resampling.BICUBIC)) + grain).clip(0, 255).astype(np.uint8)
    row = (32768 * (plucked_strings(60)[:, 0].numpy() * 2 - 1)).clip(-32768, 32767).astype(np.int16)
    print("\nmemory: peak of a process, MB; signal: its size in float32, MB; times: above the libraries, and of all\n")
    print("| signal | signal | libraries | fit | fit, test and files | fit, times | all, times | with libraries | core s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        files = {name: str(Path(folder) / name) for name in ("large.png", "small.png", "minute.wav", "short.wav")}
        for name, pixels in (("large.png", large), ("small.png", large[:64, :64])):
            Image.fromarray(pixels).save(files[name], compress_level=1)
        for name, samples in (("minute.wav", row), ("short.wav", row[:4096])):
            soundfile.write(files[name], samples, SOUND_RATE)
        for name, size, kind, whole, small in (
            ("picture, 4096 x 4096", 4096**2 * 3, "image", [files["large.png"]], [files["small.png"]]),
            (
                "clip, 128 x 512 x 512",
                128 * 512**2 * 3,
                "video",
                ["--data.frames", "[0, 128]", "--data.resize", "[512, 512]"],
                ["--data.frames", "[0, 8]", "--data.resize", "[32, 32]"],
            ),
            ("sound, a minute", len(row), "row", [files["minute.wav"]], [files["short.wav"]]),
        ):
            found = [measured(folder, ["--config", f"{kind}/sparse", *paths]) for paths in (small, whole)]
            (_, libraries, _), (fitted, of_all, spent) = found
            signal = 4 * size
            megabytes = " | ".join(f"{x / 1e6:.0f}" for x in (signal, libraries, fitted, of_all))
            times = [(fitted - libraries) / signal, (of_all - libraries) / signal, of_all / signal]
            print(f"| {name} | {megabytes} | {' | '.join(f'{x:.1f}' for x in times)} | {spent:.1f} |", flush=True)


def measured(folder: str, arguments: list[str]) -> tuple[int, int, float]:
    """Peak bytes of ``pe-lightning fit`` when the fit ends, when the process ends, and its core seconds."""
    program = (
        "import sys, time; from pe_lightning.__main__ import main; "
        "from pe_lightning.training.callbacks.devices import peak_resident_bytes; "
        "code = main(sys.argv[1:]); print(); print(peak_resident_bytes(), time.process_time()); sys.exit(code)"
    )
    quiet = ["--trainer.callbacks+=PeakMemory", "--wandb.enabled", "false"]
    run = Path(tempfile.mkdtemp(dir=folder))
    command = [sys.executable, "-c", program, "fit", *arguments, *quiet]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=run, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[3:])} failed:\n{done.stderr[-2000:]}")
    found = json.loads(next(run.glob("runs/*/*/metrics.json")).read_text())
    peak, spent = done.stdout.split()[-2:]
    return found["peak_memory"]["resident_bytes"], int(peak), float(spent)


def total_variation(noisy: np.ndarray, image: Tensor, deviation: float) -> float:
    """PSNR of a grid with nodes at the samples, fitted with a penalty of its total variation, at the best of six weights."""
    from skimage.restoration import denoise_tv_chambolle

    weights = [deviation * share for share in (0.5, 0.7, 1.0, 1.4, 2.0, 2.8)]
    made = (denoise_tv_chambolle(noisy, weight=weight, channel_axis=-1) for weight in weights)
    return max(psnr(x.astype(np.float32), image) for x in made)


def noise(paths: list[str]) -> None:
    """``num_coefficients: auto`` as a denoiser."""
    from skimage.restoration import cycle_spin, denoise_wavelet

    options = {"channel_axis": -1, "convert2ycbcr": True, "rescale_sigma": True, "method": "BayesShrink", "mode": "soft"}
    print(f"\nnoise: all pixels, {len(paths)} pictures, PSNR in dB against the picture without noise\n")
    columns = [
        "noise",
        "as it is",
        "total variation",
        "denoise_wavelet",
        "with bior4.4",
        "cycle_spin(3) of it",
        "num_coefficients: auto",
    ]
    print(f"| {' | '.join([*columns, 'core s', 'numbers kept'])} |\n|{' ---: |' * (len(columns) + 2)}")
    for deviation in (0.03, 0.08, 0.15):
        rows = []
        for number, path in enumerate(paths):
            image = load(path)
            drawn = torch.randn(image.shape, generator=torch.Generator().manual_seed(number))
            noisy = (image + deviation * drawn).clamp(0, 1)
            arrays = noisy.numpy()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                plain = denoise_wavelet(arrays, **options)
                other = denoise_wavelet(arrays, wavelet="bior4.4", **options)
                spun = cycle_spin(
                    arrays, func=denoise_wavelet, max_shifts=3, func_kw=options, channel_axis=-1, num_workers=1
                )
            model, found, spent, _ = fit(noisy, "auto")
            before, *scores = (psnr(x.astype(np.float32), image) for x in (arrays, plain, other, spun))
            smooth = total_variation(arrays, image, deviation)
            rows.append([before, smooth, *scores, psnr(found, image), spent, model.num_params])
        m = np.mean(rows, 0)
        print(f"| {deviation} | " + " | ".join(f"{x:.2f}" for x in m[:7]) + f" | {m[7]:,.0f} |", flush=True)


def held_out(paths: list[str]) -> None:
    """``num_coefficients: auto`` between held-out samples, beside the dense exact fit."""
    print("\nheld-out samples (every second pixel of every second row trained on), against the noisy samples\n")
    print("| noise | dense exact fit | num_coefficients: auto | worst difference | pictures denoised |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for deviation in (0.0, 0.03, 0.08, 0.15):
        rows = []
        for number, path in enumerate(paths):
            image = load(path)
            drawn = torch.randn(image.shape, generator=torch.Generator().manual_seed(number))
            data = TensorDataModule((image + deviation * drawn).clamp(0, 1)[None])
            batch, scores = data.evaluation_batch(), []
            for model in (ComplexLinear("gau", solver="exact"), ComplexLinear("gau", num_coefficients="auto")):
                make_trainer(0).fit(model, data)
                with torch.no_grad():
                    found = model.predict_grid(batch.axes)[0][batch.mask[0]]
                scores.append(float(-10 * torch.log10((found - batch.values[0][batch.mask[0]]).square().mean())))
            rows.append([*scores, scores[1] - scores[0], float(model.solution.sparse.denoised[0])])
        table = np.array(rows)
        print(
            f"| {deviation} | {table[:, 0].mean():.2f} | {table[:, 1].mean():.2f} | {table[:, 2].min():+.2f} "
            f"| {table[:, 3].sum():.0f} of {len(rows)} |",
            flush=True,
        )


def trade(path: str, figure: Path | None) -> None:
    """PSNR by numbers of one picture, beside stored results of others on the same one."""
    image = load(path)
    stored = json.loads(STORED.read_text())
    sizes = sorted({*COUNTS, 100_000, 300_000})
    found = {count: fit(image, count) for count in sizes if count <= image.numel()}
    scores = {count: float(-10 * torch.log10((made[1] - image).square().mean())) for count, made in found.items()}
    print(f"\ntrade: {Path(path).stem}, all pixels, not clamped; stored results: {stored['protocol']}\n")
    print("| numbers | sparse exact fit, dB | core s | bytes |\n| ---: | ---: | ---: | ---: |")
    for count, made in found.items():
        print(f"| {count:,} | {scores[count]:.2f} | {made[2]:.2f} | {made[3]:,} |")
    if figure is None:
        return
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = drawn.subplots(1, 2)
    orange, yellow, black, blue = "#D55E00", "#E69F00", "#000000", "#0072B2"
    ours = list(scores.values())
    about = f"sparse exact fit, {statistics.median(made[2] for made in found.values()):.1f} core s"
    left.plot(list(scores), ours, "o-", color=orange, label=about, zorder=3)
    colors = iter([blue, "#56B4E9", "#CC79A7", black, yellow, "#009E73", "#B8A900"] * 2)
    for name, row in stored["methods"].items():
        style = {"marker": ".", "linestyle": ":" if row["exact"] else "-", "color": next(colors)}
        left.plot(stored["sizes"], row["psnr"], **style, label=f"{name}, {row['seconds']} core s")
    left.set(xscale="log", xlabel="numbers", ylabel="PSNR, dB", title="one photograph, all samples trained on")
    left.legend(fontsize=7, frameon=False)
    right.plot([made[3] for made in found.values()], ours, "o-", color=orange, label="sparse exact fit, float32")
    half = [fit(image, count, storage_dtype="float16") for count in found]
    scored = [psnr(made[1], image) for made in half]
    right.plot([made[3] for made in half], scored, "s-", color=yellow, label="the same, float16")
    for kind, label, color in (("JPEG", "JPEG", black), ("WEBP", "WebP", blue)):
        points = {coded(image, kind, made[3])[::-1] for made in half}
        right.plot(*zip(*sorted(points), strict=True), ".-", color=color, label=label)
    right.set(xscale="log", xlabel="bytes of the file", title="the same, against bytes")
    right.legend(fontsize=8, frameon=False)
    for axis in (left, right):
        axis.grid(alpha=0.25)
    drawn.savefig(figure, dpi=80)
    print(f"wrote {figure}")


def files_of(paths: list[str]) -> list[str]:
    """Pictures, those of folders included."""
    found: list[str] = []
    for path in paths:
        found += sorted(str(file) for file in Path(path).iterdir() if file.suffix) if os.path.isdir(path) else [path]
    return found


def main(arguments: list[str] | None = None) -> None:
    """Runs the sections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default=",".join(name for name in SECTIONS if name not in ON_REQUEST), help="sections, separated by commas"
    )
    parser.add_argument("--paths", nargs="+", help="pictures, or folders of them; default: photographs of scikit-image")
    parser.add_argument("--sounds", nargs="+", default=[], help="recordings for the section signals")
    parser.add_argument("--figure", type=Path, help="where the section trade draws")
    options = parser.parse_args(arguments)
    chosen = options.only.split(",")
    if not set(chosen) <= set(SECTIONS):
        parser.error(f"--only takes {', '.join(SECTIONS)}; got {options.only}")
    paths = files_of(options.paths or [f"samples://{name}" for name in PHOTOGRAPHS])
    torch.set_num_threads(1)
    disable_possible_user_warnings()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    print(f"{Path(__file__).name}: {machine()}, load {os.getloadavg()[0]:.1f}", flush=True)
    fit(torch.rand(16, 16, 3), 0.5)  # what is imported and compiled on first use
    if "pictures" in chosen:
        pictures(paths)
    if "codecs" in chosen:
        codecs(paths)
    if "worth" in chosen:
        worth(paths)
    if "signals" in chosen:
        signals(options.sounds)
    if "noise" in chosen:
        noise(paths[:8])
    if "held-out" in chosen:
        held_out(paths[:8])
    if "trade" in chosen:
        trade(paths[0], options.figure)
    if "memory" in chosen:
        memory()


if __name__ == "__main__":
    main()
