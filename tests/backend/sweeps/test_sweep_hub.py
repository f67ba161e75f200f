"""Data sets of the hub in sweeps: a hub that answers huggingface_hub's own requests, and the cache alone."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2  # what huggingface_hub speaks through
import pytest
import yaml
from huggingface_hub import constants, set_client_factory
from huggingface_hub.utils._http import default_client_factory

from backend.base.errors import LabError, OptionError, PromptError
from backend.sweeps.datasets import FORMATS, NOT_ON_HUB, ON_HUB, Problem, read_problems
from backend.sweeps.grid import planned_rows, shards_of
from backend.sweeps.hub import HubData, fetch, splits_of
from backend.sweeps.read import parse_sweep
from backend.sweeps.spec import JudgeTask, PipelineTask, Sweep
from lab_app.cli.main import main

Files = dict[str, bytes]


class Hub:
    """Data sets with their commits, the newest last; ``refused``: what is answered instead."""

    def __init__(self) -> None:
        self.sets: dict[str, list[tuple[str, Files]]] = {}
        self.refused: dict[str, tuple[int, str]] = {}
        self.asked: list[str] = []
        self.down = False

    def put(self, id: str, files: Files) -> str:
        """A new commit of a data set."""
        commits = self.sets.setdefault(id, [])
        commit = hashlib.sha1(f"{id} {len(commits)}".encode()).hexdigest()
        commits.append((commit, files))
        return commit

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        path = unquote(request.url.path)
        self.asked.append(path)
        if self.down:
            raise httpx2.ConnectError("[Errno -2] Name or service not known", request=request)
        for id, (status, code) in self.refused.items():
            if id in path:
                return httpx2.Response(status, headers={"X-Error-Code": code}, json={})
        id = next((id for id in self.sets if f"datasets/{id}/" in path), None)
        if id is None:
            return httpx2.Response(404, headers={"X-Error-Code": "RepoNotFound"}, json={})
        what, revision, *rest = path.partition(f"datasets/{id}/")[2].split("/", 2)
        known = dict(self.sets[id]) | {"main": self.sets[id][-1][1]}
        if revision not in known:
            return httpx2.Response(404, headers={"X-Error-Code": "RevisionNotFound"}, json={})
        files = known[revision]
        if what == "revision":
            sha = revision if revision != "main" else self.sets[id][-1][0]
            siblings = [{"rfilename": path} for path in files]
            return httpx2.Response(200, json={"id": id, "sha": sha, "siblings": siblings})
        if what == "tree":
            rows = [{"type": "file", "path": p, "size": len(c), "oid": etag(c)} for p, c in files.items()]
            return httpx2.Response(200, json=rows)
        content = files[rest[0]]
        headers = {"ETag": f'"{etag(content)}"', "X-Repo-Commit": revision}
        if request.method == "HEAD":
            return httpx2.Response(200, headers=headers | {"Content-Length": str(len(content))})
        return httpx2.Response(200, headers=headers, content=content)


def etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    found = Hub()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    set_client_factory(lambda: httpx2.Client(transport=httpx2.MockTransport(found.answer)))
    yield found
    set_client_factory(default_client_factory)


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(*rows: Any) -> bytes:
    import pyarrow
    import pyarrow.parquet

    into = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), into)
    return into.getvalue()


def card(**configs: dict[str, str]) -> bytes:
    """A data set's card; splits and patterns of each configuration."""
    told = [
        {"config_name": name, "data_files": [{"split": s, "path": p} for s, p in splits.items()]}
        for name, splits in configs.items()
    ]
    return f"---\nlicense: mit\n{yaml.safe_dump({'configs': told})}---\n# A data set\n".encode()


def gsm(*numbers: int) -> list[dict[str, str]]:
    return [{"question": f"q{n}", "answer": f"so <<{n}={n}>>\n#### {n}"} for n in numbers]


def gsm8k(*numbers: int) -> Files:
    """As the hub has it, the split *test* of *main* with these questions."""
    return {
        ".gitattributes": b"*.parquet filter=lfs",
        "README.md": card(
            main={"train": "main/train-*", "test": "main/test-*"},
            socratic={"train": "socratic/train-*", "test": "socratic/test-*"},
        ),
        "main/test-00000-of-00001.parquet": parquet(*gsm(*numbers)),
        "main/train-00000-of-00001.parquet": parquet(*gsm(100)),
        "socratic/test-00000-of-00001.parquet": parquet(*gsm(200)),
        "socratic/train-00000-of-00001.parquet": parquet(*gsm(300)),
    }


