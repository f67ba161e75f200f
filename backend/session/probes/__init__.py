"""What every run measures of its caches and logits; each reduces on the device to NumPy."""
