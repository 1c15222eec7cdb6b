"""Signals: files and arrays to tensors, sampling, LightningDataModules."""
