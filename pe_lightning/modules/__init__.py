"""LightningModules: an encoding and a network from its features to values."""

from pe_lightning.modules.adaptive import Adaptive
from pe_lightning.modules.base import TrainedModule
from pe_lightning.modules.complex_linear import ComplexLinear
from pe_lightning.modules.coordinate import CoordinateModule
from pe_lightning.modules.local import Local
from pe_lightning.modules.simple_mlp import SimpleMLP

__all__ = ["Adaptive", "ComplexLinear", "CoordinateModule", "Local", "SimpleMLP", "TrainedModule"]
