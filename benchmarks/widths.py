"""Learned widths from a start that is four times wrong: the held-out PSNR, against the best fixed one.

    python benchmarks/widths.py --path FOLDER/00.png      # three minutes

Every second pixel of both axes is trained on. The best fixed width is that of a ladder in steps of the square root of two
around the default, ridges chosen. ``descent`` is gradient descent of weights and width together, with the default optimiser
of ComplexLinear.
"""

from __future__ import annotations

import warnings

from harness import machine, make_parser, print_row, print_titles

import pe_lightning
from pe_lightning import encoders
from pe_lightning.training import ComplexLinear, ImageDataModule


def main() -> None:
    """Prints the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--path", default="samples://astronaut")
    parser.add_argument("--resize", type=int)
    parser.add_argument("--encoders", nargs="+", default=["gau", "laplace", "rff"])
    parser.add_argument("--descent", type=int, default=100, help="steps of gradient descent")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(machine())
    print_titles(
        "encoder", "best fixed width, dB", *(f"{how}, x {start}" for start in (4, 0.25) for how in ("learned", "descent"))
    )
    data = ImageDataModule(options.path, resize=options.resize)
    for name in options.encoders:
        samples = encoders.Samples(tuple((n + 1) // 2 for n in data.info.grid))
        encoder = encoders.resolve(name).for_data(samples)
        argument = encoder.width.argument
        default = float(getattr(encoder, argument))

        def scaled(factor: float, trainable: bool = False) -> encoders.Encoder:
            return encoder.copy(**{argument: default * factor, "trainable": trainable})  # noqa: B023

        row = [max(pe_lightning.fit(data, scaled(2 ** (k / 2))).psnr for k in range(-4, 5))]
        for factor in (4.0, 0.25):
            row.append(pe_lightning.fit(data, scaled(factor, trainable=True)).psnr)
            model = ComplexLinear(scaled(factor, trainable=True))
            row.append(pe_lightning.fit(data, model=model, max_steps=options.descent).psnr)
        print_row(name, *row)


if __name__ == "__main__":
    main()
