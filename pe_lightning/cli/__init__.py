"""The command line. Verbs of other packages are typed functions (:func:`call`), and take these functions for their work."""

from pe_lightning.cli.arguments import Option, read
from pe_lightning.cli.verbs import call
from pe_lightning.errors import console

__all__ = ["Option", "call", "console", "read"]
