"""Cross-query segment reuse: cut prompts into segments, find alike ones among those stored, verify, keep.

``cutting`` says where segments begin and end, ``sketch`` when two are alike, ``codec`` how KV is packed,
``store`` what is kept of whom, and ``layers`` reads a prompt above a cut where some tokens' lower layers are
known.
"""
