"""Public benchmarks of general capability, read densely by the LM Evaluation Harness, on the base and on each
set of trained weights: KVLink's Table 2 and half of its Table 5 (Section 3.4).

The harness is an extra. Its data sets come from the hub; tasks in a folder stand in for its own of that name.
What a model answered is kept beside the rows, by weights, so a run that was stopped goes on.
"""

import logging
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import torch

from backend.base.errors import BudgetError, OptionError
from backend.base.hub_errors import quiet_lookups, reason
from backend.model.load import LoadedModel
from backend.records.events import Progress
from backend.reproduce.context import Context, DataSource, Step
from backend.reproduce.spec import HarnessPlan, HarnessTask, Measurement, Value

LONGEST = 8192  # tokens of a prompt and its answer; examples and all, no benchmark's is longer
ROWS = {"cuda": 4}  # prompts at once: the harness takes every token's logits, and a vocabulary is large


def harness(plan: HarnessPlan, context: Context) -> Iterator[Step]:
    """Ask every benchmark under every set of weights.

    Raises:
        OptionError: a task cannot be asked.
    """
    library = _library()
    manager = _manager(context.settings.data if isinstance(context.settings.data, Path) else None)
    runs = list(product((None, *context.trained), plan.tasks))
    for number, (linked, task) in enumerate(runs):
        name = linked.model if linked else context.model_name
        where = {"weights": linked.label, **linked.kind} if linked else {"weights": "base"}
        yield Progress(f"{task.name} under {where['weights']}", number, len(runs))
        values = _run_benchmark(library, manager, context.load(name), task, plan, context)
        for title, value in values.items():
            place = {**where, "method": "dense", "model": context.model_name, "task": title}
            yield Measurement(place, {"accuracy": value})


def check(plan: HarnessPlan, data: DataSource | None, name: str) -> None:
    """Before anything is fetched or loaded.

    Raises:
        OptionError: the harness is not installed, or no data was named.
    """
    _library()
    if data is None:
        raise OptionError(
            f"{name} at paper scale asks {', '.join(task.name for task in plan.tasks)}. Give --data hub to "
            "fetch them, or --data FOLDER: tasks of these names in it (NAME.yaml, as the LM Evaluation "
            "Harness writes them) stand in for its own, the others are fetched.",
            field="reproduce.data",
        )


def _library() -> Any:
    """The harness.

    Raises:
        OptionError: it is not installed.
    """
    try:
        import lm_eval
        import lm_eval.models.huggingface
        import lm_eval.tasks
    except ImportError:
        raise OptionError(
            "These benchmarks are asked by the LM Evaluation Harness, which is not installed. Install it "
            "(pip install 'kv-reuse-lab[harness]'), or choose --scale embedded.",
            field="reproduce.scale",
        ) from None
    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # its remarks help nobody here
    return lm_eval


@lru_cache(maxsize=1)
def _manager(folder: Path | None) -> Any:
    """The harness's tasks and, in their stead, a folder's: it reads thousands of files, seconds long."""
    return _library().tasks.TaskManager(include_path=str(folder) if folder else None)


def _run_benchmark(
    library: Any, manager: Any, model: LoadedModel, task: HarnessTask, plan: HarnessPlan, context: Context
) -> dict[str, Value]:
    """One benchmark under one set of weights: its figures, by title."""
    cache = context.settings.out / f"harness-{model.info.weights_hash}"
    tokenizer = model.tokens.tokenizer
    try:
        with quiet_lookups(), torch.inference_mode():
            reader = library.models.huggingface.HFLM(
                pretrained=model.module,
                tokenizer=tokenizer,
                batch_size=ROWS.get(model.device.type, 1),
                max_length=min(LONGEST, model.info.context_tokens),
            )
            results = library.simple_evaluate(
                reader,
                tasks=[task.name],
                num_fewshot=task.shots,
                apply_chat_template=task.chat and bool(tokenizer.chat_template),
                limit=context.count(plan.problems) or None,
                bootstrap_iters=100,  # unused: the error of a share comes from a formula
                log_samples=False,
                use_cache=str(cache),
                task_manager=manager,
                random_seed=context.settings.seed,
                fewshot_random_seed=context.settings.seed,
            )
    except torch.OutOfMemoryError as error:
        raise BudgetError(
            f"The benchmark {task.name} does not fit into the device's memory ({reason(error)}). Choose a "
            "smaller model or a larger device, or --quantise.",
            field="reproduce.model",
        ) from error
    except Exception as error:  # of the many kinds that files, networks and tasks have
        raise OptionError(
            f"The benchmark {task.name} cannot be asked ({type(error).__name__}: {reason(error)}). Check the "
            "network and the task, or give --data FOLDER with one of that name.",
            field="reproduce.data",
        ) from error
    marks, count = results["results"][task.name], sum(n["effective"] for n in results["n-samples"].values())
    return {title: _value(marks, metric, count) for title, metric in task.metrics.items()}


def _value(marks: Mapping[str, Any], metric: str, count: int) -> Value:
    """A share with its 95% interval, by the harness's standard error; NaN where it gives none."""
    if metric not in marks:
        raise OptionError(
            f"The task gives no {metric!r}; it gives {', '.join(sorted(k for k in marks if ',' in k))}. "
            "Write the task so that it does.",
            field="reproduce.data",
        )
    share, error = float(marks[metric]), marks.get(metric.replace(",", "_stderr,"))
    if not isinstance(error, int | float):
        return Value(share, math.nan, math.nan, count)
    return Value(share, max(0.0, share - 1.96 * error), min(1.0, share + 1.96 * error), count)
