"""``kvlab bench``: times of the reuse path beside dense, and beside what the bytes alone would take.

Both sides are measured in one run, after a warm-up, with medians and their spread. A report ends in JSON.

Others use, by module:

    assemble: bench_assemble
    attention: bench_attention
    decode: bench_decode
    match: bench_match
    memory: bench_memory
    ttft: bench_ttft
    group: group_times
    break_even: measure, measure_within
    common: conditions, synchronise, timed
"""
