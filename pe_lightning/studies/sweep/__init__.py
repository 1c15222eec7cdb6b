"""The verb ``pe-lightning sweep``: every combination of some settings, fitted in one process."""
