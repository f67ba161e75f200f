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


@dataclass(frozen=True)
class Settings:
    """What a person may set.

    Attributes:
        out: folder of the rows; made if need be.
        problems, warmup: requests, questions, episodes or repetitions instead of the plan's.
        scale: absent, it is *paper* for a model of another name and *embedded* otherwise.
        model: instead of the scale's own.
        data: folder of the data sets' files, for the paper scale, or *hub*: each format's own there.
        links: folder of trained link tokens; looked at before others are trained.
        training_steps: of missing weights (400); 0 trains none and leaves their lines empty.
        device_map, quantise: see :func:`backend.model.load.load_model`.
        ray: run a sweep's shards in workers on Ray: the address of a cluster, or empty for this machine.
        workers: how many, with ``ray``.
        command: as it was typed, for the report.
        warmups: independent draws of warm-up and requests, for each of which a sweep is run (1).
    """

    out: Path
    problems: int | None = None
    warmup: int | None = None
    scale: Scale | None = None
    model: str | None = None
    data: DataSource | None = None
    links: Path | None = None
    device: str | None = None
    seed: int = 0
    command: str = ""
    device_map: str | None = None
    quantise: str | None = None
    ray: str | None = None
    workers: int | None = None
    training_steps: int | None = None
    warmups: int | None = None


@dataclass
class Context:
    """One run of a reproduction, as the settings say.

    Attributes:
        notes: remarks for the report; runners add to it.
        weights: hash and dtype of what workers loaded, by the model's name.
        trained: the weights available to the plan (:func:`backend.reproduce.training.provide`).
    """

    reproduction: Reproduction
    scale: Scale
    model_name: str
    settings: Settings
    notes: list[str] = field(default_factory=list)
    loaded: dict[str, LoadedModel] = field(default_factory=dict)
    weights: dict[str, str] = field(default_factory=dict)
    trained: tuple[Linked, ...] = ()

    @property
    def warmups(self) -> int:
        """Independent draws of warm-up and requests, for each of which a sweep is run."""
        return self.settings.warmups or 1

    @property
    def loader(self) -> Callable[[str], LoadedModel]:
        """Loads a model with this run's options; it can be sent to other processes."""
        asked = self.settings
        return partial(
            shape_or_model, device=asked.device, device_map=asked.device_map, quantise=asked.quantise
        )

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
        return planned if self.settings.problems is None else self.settings.problems

    def warm(self, planned: int) -> int:
        """Problems that only fill the pools: at most as many as are measured, unless set by hand."""
        asked = self.settings.warmup
        return min(planned, self.count(planned)) if asked is None else asked
