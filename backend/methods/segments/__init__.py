"""Cross-query segment reuse: cut prompts into segments, find alike ones among those stored, verify, keep.

``cutting`` says where segments begin and end, ``minhash`` when two are alike, ``store`` what is kept of whom,
``grafts`` which prompt tokens get whose KV, and ``method`` decides. :mod:`backend.cache.int8` packs the KV,
and :mod:`backend.engine.partial_layers` reads a prompt above a cut where some tokens' lower layers are known.
"""
