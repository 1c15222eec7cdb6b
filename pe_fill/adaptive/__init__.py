"""Adaptive fits: banks of local fits, weighted and calibrated by held-out samples."""
