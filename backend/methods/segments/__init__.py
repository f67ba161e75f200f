"""Cross-query segment reuse: cut prompts into segments, find similar stored ones, verify, store.

``cutting`` says where segments begin and end, ``minhash`` when two are alike, ``store`` what is kept for each
owner, ``grafts`` which prompt tokens get whose KV, and ``method`` decides. :mod:`backend.cache.int8` packs
the KV, and :mod:`backend.engine.partial_layers` reads a prompt above a cut where some tokens' lower layers
are known.
"""
