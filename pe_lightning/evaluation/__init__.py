"""Scores of predictions (:mod:`~pe_lightning.evaluation.metrics`), and interpolation to compare them with."""
