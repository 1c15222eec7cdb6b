"""What to type for a fill, where the word of another program is given; examples in the help."""

from pe_lightning.hints import Hints

_SMOOTH = ("", "pe-lightning fill FILE --smooth --out OUT")
_UPSCALE = ("", "pe-lightning fill FILE --upscale 2 --out OUT")
_PATCHES = "networks of patches are trained by python datasets/make_priors.py pictures, in a checkout of the repository"
HINTS = Hints(
    words={
        "periodic": (("--data", "--data.coordinates time --data.values NAME --data.periodic time=24h"),),
        "mask": (("--missing", "--missing MASK"),),
        "denoise": (("--smooth", "--smooth"), _SMOOTH),
        "smooth": (_SMOOTH,),
        "scale": (("--upscale", "--upscale 2"),),
        "upscale": (_UPSCALE,),
        "enlarge": (("--upscale", "--upscale 2"), _UPSCALE),
        "inpaint": (("", "pe-lightning fill FILE --missing MASK --out OUT"),),
        "prior/pictures": (("", "python datasets/make_priors.py pictures, in a checkout of the repository"),),
        "prior/cells": (("", "python datasets/make_priors.py cells, in a checkout of the repository"),),
        "demo": (("", "python benchmarks/gallery.py FOLDER, in a checkout of the repository"),),
        "compress": (("", "pe-lightning fit FILE --config image/sparse"),),
    },
    examples={
        "": ("pe-lightning fill photo.jpg --upscale 2 --out large.png",),
        "fit": ("pe-lightning fit stations.csv --data.coordinates lon,lat --data.values temperature      scattered points",),
        "predict": (
            "pe-lightning predict --ckpt_path RUN/checkpoints/last.ckpt --at places.csv      a model of scattered points",
        ),
    },
    removed={
        "PatchRegression": f"PatchRegression is no --model any more: {_PATCHES}",
        "PatchDataModule": f"PatchDataModule is no --data any more: {_PATCHES}",
        "pe_fill.networks.patches": f"pe_fill.networks.patches is gone: {_PATCHES}",
    },
)
