"""Attention tasks: small Transformers whose tokens have positions, to compare encoders of positions by name.

- :mod:`~pe_papers.tasks.layout`: relations of boxes, 4-D positions, unseen positions;
- :mod:`~pe_papers.tasks.pictures`: classification and autoregressive generation of digits and textures;
- :mod:`~pe_papers.tasks.detection`: boxes of rendered shapes, matched to queries.
"""

from pe_papers.tasks.base import AttentionTask
from pe_papers.tasks.data import TaskDataModule
from pe_papers.tasks.detection import Detection, ShapesDataModule
from pe_papers.tasks.layout import LayoutDataModule, LayoutRelations
from pe_papers.tasks.pictures import PixelClassification, PixelDataModule, PixelGeneration

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
