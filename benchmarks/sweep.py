"""``pe-lightning sweep`` of 5 encoders x 3 widths through the closed form, against 15 separate ``fit`` commands.

    python benchmarks/sweep.py --paths natural16 --resize 512

Every width is half, once and twice its default. Both ways write the same run directories, without W&B; that their PSNR is
the same is checked.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from harness import PHOTOGRAPHS, machine, make_parser, run

from pe_lightning import encoders

WIDTHS = {"gau": "sigma", "tri": "half_width", "laplace": "scale", "rff": "sigma", "rect": "sigma"}


def settings(num_features: int) -> list[str]:
    """The fifteen encoders, as YAML."""
    found = []
    for name, width in WIDTHS.items():
        default = float(getattr(encoders.create(name, num_features=num_features), width))
        shared = f"name: {name}, num_features: {num_features}"
        found += [f"{{{shared}, {width}: {default * factor:.6f}}}" for factor in (0.5, 1.0, 2.0)]
    return found


def main() -> None:
    """Runs both and prints their seconds."""
    parser = make_parser(__doc__)
    parser.add_argument("--paths", nargs="+", default=[f"samples://{name}" for name in PHOTOGRAPHS], help="or folders")
    parser.add_argument("--resize", type=int, default=256)
    parser.add_argument("--num_features", type=int, default=256)
    options = parser.parse_args()
    paths = [path if "://" in path else str(Path(path).absolute()) for path in options.paths]
    common = ["--config", "image/closed_form", "--data.paths", json.dumps(paths)]
    common += [
        "--data.resize",
        json.dumps([options.resize] * 2),
        "--wandb.enabled",
        "false",
        "--trainer.enable_progress_bar",
        "false",
    ]
    cells = settings(options.num_features)
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = {"PE_LIGHTNING_CACHE": str(folder / "cache")}
        run("fit", *common, folder=folder, **cache)  # decodes into the cache
        sweep = ["sweep", *common, "--vary", f"model.encoder={','.join(cells)}", "--out", "swept"]
        _, *swept = run(*sweep, folder=folder, **cache)
        alone = [run("fit", *common, f"--model.encoder={cell}", folder=folder, **cache)[1:] for cell in cells]
        scores, fits = (
            {json.loads(path.read_text())["test/psnr"] for path in folder.glob(pattern)}
            for pattern in ("swept/*/metrics.json", "runs/*/*/metrics.json")
        )
    assert scores <= fits, "the sweep's runs are those of the single commands"
    for label, (wall, core) in {"sweep": swept, "fit commands": map(sum, zip(*alone, strict=True))}.items():
        print(f"{len(cells)} cells, {label}: {wall:.1f} s, {core:.1f} core seconds", flush=True)


if __name__ == "__main__":
    main()
