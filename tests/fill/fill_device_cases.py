"""Small fits of the models of this package, as those of ``device_cases.py``."""

from device_cases import Case, with_gap
from fits import SAMPLINGS, signals

from pe_fill import Adaptive, Local, SparseLinear
from pe_lightning.signals import GridSampling

CASES: dict[str, Case] = {
    "sparse": Case(lambda: SparseLinear("keys", num_coefficients=60), data={"sampling": GridSampling(1)}),
    "adaptive": Case(Adaptive, lambda: signals(1, 24, 20)),
    "adaptive, noise": Case(lambda: Adaptive(noise="auto"), lambda: signals(1, 24, 20)),
    "adaptive, scattered": Case(Adaptive, lambda: signals(1, 16, 12), {"sampling": SAMPLINGS["random"]}),
    "adaptive, row": Case(Adaptive, lambda: signals(2, 64)),
    "adaptive, cube": Case(Adaptive, lambda: signals(1, 12, 12, 12)),
    "adaptive, prior": Case(lambda: Adaptive(pretrained="pictures"), lambda: signals(1, 48, 40)),
    "local": Case(Local, lambda: signals(1, 48, 40)),
    "gap, adaptive": Case(Adaptive, lambda: with_gap()[:1, :16, :12]),
}