NOISE = parquet({"not": "this"})
# Files and columns as the hub has them; what is read.
SHAPES: dict[str, tuple[str, str, Files, Problem]] = {
    "gsm8k": ("gsm8k", "hub", gsm8k(7), Problem("q7", ("7",))),
    "mmlu": (
        "mmlu", "hub",
        {"README.md": card(all={"test": "all/test-*", "dev": "all/dev-*"},
                           anatomy={"test": "anatomy/test-*"}),
         "all/test-00000-of-00001.parquet": parquet(
             {"question": "Which?", "subject": "anatomy", "choices": ["a", "b", "c", "d"], "answer": 2}),
         "all/dev-00000-of-00001.parquet": NOISE, "anatomy/test-00000-of-00001.parquet": NOISE,
         "data.tar": b"-"},
        Problem("Which?\nA. a\nB. b\nC. c\nD. d", ("C",)),
    ),
    "humaneval": (
        "humaneval", "hub",
        {"README.md": card(openai_humaneval={"test": "openai_humaneval/test-*"}),
         "openai_humaneval/test-00000-of-00001.parquet": parquet(
             {"task_id": "HumanEval/0", "prompt": "def f(x):\n", "canonical_solution": "    return x\n",
              "test": "def check(candidate):\n    pass", "entry_point": "f"})},
        Problem("def f(x):\n", ("def check(candidate):\n    pass\ncheck(f)\n",)),
    ),
    "math500": (
        "math500", "hub",
        {"README.md": b"---\ntask_categories:\n- text-generation\n---\n# MATH-500\n",
         "test.jsonl": lines(
             {"problem": "Find $x$.", "solution": "...", "answer": "\\frac{1}{2}", "level": 2})},
        Problem("Find $x$.", ("\\frac{1}{2}",)),
    ),
    "aime": (
        "aime", "hub",
        {"README.md": card(default={"train": "data/train-*"}),
         "data/train-00000-of-00001.parquet": parquet({"id": 60, "problem": "Find it.", "answer": "073"})},
        Problem("Find it.", ("073",)),
    ),
    "aime, capitalised": (
        "aime", "hub:Maxwell-Jia/AIME_2024",
        {"README.md": card(default={"train": "aime_2024_problems.parquet"}),
         "aime_2024_problems.parquet": parquet({"ID": "2024-I-1", "Problem": "Find it.", "Answer": 204})},
        Problem("Find it.", ("204",)),
    ),
    "hotpotqa": (
        "hotpotqa", "hub",
        {"README.md": card(distractor={"train": "distractor/train-*", "validation": "distractor/val*"},
                           fullwiki={"validation": "fullwiki/validation-*"}),
         "distractor/train-00000-of-00001.parquet": NOISE,
         "distractor/validation-00000-of-00001.parquet": parquet(
             {"id": "5a", "question": "Who?", "answer": "Ada",
              "context": {"title": ["One", "Two"], "sentences": [["A. ", "B."], ["C."]]}}),
         "fullwiki/validation-00000-of-00001.parquet": NOISE},
        Problem("Who?", ("Ada",), ("One\nA. B.", "Two\nC.")),
    ),
    "musique": (
        "musique", "hub",  # without a card
        {"musique_ans_v1.0_train.jsonl": lines({"not": "this"}),
         "musique_ans_v1.0_dev.jsonl": lines(
             {"id": "2hop__1_2", "question": "Who?", "answer": "Ada", "answer_aliases": ["Lovelace"],
              "paragraphs": [{"idx": 0, "title": "One", "paragraph_text": "A.", "is_supporting": True}]})},
        Problem("Who?", ("Ada", "Lovelace"), ("One\nA.",)),
    ),
    "nq": (
        "nq", "hub:someone/nq",
        {"nq.parquet": parquet({"question": "Who?", "answers": ["Ada", "Lovelace"],
                                "ctxs": [{"title": "One", "text": "A.", "isgold": True}]})},
        Problem("Who?", ("Ada", "Lovelace"), ("One\nA.",)),
    ),
    "nq, gzipped": (
        "nq", "hub:someone/nq",
        {"nq-open-10.jsonl.gz": gzip.compress(lines({"question": "Who?", "answers": ["Ada"], "ctxs": [
            {"title": "One", "text": "A."}]}))},
        Problem("Who?", ("Ada",), ("One\nA.",)),
    ),
}  # fmt: skip


