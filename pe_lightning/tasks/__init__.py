"""Attention tasks: small Transformers whose tokens have positions, to compare encoders of positions by name.

- :mod:`~pe_lightning.tasks.layout`: relations of boxes, 4-D positions, unseen positions;
- :mod:`~pe_lightning.tasks.pictures`: classification and autoregressive generation of digits and textures;
- :mod:`~pe_lightning.tasks.detection`: boxes of rendered shapes, matched to queries.
"""

from pe_lightning.tasks.base import AttentionTask
from pe_lightning.tasks.data import TaskDataModule
from pe_lightning.tasks.detection import Detection, ShapesDataModule
from pe_lightning.tasks.layout import LayoutDataModule, LayoutRelations
from pe_lightning.tasks.pictures import PixelClassification, PixelDataModule, PixelGeneration

__all__ = [
    "AttentionTask",
    "Detection",
    "LayoutDataModule",
    "LayoutRelations",
    "PixelClassification",
    "PixelDataModule",
    "PixelGeneration",
    "ShapesDataModule",
    "TaskDataModule",
]
