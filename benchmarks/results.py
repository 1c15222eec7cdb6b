"""The numbers of README, the home page, the gallery and docs/which.md: measures them and writes them into the pages.

    python benchmarks/results.py --only gallery,sparse --pictures FOLDER  # measures, updates docs/results.yaml and the pages
    python benchmarks/results.py --pictures FOLDER                       # all of them; the file says what each cost
    python benchmarks/results.py --pages                                 # measures nothing, writes the file into the pages

``docs/results.yaml`` has an entry for each measurement: command, machine, date, core seconds and values. A page names a
value in a comment before the number, ``<!-- = astronaut.adaptive.psnr -->30.04``, or a difference of two,
``<!-- = astronaut.adaptive.psnr - astronaut.bicubic.psnr -->1.41``. The number keeps the decimals that it has on the page.
FOLDER has 16 photographs of 512 x 512 pixels, 00.png to 15.png.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import harness
import numpy as np
import pandas as pd
import torch
import yaml
from harness import PHOTOGRAPHS, ROOT, bicubic_psnr, machine, make_parser, psnr, run, run_python, score_between
from PIL import Image
from torch import Tensor

import pe_fill
import pe_lightning
from pe_fill import Adaptive, Local
from pe_lightning.training import ComplexLinear, ImageDataModule, VideoDataModule

FILE = ROOT / "docs/results.yaml"
HEADER = "# Written by benchmarks/results.py, which reads it into README and the pages of docs/.\n"
MARKED = re.compile(r"(<!-- = ([\w.]+)(?: - ([\w.]+))? -->)(\d+(?:,\d{3})*(?:\.\d+)?)")
"""A number of a page: its marker, the value, the value that is subtracted, and the number itself."""

IN_TIME = [
    {"signal": "photographs", "samples": "every second", "method": f"{encoder} exact"}
    for encoder in ("gau", "keys", "laplace", "rff")
]
"""Settings of the exact fits that are drawn beside the curves of the part minute."""

Values = dict[str, dict[str, float]]
"""By method: ``psnr`` in dB, ``seconds`` of a core, ``numbers`` that are stored, or another quantity."""


# -- pages ------------------------------------------------------------------------------------------------------------


def read() -> dict[str, Any]:
    """The file of results."""
    return dict(yaml.safe_load(FILE.read_text())) if FILE.is_file() else {}


def pages() -> list[Path]:
    """README and the pages of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def look_up(results: Mapping[str, Any], key: str) -> float:
    """A value by measurement, method and quantity: ``astronaut.adaptive.psnr``."""
    measurement, *rest = key.split(".")
    try:
        method, quantity = rest
        return float(results[measurement]["values"][method][quantity])
    except (KeyError, ValueError) as error:
        raise SystemExit(f"{FILE.name} has no value {key!r}; measurements: {', '.join(results)}") from error


def fill_in(text: str, results: Mapping[str, Any]) -> str:
    """A page with the values of the results in its marked numbers."""

    def number(match: re.Match[str]) -> str:
        marker, key, subtracted, shown = match.groups()
        value = look_up(results, key) - (look_up(results, subtracted) if subtracted else 0)
        if value < 0:
            raise SystemExit(f"{marker}: the difference is {value:.2f} now: change the sentence, and swap the two values")
        decimals = len(shown.partition(".")[2])
        return f"{marker}{value:{',' if value >= 1000 else ''}.{decimals}f}"

    return MARKED.sub(number, text)


def write_pages(results: Mapping[str, Any]) -> None:
    """Writes the results into the pages whose numbers differ."""
    for page in pages():
        before = page.read_text()
        after = fill_in(before, results)
        if before != after:
            page.write_text(after)
            print(f"updated {page.relative_to(ROOT)}")


# -- measurements -----------------------------------------------------------------------------------------------------


def photographs(folder: Path) -> Values:
    """Pixels between every second one of every second row, 16 photographs; adaptive_prior and local have seen others."""
    return _between(ImageDataModule(str(folder)).values)


