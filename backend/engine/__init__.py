"""Carries plans out: forward passes, assembly, decoding, one batch for all."""
