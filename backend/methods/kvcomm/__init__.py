"""KVCOMM: the method, its anchor pools and weights, and its variants."""