def sweep(data: Any, format: str = "gsm8k", folder: Path = Path(), **more: Any) -> Sweep:
    task = {"pipeline": "math-2", "data": data, "format": format}
    body = {"name": "a", "methods": "dense", "problems": 1, "tasks": [task]} | more
    return parse_sweep(yaml.safe_dump(body), "a.yaml", folder)


def read(data: Any, format: str = "gsm8k") -> list[str]:
    """The questions."""
    [task] = sweep(data, format).tasks
    assert task.data
    return [problem.question for problem in read_problems(task.data.path, format)]


def test_every_format_is_known_or_said_not_to_be() -> None:
    assert set(FORMATS) - set(ON_HUB) == set(NOT_ON_HUB)
    for format, instead in NOT_ON_HUB.items():
        with pytest.raises(
            OptionError, match=f"for {format} no data set of the hub is known: {instead[:20]}"
        ):
            sweep("hub", format)


@pytest.mark.parametrize("shape", list(SHAPES))
def test_every_format_is_read_as_the_hub_has_it(hub: Hub, shape: str) -> None:
    format, data, files, wanted = SHAPES[shape]
    hub.put(ON_HUB[format].id if data == "hub" else data.removeprefix("hub:"), files)
    [task] = sweep(data, format).tasks
    assert task.data
    assert read_problems(task.data.path, format) == [wanted]


def test_configuration_and_split_are_those_that_were_asked_for(hub: Hub) -> None:
    hub.put("openai/gsm8k", gsm8k(1, 2))
    assert read("hub") == read("hub:openai/gsm8k") == ["q1", "q2"]
    assert read({"hub": "openai/gsm8k", "split": "train"}) == ["q100"]
    assert read({"hub": "openai/gsm8k", "config": "socratic"}) == ["q200"]
    assert read({"hub": "openai/gsm8k", "config": "socratic", "split": "train"}) == ["q300"]
    fetched = {path.rpartition("/")[2] for path in hub.asked if "resolve" in path}
    assert fetched == {"README.md", "test-00000-of-00001.parquet", "train-00000-of-00001.parquet"}


def test_nothing_but_the_split_is_fetched(hub: Hub) -> None:
    commit = hub.put("openai/gsm8k", gsm8k(1))
    read("hub")
    fetched = {path.partition(f"/{commit}/")[2] for path in hub.asked if "resolve" in path}
    assert fetched == {"README.md", "main/test-00000-of-00001.parquet"}


def test_a_data_set_with_one_split_needs_no_name_for_it(hub: Hub) -> None:
    hub.put("someone/gsm", {"questions.csv": b"question,answer\nq1,#### 1\n"})
    assert read("hub:someone/gsm") == ["q1"]


def test_files_of_a_split_are_read_in_order(hub: Hub) -> None:
    files = {f"data/test-0000{n}-of-00003.jsonl": lines(*gsm(n)) for n in (2, 0, 1)}
    hub.put("someone/gsm", files | {"data/train-00000-of-00001.jsonl": lines(*gsm(9))})
    assert read("hub:someone/gsm") == ["q0", "q1", "q2"]


def test_the_commit_that_was_read_is_told_and_can_be_asked_for_again(hub: Hub) -> None:
    old = hub.put("openai/gsm8k", gsm8k(1))
    found = sweep("hub")
    [task] = found.tasks
    assert isinstance(task, PipelineTask)
    assert task.data
    assert isinstance(task.data.path, HubData)
    assert task.data.path.revision == old
    assert task.label == "math-2 @ openai/gsm8k main/test"
    told = f"{{hub: openai/gsm8k, config: main, split: test, revision: {old}}}"
    assert found.source.endswith(f"\n# read from the hub: {told}\n")
    assert yaml.safe_load(found.source)["tasks"][0]["data"] == "hub"
    new = hub.put("openai/gsm8k", gsm8k(2))
    assert new in sweep("hub").source
    assert read("hub") == ["q2"]
    assert read(yaml.safe_load(told)) == ["q1"]


def test_two_tasks_on_one_data_set_fetch_it_once(hub: Hub) -> None:
    hub.put("openai/gsm8k", gsm8k(1))
    task = {"pipeline": "math-{agents}", "agents": [2, 3, 4], "data": "hub", "format": "gsm8k"}
    found = sweep("hub", tasks=[task])
    assert len(found.tasks) == 3
    assert found.source.count("read from the hub") == 1
    assert sum("/revision/main" in path for path in hub.asked) == 1


