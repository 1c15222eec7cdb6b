"""Which positional encoding represents this signal best, how fast, and why.

``pe_lightning`` fits signals (rows, images, video cubes) with coordinate networks. A signal is a function from
coordinates in [0, 1] to values in [0, 1]; an *encoder* turns one coordinate into features, an *encoding* combines the
axes, and a *module* maps the features to values.

The parts, from the bottom up:

- :mod:`pe_lightning.registry`: names for classes, open to other packages.
- :mod:`pe_lightning.encoders`: one axis, ``psi: R -> R^K``.
- :mod:`pe_lightning.encodings`: D axes; simple (concatenation) and complex (Kronecker product).
- :mod:`pe_lightning.data`: files and arrays to signals, sampling, LightningDataModules.
- :mod:`pe_lightning.linalg` and :mod:`pe_lightning.solvers`: exact fits, on grids and on scattered points.
- :mod:`pe_lightning.baselines`: interpolation, a row of every table.
- :mod:`pe_lightning.modules`: ``SimpleMLP`` and ``ComplexLinear``.
- :mod:`pe_lightning.callbacks`: the run directory, the progress bar, reconstructions.

Importing this package imports neither torch nor Lightning.
"""

__version__ = "0.2.0"