def astronaut() -> Values:
    """Pixels between every second one of every second row of samples://astronaut."""
    return _between(ImageDataModule("samples://astronaut").values)


def text() -> Values:
    """Pixels between every second one of every second row of words in fonts that the prior was not trained on."""
    import prior

    return _between(prior.held_out_pictures(4)["words, other fonts"])


def _between(pictures: Iterable[Tensor]) -> Values:
    models: dict[str, Callable[[], dict[str, Any]]] = {
        "gau": lambda: {"encoder": "gau"},
        "rff": lambda: {"encoder": "rff"},
        "adaptive": lambda: {"model": Adaptive(pretrained="none")},
        "adaptive_prior": lambda: {"model": Adaptive(pretrained="pictures")},
        "local": lambda: {"model": Local()},
    }
    rows = []
    for picture in pictures:
        fits = score_between(picture, models)
        rows.append({"bicubic": bicubic_psnr(picture), **{name: fit.psnr for name, fit in fits.items()}})
    return _psnr({name: float(np.mean([row[name] for row in rows])) for name in rows[0]})


def noisy(folder: Path) -> Values:
    """The same 16 photographs, with noise of 25/255 on the known pixels."""
    import adaptive

    methods = {"bicubic": adaptive.baseline("bicubic"), "adaptive": adaptive.fitted}
    methods["adaptive_noise_auto"] = adaptive.denoised
    return _psnr(adaptive.table(ImageDataModule(str(folder)).values, methods, noise=25 / 255))


def scattered(folder: Path) -> Values:
    """25 % of the pixels at random, the first four photographs."""
    import adaptive

    found = adaptive.points(ImageDataModule(str(folder)).values[:4], 0.25)
    names = {"delaunay": "linear", "Adaptive": "adaptive", "laplace, conjugate gradients": "laplace"}
    return _psnr({name: found[row] for row, name in names.items()})


def clip() -> Values:
    """Every second sample of each axis of 128 x 128 x 128 of samples://bigbuckbunny; gau, tri as in Table 3 of the paper."""
    import adaptive

    cube = VideoDataModule("samples://bigbuckbunny", preset="papers").values
    values = _psnr(adaptive.table(cube, {"tricubic": adaptive.baseline("bicubic"), "adaptive": adaptive.fitted}))
    gau = {"name": "gau", "num_features": 64}
    adam: Any = partial(torch.optim.Adam, lr=0.1, weight_decay=1e-8, fused=True)
    models = {
        "tri_exact": ComplexLinear({"name": "tri", "num_features": 64, "half_width": 0.046875}, solver="exact"),
        "gau_exact": ComplexLinear({**gau, "sigma": 0.009}, solver="exact"),
        "gau_trained": ComplexLinear({**gau, "sigma": 0.015}, center=False, optimizer=adam),
    }
    for name, model in models.items():
        data = VideoDataModule("samples://bigbuckbunny", preset="papers")
        data.setup("fit")  # reading the clip is no part of the seconds
        began = time.process_time()
        fitted = pe_lightning.fit(data, model=model, max_steps=500 if name == "gau_trained" else 0)
        spent = time.process_time() - began
        values[name] = {"psnr": fitted.psnr, "seconds": spent, "numbers": fitted.num_params}
    return values


def sound() -> Values:
    """Every second sample of plucked strings, 5 s at 44.1 kHz, stereo: pe-lightning fit FILE."""
    return _first_try("sound", "strings, 5 s at 44.1 kHz", "linear")


def volume() -> Values:
    """Every second sample of each axis of the phantom as NIfTI: pe-lightning fit FILE."""
    return _first_try("volume", "phantom.nii.gz", "bicubic")


def _first_try(kind: str, label: str, baseline: str) -> Values:
    import first_try

    with tempfile.TemporaryDirectory() as name:
        arguments = next(row[2] for row in first_try.cases(Path(name)) if row[:2] == (kind, label))
        metrics = first_try.fit(arguments, Path(name))
    return _psnr({baseline: metrics["baselines"][baseline]["test/psnr"], "adaptive": metrics["test/psnr"]})


