"""Sources: readers of files, or of values in memory, as signals.

A :class:`~pe_lightning.signals.sources.base.Source` has the user's options and describes the signals as
:class:`~pe_lightning.signals.raw.RawSignals`. ``images``, ``rows``, ``video`` and ``tensor`` are registered here; other
packages add theirs in the entry-point group ``pe_lightning.sources``.
"""

from pe_lightning.signals.sources.base import Source, sources
from pe_lightning.signals.sources.images import ImageSource
from pe_lightning.signals.sources.kinds import kind_of
from pe_lightning.signals.sources.pictures import read_pictures
from pe_lightning.signals.sources.rows import RowSource
from pe_lightning.signals.sources.tensor import TensorSource
from pe_lightning.signals.sources.video import VideoSource

__all__ = ["ImageSource", "RowSource", "Source", "TensorSource", "VideoSource", "kind_of", "read_pictures", "sources"]
