"""Complex encoding by gradient descent, the papers' Table 1 settings, on pictures of one's own.

    python benchmarks/table1.py --paths FOLDER       # 512 x 512 pictures; all are fitted together
    python benchmarks/table1.py --steps 100          # quick look on a sample

Protocol: train on every second pixel of each axis, test on all the remaining ones, K = 256 per axis, Adam 0.1, 2000
full-batch steps, means not taken out, predictions not clamped; PSNR per picture, then mean and standard deviation.
``--center`` takes each picture's mean out first, which the papers do not.
"""

from __future__ import annotations

import argparse
import time

from quiet import machine, make_trainer

from pe_lightning.data import ImageDataModule
from pe_lightning.modules import ComplexLinear

SETTINGS = {
    "linf": {"sigma": 4.5},
    "logf": {"sigma": 6.5},
    "rff": {"sigma": 42.0},
    "tri": {"half_width": 2 / 256},
    "gau": {"sigma": 0.004},
}
"""Table 1, complex encoding, gradient descent."""


def main() -> None:
    """Prints a row per encoder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", default="samples://astronaut")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--encoders", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--center", action="store_true")
    options = parser.parse_args()
    data = ImageDataModule(options.paths)
    print(f"{machine()}; {data.info.num_signals} picture(s) of {data.info.grid}, {options.steps} steps, {data.protocol}")
    print("encoder   test PSNR (dB)   train PSNR (dB)   seconds per picture")
    for name in options.encoders:
        module = ComplexLinear({"name": name, "num_features": 256, **SETTINGS[name]}, center=options.center)
        trainer = make_trainer(options.steps)
        start = time.perf_counter()
        trainer.fit(module, datamodule=data)
        seconds = (time.perf_counter() - start) / data.info.num_signals
        trainer.test(module, datamodule=data, verbose=False)
        test, train = module.scores["test/psnr"], module.scores["train/psnr"]
        print(
            f"{name:<9} {test.mean():6.2f} ± {test.std(correction=0):4.2f}    {train.mean():6.2f} ± "
            f"{train.std(correction=0):4.2f}     {seconds:6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
