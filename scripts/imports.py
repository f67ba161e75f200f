"""Import circles, and imports that climb: ``python scripts/imports.py`` fails on any (part of ``make lint``).

Every import counts, also those inside functions and under ``TYPE_CHECKING``: a file that needs another only
for its types or only later still cannot be understood without it. The order of the rooms is that of the
``layers`` contracts in ``pyproject.toml``; what they name in ``ignore_imports`` may still climb, and what
``[tool.kvlab-imports]`` names in ``circles_left`` may still close a circle. Packages from outside may be
imported wherever it suits.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HOUSES = ("backend", "viz", "lab_app")
FACE = "kvlab"  # the package for programs, which has no rooms

Floors = list[set[str]]
Imports = dict[str, dict[str, int]]  # by module: the modules that it imports, and on which line first


def modules(root: Path, houses: Iterable[str] = HOUSES) -> dict[str, Path]:
    """The files of the houses, by module name."""
    files = {}
    for house in houses:
        for path in sorted((root / house).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imports(files: Mapping[str, Path]) -> Imports:
    """Which of these modules each of them imports."""
    return {name: _imports_of(name, path, files) for name, path in files.items()}


def _imports_of(name: str, path: Path, files: Mapping[str, Path]) -> dict[str, int]:
    lines: dict[str, int] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            # A name that is imported may be a module of the package or something in its file.
            targets = [
                f"{base}.{alias.name}" if f"{base}.{alias.name}" in files else base for alias in node.names
            ]
        for target in targets:
            if target in files and target != name:
                lines.setdefault(target, node.lineno)
    return lines


def knots(graph: Imports) -> list[set[str]]:
    """Sets of modules that reach one another (strongly connected; Tarjan's algorithm), the largest first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in graph[name]:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            knot = set()
            while name not in knot:
                knot.add(stack.pop())
            if len(knot) > 1:
                circles.append(knot)

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * len(graph) + 1000))
    for name in graph:
        if name not in index:
            visit(name)
    return sorted(circles, key=lambda knot: (-len(knot), sorted(knot)))


def shortest_circle(graph: Imports, knot: set[str]) -> list[str]:
    """A chain of imports from a module of a knot back to itself, none shorter."""
    best: list[str] = []
    for start in sorted(knot):
        ways = {start: [start]}
        queue = [start]
        while queue:
            at = queue.pop(0)
            for target in sorted(set(graph[at]) & knot):
                if target == start and (not best or len(ways[at]) < len(best) - 1):
                    best = [*ways[at], start]
                if target not in ways:
                    ways[target] = [*ways[at], target]
                    queue.append(target)
    return best


def orders(table: Mapping[str, Any]) -> tuple[dict[str, Floors], list[str]]:
    """From ``pyproject.toml``: by package, its rooms from the roof to the ground floor (rooms of one floor
    stand together; the package without a name holds the houses), and the imports that may still climb."""
    rooms, exceptions = {}, []
    for contract in table["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            floors = [{room.strip() for room in layer.split("|")} for layer in contract["layers"]]
            for container in contract.get("containers", [""]):
                rooms[container] = floors
            exceptions += contract.get("ignore_imports", [])
    return rooms, exceptions


def climbing(graph: Imports, order: Mapping[str, Floors]) -> list[tuple[str, str]]:
    """Imports of a room above one's own, or of another one on the same floor."""
    pairs = []
    for name, targets in graph.items():
        for target in targets:
            for package, floors in order.items():
                source, destination = _floor(name, package, floors), _floor(target, package, floors)
                if source and destination and source[1] != destination[1] and destination[0] <= source[0]:
                    pairs.append((name, target))
    return pairs


def _floor(name: str, package: str, floors: Floors) -> tuple[int, str] | None:
    """On which floor of a package a module stands, and in which room; 0 is the roof."""
    prefix = f"{package}." if package else ""
    if not name.startswith(prefix):
        return None
    room = name[len(prefix) :].split(".")[0]
    return next(((number, room) for number, floor in enumerate(floors) if room in floor), None)


def _matches(pair: tuple[str, str], patterns: Iterable[str]) -> bool:
    """Is an import among those that are named, ``*`` standing for anything?"""
    return any(fnmatchcase(" -> ".join(pair), pattern) for pattern in patterns)


def report(root: Path = ROOT) -> tuple[list[str], int]:
    """What is wrong, a line each, and how many imports were read."""
    table = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    files = modules(root, (*HOUSES, FACE))
    graph = imports(files)
    order, exceptions = orders(table)
    lines = []
    for name, target in climbing(graph, order):
        if not _matches((name, target), exceptions):
            where = f"{files[name].relative_to(root)}:{graph[name][target]}"
            lines.append(f"{where}: {name} -> {target} climbs; see the order of rooms in pyproject.toml")
    allowed_circles = table["tool"].get("kvlab-imports", {}).get("circles_left", [])
    remaining = {
        name: {t: at for t, at in targets.items() if not _matches((name, t), allowed_circles)}
        for name, targets in graph.items()
    }
    for knot in knots(remaining):
        chain = " -> ".join(shortest_circle(remaining, knot))
        lines.append(f"{len(knot)} modules import one another: {chain}")
    return lines, sum(map(len, graph.values()))


def main(root: Path = ROOT) -> int:
    """Print what is wrong; the exit status."""
    lines, count = report(root)
    print("\n".join([*lines, f"{count:,} imports: {len(lines)} climb or close a circle."]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
