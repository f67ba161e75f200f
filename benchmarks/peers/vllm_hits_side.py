"""vLLM on a CPU: what its prefix cache hits of prompts that come one after the other, and its KV events.

``python vllm_hits_side.py MODEL EVENTS LONGEST BLOCK BLOCKS`` in an environment of its own; see :mod:`side`.
Writes every batch of events to the file EVENTS as it is published (msgpack). BLOCKS: what the cache holds; 0:
as many as fit.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from side import Request, serve

FOLDER, EVENTS = sys.argv[1], Path(sys.argv[2])
LONGEST, BLOCK, BLOCKS = map(int, sys.argv[3:6])
PATIENCE_S = 0.2


def start() -> tuple[Callable[[Request], Request], dict[str, Any]]:
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # so that the events stay in this process
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
    }
    import vllm
    import zmq
    from vllm.config.kv_events import KVEventsConfig
    from vllm.inputs import TokensPrompt

    settings = {
        "dtype": "float32",
        "max_model_len": LONGEST + 8,
        "max_num_batched_tokens": LONGEST + 8,
        "max_num_seqs": 1,
        "block_size": BLOCK,
        "enable_prefix_caching": True,
        **({"num_gpu_blocks_override": BLOCKS} if BLOCKS else {}),
    }
    port = 20_000 + os.getpid() % 20_000
    events = KVEventsConfig(enable_kv_cache_events=True, publisher="zmq", endpoint=f"tcp://*:{port}")
    engine = vllm.LLM(FOLDER, skip_tokenizer_init=True, kv_events_config=events, **settings)
    greedy = vllm.SamplingParams(max_tokens=1, temperature=0, detokenize=False)
    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.connect(f"tcp://127.0.0.1:{port}")
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    time.sleep(1)  # until the publisher knows the subscriber
    file = EVENTS.open("wb")

    def handle(request: Request) -> Request:
        output = engine.generate(TokensPrompt(prompt_token_ids=request["ids"]), greedy, use_tqdm=False)[0]
        while socket.poll(PATIENCE_S * 1e3):
            file.write(socket.recv_multipart()[-1])
        file.flush()
        return {"kept": output.num_cached_tokens}

    return handle, {"version": vllm.__version__, "settings": settings}


serve(start)