def test_rows_are_the_same_wherever_the_problems_come_from(hub: Hub, tmp_path: Path) -> None:
    """So a sweep goes on when its file becomes a data set of the hub."""
    hub.put("openai/gsm8k", gsm8k(1, 2))
    (tmp_path / "gsm8k.jsonl").write_bytes(lines(*gsm(1, 2)))

    def keys(data: str) -> list[str]:
        found = sweep(data, folder=tmp_path, problems=2, methods=["naive"])
        return [slot.key("weights") for slot in planned_rows(shards_of(found))]

    assert keys("hub") == keys("gsm8k.jsonl")
    assert len(keys("hub")) == 4


@pytest.mark.parametrize("data", ["hub", {"hub": "openai/gsm8k", "config": "main", "split": "test"}])
def test_a_judges_problems_come_from_the_hub_too(hub: Hub, data: Any) -> None:
    hub.put("openai/gsm8k", gsm8k(1))
    judge = {"judge": {"regime": "parallel"}, "data": data, "format": "gsm8k"}
    found = sweep("hub", tasks=[judge])
    [task] = found.tasks
    assert isinstance(task, JudgeTask)
    assert task.label.endswith(" @ openai/gsm8k main/test")
    assert shards_of(found)[0].problems[0].question == "q1"


def test_files_beside_the_sweep_stay_files(tmp_path: Path) -> None:
    """Whatever looks like an id of the hub; a file called hub is ./hub."""
    (tmp_path / "openai").mkdir()
    for name in ("openai/gsm8k", "hub"):
        (tmp_path / name).write_bytes(lines(*gsm(5)))
    for name in ("openai/gsm8k", "./hub"):
        [task] = sweep(name, folder=tmp_path).tasks
        assert task.data
        assert task.data.path == tmp_path / name
        assert read_problems(task.data.path, "gsm8k") == [Problem("q5", ("5",))]


def test_the_hub_is_asked_when_all_else_is_right(hub: Hub) -> None:
    with pytest.raises(LabError, match="nonsense"):
        sweep("hub", methods="nonsense")
    assert not hub.asked


# -- without a network


def test_what_was_fetched_is_read_without_a_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub.put("openai/gsm8k", gsm8k(1))
    read("hub")
    hub.down = True
    assert read("hub") == ["q1"]
    assert commit in sweep("hub").source
    set_client_factory(default_client_factory)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert read({"hub": "openai/gsm8k", "revision": commit}) == ["q1"]


def test_a_folder_as_the_hubs_own_command_leaves_it_is_read(cache: Path) -> None:
    """Brought from elsewhere: links into ``blobs``, the branch in ``refs``; tests are offline."""
    home, commit = cache / "datasets--HuggingFaceH4--MATH-500", "a" * 40
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(commit)
    (home / "snapshots" / commit).mkdir(parents=True)
    (home / "blobs").mkdir()
    (home / "blobs" / "b1").write_bytes(lines({"problem": "Find $x$.", "answer": "1"}))
    (home / "snapshots" / commit / "test.jsonl").symlink_to("../../blobs/b1")
    assert read("hub", "math500") == ["Find $x$."]


# -- what is refused


def down(hub: Hub) -> None:
    hub.down = True


def down_later(hub: Hub) -> None:
    read("hub")
    hub.down = True


def card_alone(hub: Hub) -> None:
    """It was fetched, the split was not."""
    down_later(hub)
    for path in Path(constants.HF_HUB_CACHE).rglob("*.parquet"):
        path.unlink()


def gated(hub: Hub) -> None:
    """The hub tells of it, but gives no file."""
    hub.refused["openai/gsm8k/resolve"] = (403, "GatedRepo")


def closed(hub: Hub) -> None:
    hub.refused["openai/gsm8k"] = (403, "GatedRepo")


def failing(hub: Hub) -> None:
    hub.refused["openai/gsm8k"] = (501, "")


def bare(hub: Hub) -> None:
    hub.put("openai/gsm8k", {"README.md": b"# Nothing", "gsm8k.py": b"print()", "dataset_infos.json": b"{}"})