def encodings() -> Values:
    """The part quick of the study configs/studies/encodings.yaml, three seeds: held-out PSNR by signal and samples."""
    return _study("encodings", "quick", 3, "stable_rank.features", "similarity.times_rank")


def minute() -> Values:
    """The part minute of the study configs/studies/encodings.yaml: photographs, 20 core seconds, 1e4 and 1e5 numbers.

    Its curves are drawn beside the exact fits of the part quick.
    """
    values = _study("encodings", "minute", 1)
    quick = _cells("encodings-quick")[0]
    exact = [cell["run_dir"] for cell in quick if any(wanted.items() <= cell["settings"].items() for wanted in IN_TIME)]
    runs = [str(ROOT / "sweeps/encodings-minute"), *(str(ROOT / "sweeps/encodings-quick" / name) for name in exact)]
    with tempfile.TemporaryDirectory() as temporary:
        run("compare", *runs, "--by", "method,num_params", "--out", "curves", folder=Path(temporary), OMP_NUM_THREADS="1")
        _save_figure(Path(temporary) / "curves/psnr_vs_seconds.png", "encodings-minute-seconds.png")
    return values


def storage() -> Values:
    """The part quick of the study configs/studies/storage.yaml: all samples trained on and scored, by 1e4 numbers."""
    return _study("storage", "quick", 1)


def _study(name: str, part: str, repeats: int, *against: str) -> Values:
    """Mean PSNR and gain over interpolation by method; the table goes to docs/which.md; figures and CSV with ``against``.

    Cells that ``sweeps/`` has are not run again.
    """
    out = ROOT / f"sweeps/{name}-{part}"
    words = ("--study", name, "--part", part, *(("--repeats", str(repeats)) if repeats > 1 else ()))
    # status 1: some cells are refused, such as of a hash grid that is never so large
    run("sweep", *words, "--out", str(out), folder=ROOT, allowed=(0, 1), OMP_NUM_THREADS="1")
    by = ("method", "num_params") if part == "minute" else ("method",)
    done, failed = _cells(out.name)
    for cell in failed:
        print(", ".join(cell["settings"].values()), cell["status"], cell["error"], sep=": ")
    # the theory is of linear layers
    linear = [str(out / cell["run_dir"]) for cell in done if cell["settings"]["method"].endswith((" exact", " complex"))]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        words = ("--by", ",".join(by), "--across", "signal,samples")
        print(run("compare", str(out), *words, "--out", "all", folder=folder, OMP_NUM_THREADS="1")[0])
        if against:
            words = (*words, "--against", ",".join(against), "--out", "linear")
            print(run("compare", *linear, *words, folder=folder, OMP_NUM_THREADS="1")[0])
        found = folder / "all"
        if against:
            shutil.copy(found / "overview.csv", ROOT / f"configs/studies/{name}.csv")
        for path in [*found.glob("overview.png"), *folder.glob("linear/score*.png")] if against else []:
            _save_figure(path, f"{name}-{part}-{path.stem.removeprefix('score_vs_')}.png")
        page = ROOT / "docs/which.md"
        page.write_text(with_table(page.read_text(), f"{name}-{part}", (found / "overview.md").read_text()))
        table = pd.read_csv(found / "overview.csv", dtype=dict.fromkeys(by, str)).fillna(dict.fromkeys(by, ""))
    values: Values = {}
    for _, row in table.iterrows():
        scores = row.drop(list(by)).dropna()
        values[key_of(" ".join(row[list(by)]))] = {key_of(str(column)): float(value) for column, value in scores.items()}
    return values


