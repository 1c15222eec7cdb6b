"""Runs side by side, without an account: ``pe-lightning compare``.

A run is known by what it left on disk: ``metrics.json``, ``config.yaml``, its CSV log and its reconstructions. Nothing here
imports torch or Lightning.
"""
