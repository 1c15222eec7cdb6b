"""The plans by which a signal is filled, denoised or enlarged."""
