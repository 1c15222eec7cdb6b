"""Scores of predictions (:mod:`~pe_lightning.evaluation.scores`, as torchmetrics :mod:`~pe_lightning.evaluation.metrics`), and
interpolation to compare them with."""
