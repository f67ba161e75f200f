"""Executes plans: forward passes, assembly, decoding in one batch.

A runner forwards tokens and counts them; an engine assembles a prompt as its plan says and decodes from it.
The engine knows plans but no method. The sessions of one model take turns and decode in one batch.

Others use, by module:

    runner: ModelRunner
    engine: Engine
    prefill: Prefill
    decoding: Decoded
    turns: ModelScheduler
    assembled_prompt: AssembledPrompt
    isolated_encoder: IsolatedEncoder
    speed: measured_speed
"""
