"""Networks: coordinates to values of ONE signal, in plain PyTorch; and many of them evaluated together.

A network has a :class:`~torch.nn.Module` signature that a reader of any SIREN file knows: ``(*batch, D) -> (*batch, C)``.
:class:`Stack` holds one per signal and evaluates all of them by :mod:`torch.func`.
"""

from pe_lightning.networks.activations import Activation, activations, find_activation
from pe_lightning.networks.complex import ComplexNetwork
from pe_lightning.networks.complex_stack import ComplexStack
from pe_lightning.networks.derivatives import Network, gradient, laplacian
from pe_lightning.networks.mlp import MLP
from pe_lightning.networks.simple import SimpleNetwork
from pe_lightning.networks.stack import Stack

__all__ = [
    "MLP",
    "Activation",
    "ComplexNetwork",
    "ComplexStack",
    "Network",
    "SimpleNetwork",
    "Stack",
    "activations",
    "find_activation",
    "gradient",
    "laplacian",
]
