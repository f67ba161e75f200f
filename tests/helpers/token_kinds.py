"""Tokenizers of every kind that the lab meets, trained on a few lines: nothing is downloaded."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

LINES = (
    "Solve the problem step by step. The task is: how many coins does Tess have now? The answer is 42.",
    "Agent 1 wrote: Tess has 35 coins and gives away 34, so 35 - 34 = 1. Check the work of the others!",
    "user assistant system model [INST] [/INST] You are a helpful assistant. 0 1 2 3 4 5 6 7 8 9",
    "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ ,.;:?!()[]{}<>|/_+-*=#'\"",
) * 4
SPECIAL = ["<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>"]
BYTES = [f"<0x{i:02X}>" for i in range(256)]
KINDS = (
    "byte-level",
    "byte-level-space",
    "llama-legacy",
    "llama-metaspace",
    "mistral-always",
    "gemma",
    "t5",
    "wordpiece",
)
SPACED = (
    "byte-level-space",
    "llama-legacy",
    "llama-metaspace",
    "mistral-always",
    "t5",
)  # put a space before a text


def _sentencepiece(prefix: bool) -> Any:
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])


def _backend(kind: str) -> Tokenizer:
    if kind.startswith("byte-level"):
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=kind.endswith("space"))
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer: Any = trainers.BpeTrainer(
            vocab_size=450, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
        )
    elif kind == "t5":
        made = Tokenizer(models.Unigram())
        made.normalizer = normalizers.Sequence(
            [
                normalizers.Nmt(),
                normalizers.NFKC(),
                normalizers.Strip(),
                normalizers.Replace(Regex(" {2,}"), " "),
            ]
        )
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
        )
        made.decoder = decoders.Metaspace(prepend_scheme="always")
        trainer = trainers.UnigramTrainer(
            vocab_size=250, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
        )
    elif kind == "wordpiece":
        made = Tokenizer(models.WordPiece(unk_token="<unk>"))
        made.normalizer = normalizers.BertNormalizer(lowercase=False)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece(cleanup=False)
        trainer = trainers.WordPieceTrainer(vocab_size=250, special_tokens=SPECIAL, show_progress=False)
    else:
        made = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.Metaspace()  # no token holds more than a word
        trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=SPECIAL + BYTES, show_progress=False)
    made.train_from_iterator(LINES, trainer)
    state = json.loads(
        made.to_str()
    )  # bytes are tokens like any other, though the trainer calls them special
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] not in BYTES]
    made = Tokenizer.from_str(json.dumps(state))
    if kind in ("llama-legacy", "gemma"):
        before = [normalizers.Prepend("▁")] if kind == "llama-legacy" else []
        made.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", "▁")])
        made.pre_tokenizer = None
    elif kind in ("llama-metaspace", "mistral-always"):
        scheme = "first" if kind == "llama-metaspace" else "always"
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    if kind.startswith(("llama", "mistral", "gemma")):
        made.decoder = _sentencepiece(kind != "gemma")
    if kind.startswith(("llama", "mistral")):
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return made


@cache
def tokenizer(kind: str, chat_template: str | None = None) -> Any:
    """One of :data:`KINDS`, as transformers wraps it."""
    made = PreTrainedTokenizerFast(
        tokenizer_object=_backend(kind), unk_token="<unk>", bos_token="<s>", eos_token="</s>",
        additional_special_tokens=SPECIAL[3:],
    )  # fmt: skip
    made.chat_template = chat_template
    return made


#: Chat templates as models have them: where the text stands, and what they think of a system's message.
TEMPLATES = {
    "chatml": (
        "{% for m in messages %}{{ '<|user|>' if m.role == 'user' else '<|system|>' }}"
        "{{ m.role + '\n' + m.content + '</s>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>assistant\n' }}{% endif %}"
    ),
    "inst": (
        "{{ bos_token }}{% for m in messages %}{{ '[INST] ' + m.content | trim + ' [/INST]' }}{% endfor %}"
    ),
    "no-system": (
        "{{ bos_token }}{% if messages[0].role == 'system' %}"
        "{{ raise_exception('System role not supported') }}{% endif %}"
        "{% for m in messages %}{{ '<|user|>\n' + m.content | trim + '</s>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
    ),
    "thinking": (
        "{% for m in messages %}{{ '<|user|>' + m.content + '</s>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}"
        "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}"
        "{% endif %}{% endif %}"
    ),
}
