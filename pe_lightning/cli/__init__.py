"""The command line. Verbs of other packages are typed functions (:func:`call`), and take these functions for their work."""

from pe_lightning.cli.arguments import Option, read
from pe_lightning.cli.verbs import call
from pe_lightning.errors import console
from pe_lightning.results.config_files import as_yaml

__all__ = ["Option", "as_yaml", "call", "console", "read"]
