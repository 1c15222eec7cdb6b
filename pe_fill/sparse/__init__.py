"""Sparse exact fits: few coefficients of an orthogonal or lifted layer, and denoising by them."""
