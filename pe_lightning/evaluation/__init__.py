"""Scores, plain and as torchmetrics, and interpolation to compare them with."""
