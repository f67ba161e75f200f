"""Keys and values: rotation, buffers, rows, offsets, observations, kernels, budget."""
