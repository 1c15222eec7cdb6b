"""Many fits at once: which encoder suits (``suggest``), every combination (``sweep``), side by side (``compare``)."""
