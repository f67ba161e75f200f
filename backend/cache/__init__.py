"""Keys and values: rotation, buffers, rows, offsets, samples, kernels, budget.

A segment's keys are stored position-free (as at position 0) and rotated to the position where it is placed.
The log of samples holds what was computed once; pools and methods are index sets over it.

Others use, by module:

    kv_cache: KVCache, KVSegment, KVOffset, Offset
    rope: Rotation
    row_arena: Arena, ArenaRows, ArenaOffset
    samples: PromptInContext, Sample, SampleLog, TextEncoder
    radix_tree: PrefixTree
    memory_budget: MemoryBudget, free_bytes, with_retry
    kernels.mix_and_rotate: mix_and_rotate
    kernels.mixture: Mixture
    norms: kl, token_norms, largest_difference
    process_memory: allocated_bytes, share_heaps, trim
"""
