"""The papers on positional encodings: their tables and figures, measures of encoders, attention tasks.

This package uses the public interface of :mod:`pe_lightning` alone, and joins its command by entry points, as any other
package can: verbs ``reproduce``, ``analyze`` and ``pages``, models and DataModules by name, and recipes.
"""

from pathlib import Path

RECIPES = Path(__file__).parent / "configs"
"""Folder of the recipes of attention tasks and of the papers' settings."""
