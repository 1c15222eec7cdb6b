"""What there is to choose from: the rows of ``pe-lightning encoders``."""

from __future__ import annotations

from dataclasses import dataclass

from pe_lightning.encoders.base import registry

__all__ = ["EncoderRow", "encoder_table"]


@dataclass(frozen=True)
class EncoderRow:
    """One registered encoder, or one plugin that failed to import."""

    name: str
    """The name to type."""
    class_path: str = ""
    """Full path of the class."""
    formula: str = ""
    """The feature in words."""
    parameters: tuple[str, ...] = ()
    """The arguments with their defaults: ``("num_features=256", "sigma=0.64/K")``; no ``=`` where one is required."""
    reference: str = ""
    """Where it is defined."""
    error: str | None = None
    """Why a plugin is not available; the other fields are then empty."""


def encoder_table() -> list[EncoderRow]:
    """The registered encoders by name, those of plugins included, then the plugins that failed to import."""
    rows = [_row(name) for name in registry.names()]
    return rows + [EncoderRow(name, error=message) for name, message in sorted(registry.broken().items())]


def _row(name: str) -> EncoderRow:
    cls = registry.get(name)
    parameters = []
    for key, parameter in registry.parameters(cls).items():
        default = cls.default_rules.get(key, parameter.default)
        parameters.append(key if default is parameter.empty else f"{key}={default}")
    return EncoderRow(name, f"{cls.__module__}.{cls.__qualname__}", cls.formula, tuple(parameters), cls.reference)
