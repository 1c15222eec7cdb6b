"""The registry of callbacks that ``--trainer.callbacks+`` accepts by name, besides Lightning's own."""

from lightning.pytorch import Callback

from pe_lightning.registry import Registry

__all__ = ["callbacks"]

callbacks: Registry[Callback] = Registry("callback", Callback, "pe_lightning.callbacks")
