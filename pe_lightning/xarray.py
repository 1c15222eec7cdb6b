"""``pe_lightning.xarray.fill``, the public name of :func:`pe_lightning.estimators.labelled.fill`."""

from pe_lightning.estimators.labelled import fill

__all__ = ["fill"]
