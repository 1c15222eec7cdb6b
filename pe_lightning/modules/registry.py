"""The registry of models: the names that ``--model`` and ``model:`` accept."""

from lightning.pytorch import LightningModule

from pe_lightning.registry import Registry

__all__ = ["models"]

models: Registry[LightningModule] = Registry(
    "model", LightningModule, "pe_lightning.models", modules=("pe_lightning.tasks",)
)
