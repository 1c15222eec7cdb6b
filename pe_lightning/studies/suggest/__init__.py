"""The verb ``pe-lightning suggest``: which encoder represents these signals best, found through the exact solvers."""
