"""Truth and reconstruction of rows and cubes in one file, for pages that show both."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from pe_lightning.callbacks.media import to_levels
from pe_lightning.data.batches import SignalInfo
from pe_lightning.runs import frames_of, replacing

__all__ = ["PAIR_BYTES", "write_pair"]

Array = npt.NDArray[np.float32]

PAIR_FRAMES = 32
"""How many frames of a cube are kept beside the truth."""
PAIR_BYTES = 1 << 27
"""How much of truth and reconstruction is kept beside each other, before compression."""


def write_pair(
    path: Path,
    prediction: Array,
    truth: Array,
    info: SignalInfo | None = None,
    trained: npt.NDArray[np.bool_] | None = None,
    most: int = PAIR_BYTES,
) -> Path | None:
    """Writes reconstruction and truth of a row, a video or a volume atomically, for ``pe-lightning compare`` to show.

    HDF5 of ``truth`` and ``reconstruction``: of a row float32, what was [0, 1] in training, and ``trained``, one boolean per
    sample; of a cube 8-bit pictures of evenly spaced frames, whose numbers are the attribute ``frames``. The attributes
    ``media`` and ``rate`` are those of the source, where it is known.

    Args:
        path: Where to.
        prediction: ``(*grid, C)`` of one or three axes.
        truth: Same shape.
        info: What the source is.
        trained: Which samples of a row were trained on, ``(N,)``.
        most: About how many bytes: of a larger cube there are fewer frames, though at least one.

    Returns:
        The path; ``None`` for a row that would take more.
    """
    cube = prediction.ndim == 4
    size = 2 * prediction[0].size if cube else 8 * prediction.size
    if size > most and not cube:
        return None
    frames = frames_of(len(prediction), min(PAIR_FRAMES, max(1, most // size)))
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        for name, values in (("truth", truth), ("reconstruction", prediction)):
            if not cube:
                file.create_dataset(name, data=values, chunks=True, shuffle=True, compression=1)
                continue
            shape = (len(frames), *values.shape[1:3], values.shape[3] if values.shape[3] <= 4 else 1)
            dataset = file.create_dataset(name, shape, np.uint8, chunks=(1, *shape[1:]), compression=1)
            for number, frame in enumerate(frames):
                dataset[number] = to_levels(values[frame][..., : shape[3]])
        if cube:
            file.attrs["frames"] = frames
        elif trained is not None:
            file.create_dataset("trained", data=trained, compression=1)
        if info is not None:
            file.attrs["media"] = info.media
            if info.rate is not None:
                file.attrs["rate"] = info.rate
    return path
