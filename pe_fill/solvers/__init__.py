"""Solvers of local fits, gaps, scattered points and series."""
