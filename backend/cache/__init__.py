"""Keys and values: rotation, buffers, rows, offsets, observations, kernels, budget.

A segment's keys are kept as if it stood at position 0 and are turned to wherever it is placed. The log of
observations holds what was computed once; pools and methods are index sets over it.

Others use, by module:

    kv_cache: KVCache, KVSegment, KVOffset, Offset
    rope: Rotation
    row_arena: Arena, Rows, ArenaOffset
    observations: Observation, ObservationLog, PromptInContext, TextEncoder
    radix_tree: PrefixTree
    memory_budget: Memory, free_bytes, surviving
    kernels.mix_and_rotate: blend
    kernels.mixture: Mixture
    norms: kl, token_norms, largest_difference
    process_memory: share_heaps, trim
"""
