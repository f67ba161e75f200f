"""The embedded model's tokenizer: byte-level BPE with whole numbers, trained on generated documents.

Every number up to 999 is one token, as in larger models' tokenizers, and longer ones are cut after three
digits: a number to copy or compare is then a token or two, and not a run of single digits.
"""

import random
from itertools import chain
from pathlib import Path
from typing import Any

from backend.prompts.tasks import TASKS, make_document

PAD, BOS, EOS, ANSWER = "<pad>", "<s>", "</s>", "<a>"
# One user message: begin of sequence, the agent's prompt, then the token that opens the answer.
CHAT_TEMPLATE = "{{ bos_token }}{{ messages[0]['content'] }}<a>"
VOCABULARY = 4096
LARGEST = 999  # up to here every number is a token of its own


def train_tokenizer(seed: int = 0, documents: int = 24_000, vocab_size: int = VOCABULARY) -> Any:
    """Return a ``PreTrainedTokenizerFast`` with at most ``vocab_size`` tokens.

    All 256 bytes are in the alphabet, so any text can be encoded.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    rng = random.Random(f"tokenizer:{seed}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            # a number takes the space before it along
            pre_tokenizers.Split(Regex(" ?[0-9]{1,3}"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, BOS, EOS, ANSWER],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    names = tuple(TASKS)
    texts = (
        piece.text
        for index in range(documents)
        for piece in make_document(rng, names[index % len(names)]).pieces
    )
    spellings = [f"{before}{n}" for n in range(LARGEST + 1) for before in ("", " ")]
    numbers = (number for number in spellings for _ in range(documents // 60))
    tokenizer.train_from_iterator(chain(texts, numbers), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        chat_template=CHAT_TEMPLATE,
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )


def save_tokenizer(folder: Path, seed: int = 0) -> Any:
    """Train and save into ``folder``; returns the tokenizer."""
    tokenizer = train_tokenizer(seed)
    tokenizer.save_pretrained(folder)
    return tokenizer
