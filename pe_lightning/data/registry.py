"""The registry of DataModules: the names that ``--data`` and ``data:`` accept."""

from lightning.pytorch import LightningDataModule

from pe_lightning.registry import Registry

__all__ = ["datamodules"]

datamodules: Registry[LightningDataModule] = Registry(
    "DataModule", LightningDataModule, "pe_lightning.datamodules", modules=("pe_lightning.tasks",)
)
