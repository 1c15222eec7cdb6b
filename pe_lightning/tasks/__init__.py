"""Attention tasks: small Transformers whose tokens have positions, to compare encoders of positions by name.

- :mod:`~pe_lightning.tasks.layout`: relations of boxes, 4-D positions, unseen positions;
- :mod:`~pe_lightning.tasks.pictures`: classification and autoregressive generation of digits and textures;
- :mod:`~pe_lightning.tasks.detection`: boxes of rendered shapes, matched to queries.

:mod:`~pe_lightning.tasks.patches` is no attention task: it trains the prior of ``Local`` and ``Adaptive`` on pictures.
"""

from pe_lightning.tasks.base import AttentionTask
from pe_lightning.tasks.data import TaskDataModule
from pe_lightning.tasks.detection import Detection, ShapesDataModule
from pe_lightning.tasks.layout import LayoutDataModule, LayoutRelations
from pe_lightning.tasks.patches import PatchDataModule, PatchRegression
from pe_lightning.tasks.pictures import PixelClassification, PixelDataModule, PixelGeneration

__all__ = [
    "AttentionTask",
    "Detection",
    "LayoutDataModule",
    "LayoutRelations",
    "PatchDataModule",
    "PatchRegression",
    "PixelClassification",
    "PixelDataModule",
    "PixelGeneration",
    "ShapesDataModule",
    "TaskDataModule",
]
