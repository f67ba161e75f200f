"""llama.cpp: whole prompts, kept beginnings, and texts whose keys it turns to another place.

``python llama_side.py MODEL DTYPE TOKENS CORE`` in an environment of its own; see :mod:`side`.

Moved texts are position-only reuse with what llama.cpp offers for it: ``llama_memory_seq_cp`` and
``llama_memory_seq_add``, on which its server's ``--cache-reuse`` rests. The keys are turned within the next
decoding, so their turning is timed.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import llama_cpp as lib
import numpy as np
from side import Request, Watch, serve

FOLDER, DTYPE, TOKENS = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
KINDS = {"fp32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16}
MOST_TEXTS = 4
BEGIN = 1  # the token behind which a text is encoded by itself
NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def tensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """What a safetensors file holds, in single precision as it was written."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8 : 8 + size])
    return {
        name: np.frombuffer(raw, np.float32, offset=8 + size + entry["data_offsets"][0],
                            count=int(np.prod(entry["shape"]))).reshape(entry["shape"])
        for name, entry in head.items() if name != "__metadata__"
    }  # fmt: skip


def convert(folder: Path, into: Path) -> None:
    """Write a Llama model of transformers as a GGUF file without a vocabulary."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(into, "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")

    def add(name: str, data: np.ndarray[Any, Any]) -> None:
        kind = KINDS[DTYPE] if data.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)

    for name, data in tensors(folder / "model.safetensors").items():
        short = name.removeprefix("model.").removesuffix(".weight")
        if short == "embed_tokens":
            add("token_embd.weight", data)
        elif short == "norm":
            add("output_norm.weight", data)
        else:
            _, layer, part = short.split(".", 2)
            if part in ("self_attn.q_proj", "self_attn.k_proj"):
                # transformers turns channel i with i + d/2, llama.cpp neighbours: interleave the halves.
                count = heads if part == "self_attn.q_proj" else kv_heads
                data = data.reshape(count, 2, -1, data.shape[1]).swapaxes(1, 2).reshape(data.shape)
            add(f"blk.{layer}.{NAMES[part]}.weight", data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Context:
    """Sequence 0 holds the prompt; each of the others a text that was read by itself."""

    def __init__(self, path: Path) -> None:
        lib.llama_backend_init()
        of_model = lib.llama_model_default_params()
        of_model.n_gpu_layers = 0
        self.model = lib.llama_model_load_from_file(str(path).encode(), of_model)
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.kv_unified = 2 * TOKENS + 512, MOST_TEXTS + 1, True
        params.n_batch = TOKENS + 64  # in pieces of 512, its default and faster than one pass
        params.n_threads = params.n_threads_batch = 1
        self.context = lib.llama_init_from_model(self.model, params)
        self.memory = lib.llama_get_memory(self.context)
        self.vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.batch = lib.llama_batch_init(TOKENS + 64, 0, 1)

    def clear(self) -> None:
        lib.llama_memory_clear(self.memory, True)

    def decode(self, ids: list[int], first: int, sequence: int = 0, *, last: bool = False) -> int:
        """Read tokens at positions from ``first`` on; the token after them where ``last``, else -1."""
        batch = self.batch
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, first + i, 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = last and i == len(ids) - 1
        if lib.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode refused the batch.")
        if not last:
            lib.llama_synchronize(self.context)
            return -1
        pointer = lib.llama_get_logits_ith(self.context, len(ids) - 1)
        logits = np.ctypeslib.as_array(
            ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (self.vocabulary,)
        )
        return int(logits.argmax())

    def forget(self, sequence: int, until: int) -> None:
        """Drop the first positions of a sequence."""
        lib.llama_memory_seq_rm(self.memory, sequence, 0, until)

    def move(self, sequence: int, start: int, at: int, size: int) -> None:
        """Turn a sequence's tokens from ``start`` to ``at`` and let sequence 0 have them."""
        lib.llama_memory_seq_add(self.memory, sequence, start, start + size, at - start)
        lib.llama_memory_seq_cp(self.memory, sequence, 0, at, at + size)


def start() -> tuple[Callable[[Request], Request], dict[str, Any]]:
    path = FOLDER / f"{DTYPE}.gguf"
    convert(FOLDER, path)
    context = Context(path)

    def read_prefix(ids: list[int], tokens: int) -> Request:
        """The first ``tokens`` are in the cache."""
        if tokens:
            context.decode(ids[:tokens], 0)
        with Watch() as watch:
            token = context.decode(ids[tokens:], tokens, last=True)
        return watch.answer(token, tokens)

    def read_moved(ids: list[int], texts: list[list[int]], front: int) -> Request:
        """Texts that were read by themselves are moved to their places; the template between is read."""
        for sequence, (first, end) in enumerate(texts, 1):
            context.decode([BEGIN, *ids[first:end]], 0, sequence)
            context.forget(sequence, 1)
        context.decode(ids[:front], 0)
        token = -1
        with Watch() as watch:
            for sequence, (first, end) in enumerate(texts, 1):
                context.move(sequence, 1, first, end - first)
                until = texts[sequence][0] if sequence < len(texts) else len(ids)
                token = context.decode(ids[end:until], end, last=until == len(ids))
        return watch.answer(token, front + sum(end - first for first, end in texts))

    def handle(request: Request) -> Request:
        ids = request["ids"]
        context.clear()
        if request["case"] == "moved":
            return read_moved(ids, request["texts"], request["front"])
        return read_prefix(
            ids, {"whole": 0, "front": request["front"], "again": len(ids) - 1}[request["case"]]
        )

    return handle, {"version": lib.__version__, "threads": 1, "settings": {"cache": "f16"}}


if __name__ == "__main__":
    serve(start)
