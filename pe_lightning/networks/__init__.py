"""Networks: coordinates to values of ONE signal, in plain PyTorch; and many of them evaluated together.

A network has a :class:`~torch.nn.Module` signature that a reader of any SIREN file knows: ``(*batch, D) -> (*batch, C)``.
:class:`VmapEnsemble` holds one per signal and evaluates all of them by :mod:`torch.func`.
"""

from pe_lightning.networks.activations import Activation, activations, find_activation
from pe_lightning.networks.base import Network
from pe_lightning.networks.complex import ComplexNetwork
from pe_lightning.networks.complex_ensemble import ComplexEnsemble
from pe_lightning.networks.ensemble import VmapEnsemble
from pe_lightning.networks.mlp import MLP, SimpleNetwork
from pe_lightning.networks.scaling import ScaledNetwork, TargetScaling

__all__ = [
    "MLP",
    "Activation",
    "ComplexEnsemble",
    "ComplexNetwork",
    "Network",
    "ScaledNetwork",
    "SimpleNetwork",
    "TargetScaling",
    "VmapEnsemble",
    "activations",
    "find_activation",
]
