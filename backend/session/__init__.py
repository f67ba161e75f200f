"""One visitor: logs and pools, a run from request to record, warm-up, limits, measurements of runs.

A session is a trust domain: its logs are read by nobody else. It admits a request, lets every method read
and answer it, and closes it by remembering or undoing what it left.

Others use, by module:

    session: LabSession
    estimate: Estimate
    limits: LOCAL_LIMITS, Limits, Rate
    request_state: RequestState
    study: study
    streams: AnsweredRequest, MethodRun, PromptRun, Stream
    run: Run
    workspace: Workspace
"""
