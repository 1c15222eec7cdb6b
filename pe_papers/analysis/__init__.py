r"""Numbers and figures about encoders: rank, similarity, distance preservation, as initialised and as learned.

>>> from pe_papers.analysis import analyze
>>> report = analyze({"name": "sine", "num_features": 64}, samples=64)
>>> round(report["stable_rank"]["measured"], 6), report["numerical_rank"]
(2.0, 2)

- :func:`analyze`: all measures of one encoder as plain data; :func:`figure` draws such reports.
- :mod:`~pe_papers.analysis.measures`: each measure alone, with theory beside it.
- :mod:`~pe_papers.analysis.similarity`: encodings of a checkpoint, maps of one position against others.
- :mod:`~pe_papers.analysis.ranks`: stable ranks of features and layers, also during training (``StableRank``).
"""

from pe_lightning.encodings import encoder_rank, feature_rank, stable_rank
from pe_papers.analysis.figures import figure, similarity_figure, weight_figure
from pe_papers.analysis.measures import (
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
from pe_papers.analysis.ranks import StableRank, encoding_rank, layer_ranks, similarity_across_gaps
from pe_papers.analysis.similarity import as_initialised, checkpoint_ranks, encoding_of, similarity, without_mlp

__all__ = [
    "StableRank",
    "analyze",
    "as_initialised",
    "checkpoint_ranks",
    "condition_number",
    "distance",
    "distance_theory",
    "encoder_rank",
    "encoding_of",
    "encoding_rank",
    "feature_rank",
    "features",
    "figure",
    "layer_ranks",
    "numerical_rank",
    "positions",
    "preservation",
    "rank_curve",
    "rank_theory",
    "similarity",
    "similarity_across_gaps",
    "similarity_figure",
    "singular_values",
    "spectrum",
    "spread",
    "stable_rank",
    "weight_figure",
    "weight_histogram",
    "without_mlp",
]
