"""One transformers model: load, certify, tokenize, adapt, hook.

A model is certified when it is loaded: its keys can be moved to other positions, or the certificate says why
not. All changes to transformers' classes are made and undone in this room.

Others use, by module:

    load: LoadedModel, load_model, wrap_model
    certificate: certify
    tokenizer: Tokens
    link_tokens: Links, load_links, apply_links
    adapters: adapt, weight_labels
    hooks: masks_of, masked_at, stop_after, watch_attention
    weight_variants: check_sibling
"""
