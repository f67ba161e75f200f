"""One transformers model: load, certify, tokenize, adapt, hook.

A model is certified when it is loaded: its keys can be moved to other positions, or the reason why not is
kept with it. Everything that reaches into transformers' classes is done here and taken back here.

Others use, by module:

    load: LoadedModel, load_model, wrap_model
    certificate: certify
    tokenizer: Tokens
    link_tokens: Links, load_links, apply_links
    adapters: adapt, weight_labels
    hooks: masks_of, masked_at, stop_after, watch_attention
    weight_variants: check_sibling
"""
