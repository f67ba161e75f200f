"""Carries plans out: forward passes, assembly, decoding, one batch for all.

A runner forwards tokens and counts them, an engine puts a prompt together as its plan says and decodes from
it. It knows plans and no method; the sessions of one model take turns and decode in one batch.

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
