r"""Numbers and figures about encoders: rank, similarity, distance preservation, as initialised and as learned.

>>> from pe_lightning.analysis import analyze
>>> report = analyze({"name": "sine", "num_features": 64}, samples=64)
>>> round(report["stable_rank"]["measured"], 6), report["numerical_rank"]
(2.0, 2)

- :func:`analyze`: all measures of one encoder as plain data; :func:`figure` draws such reports.
- :mod:`~pe_lightning.analysis.measures`: each measure alone, with theory beside it.
- :mod:`~pe_lightning.analysis.ranks`: stable ranks of matrices, encoders and encodings, large ones too.
- :mod:`~pe_lightning.analysis.similarity`: maps of one position against a grid of positions.
- :mod:`~pe_lightning.analysis.checkpoints`: encodings of a checkpoint, and the stable rank of its layers.
"""

from pe_lightning.analysis.checkpoints import checkpoint_ranks, encoding_of, layer_ranks, load_module
from pe_lightning.analysis.figures import figure, similarity_figure, weight_figure
from pe_lightning.analysis.measures import (
    analyze,
    condition_number,
    distance,
    distance_theory,
    features,
    numerical_rank,
    positions,
    preservation,
    rank_curve,
    rank_theory,
    singular_values,
    spectrum,
    spread,
    weight_histogram,
)
from pe_lightning.analysis.ranks import encoder_rank, feature_rank, stable_rank
from pe_lightning.analysis.similarity import as_initialised, similarity, without_mlp

__all__ = [
    "analyze",
    "as_initialised",
    "checkpoint_ranks",
    "condition_number",
    "distance",
    "distance_theory",
    "encoder_rank",
    "encoding_of",
    "feature_rank",
    "features",
    "figure",
    "layer_ranks",
    "load_module",
    "numerical_rank",
    "positions",
    "preservation",
    "rank_curve",
    "rank_theory",
    "similarity",
    "similarity_figure",
    "singular_values",
    "spectrum",
    "spread",
    "stable_rank",
    "weight_figure",
    "weight_histogram",
    "without_mlp",
]
