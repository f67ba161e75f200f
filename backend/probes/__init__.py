"""Measurements on caches and logits; each reduces on the device and returns NumPy."""