def in_part(hub: Hub) -> None:
    names = [f"main/test-0000{n}-of-00002.jsonl" for n in range(2)]
    commit = hub.put("openai/gsm8k", {name: lines(*gsm(n)) for n, name in enumerate(names)})
    read("hub")
    hub.down = True
    place = Path(constants.HF_HUB_CACHE) / "datasets--openai--gsm8k" / "snapshots" / commit
    (place / names[1]).unlink()


def offline(hub: Hub) -> None:
    constants.HF_HUB_OFFLINE = True  # the fixture puts it back
    set_client_factory(default_client_factory)


def nothing(hub: Hub) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "data", "said"),
    [
        (down, "hub", r"'openai/gsm8k' cannot be loaded from the hub \(ConnectError: .*service not known\), "
                      r"and is not in its cache\. .*\(hf download openai/gsm8k --repo-type dataset\), or "),
        (offline, "hub", r"cannot be loaded from the hub \(OfflineModeIsEnabled: .*HF_HUB_OFFLINE"),
        (nothing, "hub:openai/gsm9k", r"'openai/gsm9k' is not on the hub, or it is private\. Check the id"),
        (gated, "hub", r"is gated\. Accept its terms at https://huggingface\.co/datasets/openai/gsm8k and"),
        (closed, "hub", "is gated"),
        (failing, "hub", r"cannot be loaded from the hub \(HfHubHTTPError: .*501"),
        (nothing, "hub:a/b/c", r"'a/b/c' has no name that the hub could have\. Write it as in openai/gsm8k"),
        (nothing, "hub:", r"'' has no name"),
        (nothing, {"hub": "openai/gsm8k", "revision": "v9"}, r"has no revision 'v9'\. Give a branch"),
        (nothing, {"hub": "openai/gsm8k", "split": "dev"},
         r"has no split 'dev'; there are main/train, main/test, socratic/train, socratic/test \(config/"),
        (nothing, {"hub": "openai/gsm8k", "config": "x", "split": "test"}, r"no split 'test' of config 'x'"),
        (nothing, {"hub": "openai/gsm8k", "config": "x"}, r"has no config 'x'; there are main/train"),
        (card_alone, "hub", r"cannot be loaded from the hub \(ConnectError.* and is not in its cache"),
        (bare, "hub", r"holds no Parquet, JSON lines, JSON or CSV file\. Try revision: refs/convert/parquet"),
        (down_later, {"hub": "openai/gsm8k", "split": "train"},
         r"has no split 'train'; the hub cannot be reached, and its cache has main/test"),
        (in_part, "hub", r"Of openai/gsm8k main/test, the hub cannot be reached, and its cache has 1 of 2"),
    ],
)  # fmt: skip
def test_what_the_hub_does_not_give_is_told_in_a_line(
    hub: Hub, change: Callable[[Hub], None], data: Any, said: str
) -> None:
    hub.put("openai/gsm8k", gsm8k(1))
    change(hub)
    with pytest.raises(OptionError, match=said) as caught:
        sweep(data)
    text = str(caught.value)
    assert text.startswith("a.yaml: ")
    assert "\n" not in text
    assert len(text) < 600
    assert caught.value.field == "data"


