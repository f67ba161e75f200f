"""Questions over documents that are encoded apart: request and record. Free of torch."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.base.errors import OptionError
from backend.base.ranges import SEEDS, check_ranges
from backend.base.serialization import Saved
from backend.base.statistics import bootstrap_interval, wilson
from backend.records.model_info import ModelInfo
from backend.records.request import REFERENCE

DOCUMENTS_FORMAT = 1
DOCUMENT_LIMITS: dict[str, tuple[int, int]] = {
    "questions": (1, 100_000), "seed": SEEDS, "lengths": (1, 100_000), "repeats": (1, 1000),
}  # fmt: skip


@dataclass(frozen=True)
class DocumentArm:
    """One way of answering the study's questions.

    Attributes:
        label: in figures and rows, such as "KVLink5"; ``method`` its name in the registry, ``options`` the
            method's own.
        weights: name of the model; several arms may share one.
        adapted: were its weights trained for separately encoded documents?
        compression: how documents were shortened, "none", "drop" or "anchors", and by what share (``rate``).
    """

    label: str
    method: str
    options: Mapping[str, str]
    weights: str
    adapted: bool = False
    compression: str = "none"
    rate: float = 0.0

    @property
    def reference(self) -> bool:
        """Does it read every token afresh?"""
        return self.method == REFERENCE


@dataclass(frozen=True)
class DocumentRequest:
    """A study small enough to wait for: two-hop questions on a model and on shipped weights trained for it.

    Raises:
        OptionError: a number is out of range, or weights are named twice.
    """

    weights: tuple[str, ...] = ()
    questions: int = 24
    seed: int = 0

    def __post_init__(self) -> None:
        limits = {"questions": (2, 100), "seed": DOCUMENT_LIMITS["seed"]}
        check_ranges(self, limits, "documents", "Change it; kvlab documents asks more.")
        if len(set(self.weights)) != len(self.weights):
            raise OptionError("The same weights are named twice. Name each once.", field="documents.weights")


@dataclass(frozen=True)
class DocumentSpeed:
    """Time to first token by document length, KV loaded from where it is kept; all (rows, lengths), medians.

    Attributes:
        names: rows, dense first.
        documents: how many are read; ``lengths`` tokens of each; ``prompt_tokens`` (lengths,) of the whole.
        source: where the KV lay: "memory" or "disk" (files that were read before, so in the system's cache).
        loaded_bytes: (lengths,) KV of all documents.
        ttft_ms, load_ms: the whole, and the part of it that loading takes; ``low_ms``, ``high_ms`` quartiles.
    """

    model: ModelInfo
    names: tuple[str, ...]
    documents: int
    lengths: tuple[int, ...]
    prompt_tokens: NDArray[np.int64]
    source: str
    repeats: int
    loaded_bytes: NDArray[np.int64]
    ttft_ms: NDArray[np.float64]
    load_ms: NDArray[np.float64]
    low_ms: NDArray[np.float64]
    high_ms: NDArray[np.float64]


@dataclass(frozen=True)
class DocumentStudy(Saved):
    """Two-hop questions over documents, answered densely and from documents that were encoded apart.

    Attributes:
        arms: what was compared; dense on the base's own weights comes first.
        documents: (questions,) how many there were; ``position`` the place, from 1, of the one with the
            answer, ``first_position`` of the one with the first hop.
        prompt_tokens: (questions,) of the dense prompt; ``boundary_tokens`` those that its text, tokenised at
            once, would not have (None in records of earlier versions).
        correct: (arms, questions) 1 right, 0 wrong, -1 not asked yet.
        ttft_ms: (arms, questions) without what can be done before the question is known: encoding documents.
            NaN where not asked.
        forwarded_tokens: (arms, questions) behind that time; -1 where not asked.
        speed: times by document length, where they were measured.
    """

    model: ModelInfo
    seed: int
    arms: tuple[DocumentArm, ...]
    documents: NDArray[np.int64]
    position: NDArray[np.int64]
    first_position: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    correct: NDArray[np.int8]
    ttft_ms: NDArray[np.float64]
    forwarded_tokens: NDArray[np.int64]
    speed: DocumentSpeed | None = None
    boundary_tokens: NDArray[np.int64] | None = None
    format: int = DOCUMENTS_FORMAT

    @property
    def boundary_tax(self) -> tuple[int, int]:
        """Boundary tokens of dense's prompts, and all their tokens."""
        taxed = 0 if self.boundary_tokens is None else int(self.boundary_tokens.sum())
        return taxed, int(self.prompt_tokens.sum())

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the arms, in order."""
        return tuple(arm.label for arm in self.arms)

    def arm(self, label: str) -> int:
        """An arm's row.

        Raises:
            KeyError: there is none of that label.
        """
        if label not in self.labels:
            raise KeyError(label)
        return self.labels.index(label)

    def share(self, label: str, where: NDArray[np.bool_] | None = None) -> tuple[int, int, float, float]:
        """Right answers, questions asked, and the 95% interval of the share (Wilson); of questions
        ``where``."""
        row = self.correct[self.arm(label)]
        outcomes = row[(row >= 0) & (True if where is None else where)]
        return int(outcomes.sum()), len(outcomes), *wilson(int(outcomes.sum()), len(outcomes))

    def own_dense(self, label: str) -> str | None:
        """The label of dense on an arm's own weights; None where it was not asked."""
        weights = self.arms[self.arm(label)].weights
        return next((a.label for a in self.arms if a.reference and a.weights == weights), None)

    def recovered(self, label: str, floor: str, ceiling: str) -> tuple[float, float, float] | None:
        """How much of the gap between two arms' accuracies an arm closes, with its 95% interval (a bootstrap
        over questions, paired; the study's arms are read together, so Bonferroni over them); None where the
        two do not differ or were not asked alike."""
        rows = self.correct[[self.arm(label), self.arm(floor), self.arm(ceiling)]]
        rows = rows[:, (rows >= 0).all(axis=0)].astype(np.float64)
        if not rows.size or rows[2].mean() == rows[1].mean():
            return None

        def gap_share(sample: NDArray[np.int64]) -> NDArray[np.float64]:
            accuracy, low, high = rows[:, sample].mean(axis=2)
            differs = high != low
            return np.asarray((accuracy - low)[differs] / (high - low)[differs])

        accuracy, low, high = rows.mean(axis=1)
        return float((accuracy - low) / (high - low)), *bootstrap_interval(
            gap_share, rows.shape[1], family=len(self.arms) - 2
        )
