"""Scores of every registered encoder on a bundled picture, as YAML for its page: ``pe-lightning pages``.

    python benchmarks/encoder_scores.py --out benchmarks/encoder_scores.yaml     # minutes on two CPU cores
    python benchmarks/encoder_scores.py --encoders chirp --out chirp.yaml        # of a plugin alone

Exact fits are of ``ComplexLinear`` at the defaults, and with the width chosen on held-out training samples. Encoders that
learn or take several axes at once are fitted below a perceptron of two layers of 64 units, on the same picture at 128 x 128,
500 steps, seed 0. Scores of other encoders that the file holds are kept.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import yaml
from harness import machine, make_parser, make_trainer
from lightning.pytorch import seed_everything

from pe_lightning import encoders
from pe_lightning.encoders import registry
from pe_lightning.errors import InputError
from pe_lightning.training import ComplexLinear, CoordinateModule, ImageDataModule, SimpleMLP

PROTOCOL = (
    "`samples://astronaut`, every second pixel of both axes trained on, PSNR of the others; exact fits at 512 x 512, where "
    "bicubic interpolation has 28.63 dB, perceptrons (two layers of 64 units, 500 steps, seed 0) at 128 x 128, where it has "
    "23.13."
)


def score(module: CoordinateModule, data: ImageDataModule, steps: int) -> float | str:
    """The held-out PSNR, or why there is none."""
    seed_everything(0, verbose=False)
    trainer = make_trainer(steps)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # low rank and the like: the score is what is asked for
            trainer.fit(module, datamodule=data)
            trainer.test(module, datamodule=data, verbose=False)
    except InputError as error:
        return str(error)
    return round(module.scores["test/psnr"].mean().item(), 2)


if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--encoders", nargs="+", default=encoders.names())
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    print(machine())
    large, small = ImageDataModule("samples://astronaut"), ImageDataModule("samples://astronaut", resize=128)
    scores = yaml.safe_load(options.out.read_text())["scores"] if options.out.exists() else {}
    for name in options.encoders:
        cls, rows = registry.get(name), {}
        trained = any(True for _ in encoders.create(name).parameters())
        if not trained:
            rows["exact, defaults"] = score(ComplexLinear(name, solver="exact"), large, 0)
            if cls.width is not None:
                chosen = ComplexLinear({"name": name, "width": "auto"}, solver="exact")
                rows["exact, width chosen"] = score(chosen, large, 0)
        if trained or cls.joint:
            rows["perceptron"] = score(SimpleMLP(name, depth=2, hidden_size=64), small, 500)
        print(name, rows, flush=True)
        scores[name] = rows
        content = {"command": f"python {Path(__file__).parent.name}/{Path(__file__).name} --out FILE", "protocol": PROTOCOL}
        text = yaml.safe_dump({**content, "scores": scores}, sort_keys=True, width=120)
        options.out.write_text(f"# {machine()}\n{text}")