def test_what_an_error_carries_is_hidden(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    """Nor do the library's lines about each try tell it."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
        raise httpx2.ConnectError(f"refused for hf_{'x' * 30}\nand more", request=request)

    set_client_factory(lambda: httpx2.Client(transport=httpx2.MockTransport(answer)))
    with pytest.raises(OptionError, match=r"refused for \[hidden\] and more"):
        sweep("hub")
    assert "Retrying" not in caplog.text


def test_several_splits_are_listed(hub: Hub) -> None:
    files = {f"{n}/test.jsonl": lines(*gsm(n)) for n in range(20)}
    hub.put("someone/gsm", files)
    with pytest.raises(OptionError, match=r"several splits; there are .*, 19/test and 8 more") as caught:
        sweep("hub:someone/gsm")
    assert "Name one of them" in str(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"config": "main"}, "task 1, data lacks the key 'hub'"),
        ({"hub": "openai/gsm8k", "subset": "main"}, "task 1, data has the unknown key 'subset'"),
        ({"hub": "openai/gsm8k", "revision": 1}, r"tasks\.1\.data\.revision is 1, but must be text"),
        (["hub"], r"tasks\.1\.data is \['hub'\], but must be text .* or names with values"),
    ],
)
def test_what_a_sweep_file_may_say_of_the_hub(data: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        sweep(data)


def test_questions_without_passages_are_refused_with_a_file_that_has_them(hub: Hub) -> None:
    with pytest.raises(
        OptionError, match=r"for nq no data set.*nq_open has questions alone.*lost-in-the-middle"
    ):
        sweep("hub", "nq")
    assert not hub.asked
    row = {"question": "who wrote it", "answer": ["Ada", "Lovelace"]}
    hub.put(
        "google-research-datasets/nq_open",
        {"nq_open/train-00000-of-00001.parquet": NOISE,
         "nq_open/validation-00000-of-00001.parquet": parquet(row)},
    )  # fmt: skip
    [task] = sweep({"hub": "google-research-datasets/nq_open", "split": "validation"}, "nq").tasks
    assert task.data
    where = r"nq_open/validation, validation-00000-of-00001\.parquet, row 1: this is no nq problem"
    with pytest.raises(PromptError, match=rf"{where}: it has no passages \(ctxs\)\. .*lost-in-the-middle"):
        read_problems(task.data.path, "nq")


def test_parquet_without_its_library_is_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.put("openai/gsm8k", gsm8k(1))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(OptionError, match=r"Parquet files need pyarrow.*kv-reuse-lab\[parquet\]"):
        shards_of(sweep("hub"))


def test_a_damaged_file_is_told_with_its_data_set(hub: Hub) -> None:
    hub.put("openai/gsm8k", gsm8k() | {"main/test-00000-of-00001.parquet": b"no table"})
    [task] = sweep("hub").tasks
    assert task.data
    with pytest.raises(
        PromptError, match=r"openai/gsm8k main/test: test-00000-of-00001\.parquet is no Parquet file"
    ):
        read_problems(task.data.path, "gsm8k")


def test_the_command_tells_it_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(
        "name: a\nmethods: dense\ntasks: [{pipeline: gsm8k-paper, data: hub, format: gsm8k}]\n"
    )
    assert main(["sweep", "a.yaml"]) != 0
    said = capsys.readouterr().err.strip()
    assert "The data set 'openai/gsm8k' cannot be loaded from the hub" in said
    assert "\n" not in said
    assert not (tmp_path / "a.sqlite").exists()


# -- which files hold a split


def test_names_tell_the_splits_where_the_card_does_not() -> None:
    names = [
        "README.md", "dataset_infos.json", "main/test-00000-of-00001.parquet", "test.jsonl", "data/dev.csv",
        "a/train-00001-of-00002-0f3b.parquet", "a/train-00000-of-00002-9c.parquet", "b/test/0000.parquet",
    ]  # fmt: skip
    wanted = {
        ("main", "test"): ["main/test-00000-of-00001.parquet"],
        ("default", "test"): ["test.jsonl"],
        ("default", "dev"): ["data/dev.csv"],
        ("a", "train"): ["a/train-00000-of-00002-9c.parquet", "a/train-00001-of-00002-0f3b.parquet"],
        ("b", "test"): ["b/test/0000.parquet"],
    }
    for silent in (None, {}, "text", {"configs": None}, {"configs": [1, {"config_name": "a"}]}):
        assert splits_of(names, silent) == wanted


def test_a_card_has_the_word() -> None:
    names = ["holdout.csv", "x/a.jsonl", "x/b.jsonl", "y.json"]
    told = [
        {"config_name": "one", "data_files": [{"split": "test", "path": ["x/*", "holdout.csv"]}]},
        {"config_name": "two", "data_files": "y.json"},
        {"config_name": "three", "data_files": ["x/a.jsonl", "x/b.jsonl"]},
        {"config_name": "gone", "data_files": [{"split": "test", "path": "z/*"}]},
    ]
    assert splits_of(names, {"configs": told}) == {
        ("one", "test"): ["x/a.jsonl", "x/b.jsonl"],  # one kind of file
        ("two", "train"): ["y.json"],
        ("three", "train"): ["x/a.jsonl", "x/b.jsonl"],
    }


def test_a_split_is_not_read_twice_from_two_kinds_of_files() -> None:
    assert splits_of(["aime.jsonl", "aime.parquet", "aime.csv"]) == {("default", "aime"): ["aime.parquet"]}


def test_a_card_that_cannot_be_read_says_nothing(hub: Hub) -> None:
    for text in (b"---\n- a list\n---\n", b"---\n{\n---\n", b"\xff\xfe"):
        hub.sets.clear()
        hub.put("someone/gsm", {"README.md": text, "test.jsonl": lines(*gsm(4))})
        assert fetch(HubData("someone/gsm")).split == "test"
