"""Reuse methods: the contract, the registry, and one file per method."""
