"""Which positional encoding represents this signal best, how fast, and why.

``pe_lightning`` fits signals (rows, images, video cubes) with coordinate networks. A signal is a function from
coordinates in [0, 1] to values in [0, 1]; an *encoder* turns one coordinate into features, an *encoding* combines the
axes, and a *module* maps the features to values.

``docs/architecture.md`` says what is where, and which part may import which.

Importing this package imports neither torch nor Lightning.
"""

__version__ = "0.2.0"
