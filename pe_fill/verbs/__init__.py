"""Verbs of the command: ``fill`` and ``demo``."""
