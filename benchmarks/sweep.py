"""``pe-lightning sweep`` of 5 encoders x 3 widths through the closed form, against 15 separate ``fit`` commands.

    python benchmarks/sweep.py                            # four of scikit-image's photographs, 256 x 256
    python benchmarks/sweep.py --paths natural16 --resize 512 --num_features 256

Every width is half, once and twice its default. Both ways write the same run directories, without W&B; that their PSNR is
the same is checked. The first line names the machine and its load: the ratio holds for equal loads only.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

from quiet import ROOT, machine, run

from pe_lightning import encoders

WIDTHS = {"gau": "sigma", "tri": "half_width", "laplace": "scale", "rff": "sigma", "rect": "sigma"}
SAMPLES = ["samples://astronaut", "samples://coffee", "samples://chelsea", "samples://rocket"]


def settings(num_features: int) -> list[str]:
    """The fifteen encoders, as YAML."""
    found = []
    for name, width in WIDTHS.items():
        default = float(getattr(encoders.create(name, num_features=num_features), width))
        found += [
            f"{{name: {name}, num_features: {num_features}, {width}: {default * step:.6f}}}" for step in (0.5, 1.0, 2.0)
        ]
    return found


def main() -> None:
    """Runs both and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paths", nargs="+", default=SAMPLES, help="pictures or folders")
    parser.add_argument("--resize", type=int, default=256)
    parser.add_argument("--num_features", type=int, default=128)
    options = parser.parse_args()
    paths = [path if "://" in path else str(Path(path).absolute()) for path in options.paths]
    common = ["--config", str(ROOT / "configs/image/closed_form.yaml"), "--data.paths", json.dumps(paths)]
    common += ["--data.resize", str(options.resize), "--wandb.enabled", "false", "--trainer.enable_progress_bar", "false"]
    cells = settings(options.num_features)
    print(f"{machine()}, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = {"PE_LIGHTNING_CACHE": str(folder / "cache")}
        run("fit", *common, folder=folder, **cache)  # decodes into the cache, warms the disk
        _, swept = run(
            "sweep", *common, "--vary", f"model.encoder={','.join(cells)}", "--out", "swept", folder=folder, **cache
        )
        middle = os.getloadavg()[0]
        alone = [run("fit", *common, f"--model.encoder={cell}", folder=folder, **cache)[1] for cell in cells]
        scores = sorted(json.loads(path.read_text())["test/psnr"] for path in folder.glob("swept/*/metrics.json"))
        fits = sorted(json.loads(path.read_text())["test/psnr"] for path in folder.glob("runs/*/*/metrics.json"))
        _, again = run(
            "sweep", *common, "--vary", f"model.encoder={','.join(cells)}", "--out", "swept", folder=folder, **cache
        )
    assert len(scores) == len(cells)
    assert set(scores) <= set(fits), "the sweep's runs are those of the single commands"
    print(f"sweep of {len(cells)} cells:     {swept:6.1f} s, {swept / len(cells):.2f} s each")
    print(f"{len(cells)} fit commands:       {sum(alone):6.1f} s, {sum(alone) / len(cells):.2f} s each (load {middle:.1f})")
    print(f"ratio:                 {sum(alone) / swept:6.1f}")
    print(f"the same sweep again:  {again:6.1f} s")


if __name__ == "__main__":
    main()
