"""One transformers model: load, certify, tokenize, adapt, hook."""
