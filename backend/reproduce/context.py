"""What a plan's runner uses: models, folders, and a list for remarks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from backend.bench.group import shape_or_model
from backend.model.load import LoadedModel
from backend.records.events import Progress
from backend.reproduce.spec import Measurement, Reproduction, Scale

Step = Progress | Measurement
DataSource = Path | Literal["hub"]


@dataclass(frozen=True)
class Linked:
    """Weights trained for separately encoded documents: the model's name, what they are, the steps they were
    trained for, and where they come from: "shipped", "--links" or "--out"."""

    model: str
    label: str
    mixture: str
    compression: str
    rate: str
    steps: int
    source: str

    @property
    def kind(self) -> dict[str, str]:
        """What tells weights of one label apart."""
        return {"mixture": self.mixture, "compression": self.compression, "rate": self.rate}


@dataclass
class Context:
    """One run of a reproduction.

    Attributes:
        problems, warmup: asked for on the command line; None leaves the plan's own.
        data: folder of the data sets' files, or *hub*; ``links``: of trained link tokens.
        device_map, quantise: see :func:`backend.model.load.load_model`.
        ray, workers: address of a Ray cluster (empty: one on this machine) and how many work at once; without
            an address all is done in this process.
        chosen: the model was named on the command line, and stands for those that tasks name too.
        training_steps: of missing weights; 0 trains none. ``trained``: the weights available to the plan
            (:func:`backend.reproduce.training.provide`).
        warmups: independent draws of warm-up and requests, for each of which a sweep is run.
        out: folder where rows go.
        notes: remarks for the report; runners add to it.
    """

    reproduction: Reproduction
    scale: Scale
    model_name: str
    out: Path
    problems: int | None = None
    warmup: int | None = None
    data: DataSource | None = None
    links: Path | None = None
    device: str | None = None
    device_map: str | None = None
    quantise: str | None = None
    ray: str | None = None
    workers: int | None = None
    chosen: bool = False
    seed: int = 0
    notes: list[str] = field(default_factory=list)
    loaded: dict[str, LoadedModel] = field(default_factory=dict)
    weights: dict[str, str] = field(default_factory=dict)  # hash and dtype of what workers loaded, by name
    training_steps: int = 0
    trained: tuple[Linked, ...] = ()
    warmups: int = 1

    @property
    def loader(self) -> Callable[[str], LoadedModel]:
        """Loads a model with this run's options; it can be sent to other processes."""
        return partial(shape_or_model, device=self.device, device_map=self.device_map, quantise=self.quantise)

    def load(self, name: str) -> LoadedModel:
        """A model by its name, or a known shape with random weights; the base and the last one are kept."""
        if name not in self.loaded:
            self.loaded = {n: model for n, model in self.loaded.items() if n == self.model_name}
            self.loaded[name] = self.loader(name)
        return self.loaded[name]

    @property
    def model(self) -> LoadedModel:
        """The model that the reproduction runs on."""
        return self.load(self.model_name)

    def count(self, planned: int) -> int:
        """Measured problems."""
        return planned if self.problems is None else self.problems

    def warm(self, planned: int) -> int:
        """Problems that only fill the pools: at most as many as are measured, unless set by hand."""
        return min(planned, self.count(planned)) if self.warmup is None else self.warmup
