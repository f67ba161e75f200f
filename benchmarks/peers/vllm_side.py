"""vLLM on a CPU: whole prompts, and what its exact prefix cache keeps of them.

``python vllm_side.py MODEL DTYPE TOKENS CORE`` in an environment of its own; see :mod:`side`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from side import Request, Watch, serve

FOLDER, DTYPE, TOKENS, CORE = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
KINDS = {"fp32": "float32", "bf16": "bfloat16"}
BLOCK = 32  # tokens, the least on a CPU; only whole blocks are kept


def start() -> tuple[Callable[[Request], Request], dict[str, Any]]:
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # nothing between the request and its answer
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": CORE,
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
    }
    import torch
    import vllm
    from vllm.inputs import TokensPrompt

    settings = {
        "dtype": KINDS[DTYPE],
        "max_model_len": TOKENS + 64,
        "max_num_batched_tokens": TOKENS + 64,  # one pass for a whole prompt
        "max_num_seqs": 4,
        "block_size": BLOCK,
        "enable_prefix_caching": True,
    }
    engine = vllm.LLM(FOLDER, skip_tokenizer_init=True, **settings)
    greedy = vllm.SamplingParams(max_tokens=1, temperature=0, detokenize=False)

    def generate(ids: list[int]) -> Any:
        return engine.generate(TokensPrompt(prompt_token_ids=ids), greedy, use_tqdm=False)[0]

    def handle(request: Request) -> Request:
        ids = request["ids"]
        engine.reset_prefix_cache()
        if request["case"] == "front":
            generate(ids[: request["front"]])
        elif request["case"] == "again":
            generate(ids)
        with Watch() as watch:
            output = generate(ids)
        return watch.answer(output.outputs[0].token_ids[0], output.num_cached_tokens)

    about = {"version": vllm.__version__, "torch": torch.__version__, "threads": torch.get_num_threads()}
    return handle, {**about, "settings": settings}


serve(start)
