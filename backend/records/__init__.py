"""Requests, results and the arithmetic on them: all that viz reads. Free of torch and scipy.

A record is frozen, is packed into one file and is read from it as it was. A figure is drawn from a record
alone, so what a figure shows can be downloaded.

Others use, by module:

    events: AgentDone, Event, Progress, RunDone, TextSoFar
    model_info: Certificate, ModelInfo
    pools: PoolState, PoolView
    prompt: Prompt, Span, TokenizedPrompt
    request: Decoding, MethodChoice, RunRequest
    rows: outcome_row
    run: Outcome, RunRecord
"""
