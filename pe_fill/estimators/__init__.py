"""Estimators of the tools: the adaptive fit, networks that saw other pictures, gaps, enlarging, scattered points."""