def _cells(sweep: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The cells of a sweep: those that are done, and those that are not."""
    cells = json.loads((ROOT / f"sweeps/{sweep}/sweep.json").read_text())["cells"]
    return [cell for cell in cells if cell["status"] == "done"], [cell for cell in cells if cell["status"] != "done"]


def _save_figure(path: Path, name: str) -> None:
    """Writes a figure to docs/ with few colours."""
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(64, Image.Quantize.MAXCOVERAGE).save(ROOT / "docs" / name, optimize=True)


def key_of(text: str) -> str:
    """A name as a key of the file: ``rff_mlp``."""
    return re.sub(r"\W+", "_", text).strip("_").lower()


def with_table(page: str, name: str, table: str) -> str:
    """A page with the table between ``<!-- table NAME -->`` and ``<!-- end -->``."""
    before, opening, rest = page.partition(f"<!-- table {name} -->\n")
    _, closing, after = rest.partition("<!-- end -->")
    if not closing:
        raise SystemExit(f"docs/which.md has no place for the table {name}")
    return f"{before}{opening}\n{table}\n{closing}{after}"


def sparse(folder: Path) -> Values:
    """All pixels, clamped, mean of 16 photographs, by 207,000 numbers; median of the core seconds of fit and prediction."""
    benchmark, scores, seconds = _sparse(), [], []
    for picture in harness.load_all([str(folder)]):
        _, found, spent, _ = benchmark.fit(picture, 207_000)
        scores.append(benchmark.clamped_psnr(found, picture))
        seconds.append(spent)
    return {"keys": {"psnr": float(np.mean(scores)), "seconds": statistics.median(seconds), "numbers": 207_000}}


def _sparse() -> Any:
    """The benchmark, after a fit that imports and compiles, which is no part of the seconds."""
    import sparse

    sparse.fit(torch.rand(16, 16, 3), 0.5)
    return sparse


def denoise() -> Values:
    """Middles (128 x 128) of four photographs of scikit-image, noise of 10, 25, 50 of 255, clipped; BM3D knows it."""
    import skimage.data

    methods: dict[str, Callable[[Any, float], Any]] = {
        "fill_smooth": lambda noisy, deviation: pe_fill.fill(noisy, smooth=True, folds="none").values
    }
    # without the package the stored scores are kept
    values: Values = {"fill_smooth": {}, "bm3d": read()["denoise"]["values"]["bm3d"]}
    if importlib.util.find_spec("bm3d") is not None:
        methods["bm3d"] = importlib.import_module("bm3d").bm3d_rgb
    for level in (10, 25, 50):
        scores: dict[str, list[float]] = {name: [] for name in methods}
        for name in PHOTOGRAPHS:
            whole = getattr(skimage.data, name)() / 255
            row, column = ((size - 128) // 2 for size in whole.shape[:2])
            picture = whole[row : row + 128, column : column + 128]
            noisy = np.clip(picture + np.random.default_rng(0).normal(0, level / 255, picture.shape), 0, 1)
            for key, method in methods.items():
                scores[key].append(psnr(np.clip(method(noisy, level / 255), 0, 1) - picture))
        for key, found in scores.items():
            values[key][f"psnr_{level}"] = float(np.mean(found))
    return values


def gallery() -> Values:
    """The scores that benchmarks/gallery.py prints, its core seconds; its pictures go to docs/gallery."""
    from gallery import write_gallery

    with tempfile.TemporaryDirectory() as temporary:
        folder, start = Path(temporary), time.process_time()
        found = write_gallery(folder, 192)
        values: Values = {"command": {"seconds": time.process_time() - start}}
        for name, scores in found.items():
            values[name] = {key_of(label): score for label, score in scores.items()}
            (ROOT / "docs/gallery" / f"{name}.jpg").write_bytes((folder / f"{name}.jpg").read_bytes())
    return values


def first_fit() -> Values:
    """PSNR and core seconds, imports included, of image/demo as README trains, solves and compares it; its two pictures."""
    demo = ("--config", "image/demo", "--wandb.enabled", "false")
    runs = {name: f"runs/astronaut-ComplexLinear-gau/{number}" for number, name in enumerate(("trained", "exact"), 1)}
    commands = {
        runs["trained"]: ("fit", *demo),
        runs["exact"]: ("fit", *demo, "--model.solver", "exact", "--trainer.max_steps", "0"),
        "two": ("sweep", *demo, "--vary", "model.encoder=gau,rff", "--data.batching.steps_per_epoch", "10", "--out", "two"),
        "report": ("compare", "two", "--by", "encoder.name", "--out", "report"),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds = {output: run(*command, folder=folder, OMP_NUM_THREADS="1")[2] for output, command in commands.items()}
        found = {name: json.loads((folder / output / "metrics.json").read_text()) for name, output in runs.items()}
        values = {name: {"psnr": found[name]["test/psnr"], "seconds": seconds[output]} for name, output in runs.items()}
        shutil.copy(folder / "report/psnr_vs_step.png", ROOT / "docs/tutorials/wandb.png")
        with Image.open(folder / runs["trained"] / "reconstructions/astronaut_comparison.png") as picture:
            picture.convert("RGB").reduce(2).save(ROOT / "docs/demo.jpg", quality=80)
        return {**values, "bicubic": {"psnr": found["trained"]["baselines"]["bicubic"]["test/psnr"]}}


def tests() -> Values:
    """Core minutes of the second command of README, pytest."""
    return {"pytest": {"minutes": run_python(["-m", "pytest", "-q"], ROOT)[2] / 60}}


def _psnr(found: Mapping[str, float]) -> Values:
    return {name: {"psnr": value} for name, value in found.items()}


OF_PICTURES = (photographs, noisy, scattered, sparse)
OTHERS = (encodings, minute, storage, astronaut, text, clip, sound, volume, denoise, gallery, first_fit, tests)
MEASUREMENTS: dict[str, Callable[..., Values]] = {function.__name__: function for function in (*OF_PICTURES, *OTHERS)}


def measure(name: str, folder: Path | None) -> dict[str, Any]:
    """The entry of a measurement."""
    function = MEASUREMENTS[name]
    needs_pictures = function in OF_PICTURES
    began = time.process_time() + harness.children_seconds()
    values = function(folder) if needs_pictures else function()
    cost = time.process_time() + harness.children_seconds() - began
    return {
        "what": (function.__doc__ or "").strip(),
        "command": f"python benchmarks/results.py --only {name}" + " --pictures FOLDER" * needs_pictures,
        "machine": machine(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "core_seconds": round(cost),
        "values": {method: {key: round(value, 4) for key, value in row.items()} for method, row in values.items()},
    }


def main() -> None:
    """Measures, and writes the file and the pages."""
    parser = make_parser(__doc__)
    parser.add_argument("--only", default=",".join(MEASUREMENTS), help="separated by commas: " + ", ".join(MEASUREMENTS))
    parser.add_argument("--pictures", type=Path, help="folder of 16 photographs, 00.png to 15.png")
    parser.add_argument("--pages", action="store_true", help="measure nothing")
    options = parser.parse_args()
    results = read()
    chosen = [] if options.pages else options.only.split(",")
    if unknown := [name for name in chosen if name not in MEASUREMENTS]:
        parser.error(f"--only takes {', '.join(MEASUREMENTS)}; got {', '.join(unknown)}")
    if options.pictures is None and (missing := [name for name in chosen if MEASUREMENTS[name] in OF_PICTURES]):
        parser.error(f"{', '.join(missing)}: give --pictures FOLDER, or --only others")
    torch.set_num_threads(1)
    for name in chosen:
        entry = measure(name, options.pictures)
        results = {**read(), name: entry}  # another process may have written entries in the meantime
        FILE.write_text(HEADER + yaml.safe_dump(results, sort_keys=True, width=120))
        print(f"{name}: {entry['core_seconds']} core seconds, {entry['values']}", flush=True)
    write_pages(results)


if __name__ == "__main__":
    main()
