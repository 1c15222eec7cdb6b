"""Verbs of the command: ``fill``."""
