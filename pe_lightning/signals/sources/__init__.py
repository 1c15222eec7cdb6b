"""Sources: readers of files, or of values in memory, as signals.

A :class:`~pe_lightning.signals.sources.base.Source` has the user's options and describes the signals as
:class:`~pe_lightning.signals.raw.RawSignals`. Other packages add theirs in the entry-point group ``pe_lightning.sources``.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from pe_lightning.signals.sources.base import Source, sources
    from pe_lightning.signals.sources.images import ImageSource
    from pe_lightning.signals.sources.kinds import kind_of
    from pe_lightning.signals.sources.pictures import read_pictures
    from pe_lightning.signals.sources.rows import RowSource
    from pe_lightning.signals.sources.tensor import TensorSource
    from pe_lightning.signals.sources.video import VideoSource

__all__ = ["ImageSource", "RowSource", "Source", "TensorSource", "VideoSource", "kind_of", "read_pictures", "sources"]

__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "base": ["Source", "sources"],
        "images": ["ImageSource"],
        "kinds": ["kind_of"],
        "pictures": ["read_pictures"],
        "rows": ["RowSource"],
        "tensor": ["TensorSource"],
        "video": ["VideoSource"],
    },
)
