"""Training of link tokens: ``kvlab train-links`` (KVLink, Section 2.3 and appendix A)."""
