"""Kriging in many small neighbourhoods at once: power variograms, Matern covariances, seasons."""
