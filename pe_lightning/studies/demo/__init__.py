"""Examples of every use on signals that are installed with the package, and a page of them: ``pe-lightning demo``."""
