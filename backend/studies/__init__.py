"""Measurements on a model beside runs: one file per study. Each reduces on the device and returns NumPy."""
