"""Every measurement on a model beside runs: one file per study. Each reduces on the device and returns NumPy.

A study is one function: a request in, progress on the way, a record at the end. Those that a
visitor may ask for register themselves (:func:`backend.session.study.study`).

Others use, by module:

    proximity: proximity
    offsets: offset_study
    blend: blend_study
    documents: document_study
    document_speed: document_speed
    anchor_cost: anchor_cost
    hypotheses: hypotheses
    agent_loop: run_loop
    batch: Batch, run_batch
    latency: Server
    gallery: load_gallery
    task_requests: as_request
"""
