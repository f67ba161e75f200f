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
    found = {}
    for house in houses:
        for path in sorted((root / house).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(files: Mapping[str, Path]) -> Imports:
    """Which of these modules each of them imports."""
    return {name: _imports_of(name, path, files) for name, path in files.items()}


def _imports_of(name: str, path: Path, files: Mapping[str, Path]) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        wanted: list[str] = []
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            # A name that is imported may be a module of the package or something in its file.
            wanted = [
                f"{base}.{alias.name}" if f"{base}.{alias.name}" in files else base for alias in node.names
            ]
        for target in wanted:
            if target in files and target != name:
                found.setdefault(target, node.lineno)
    return found


def knots(known: Imports) -> list[set[str]]:
    """Sets of modules that reach one another (strongly connected; Tarjan's algorithm), the largest first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in known[name]:
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
                found.append(knot)

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * len(known) + 1000))
    for name in known:
        if name not in index:
            visit(name)
    return sorted(found, key=lambda knot: (-len(knot), sorted(knot)))


def shortest_circle(known: Imports, knot: set[str]) -> list[str]:
    """A chain of imports from a module of a knot back to itself, none shorter."""
    best: list[str] = []
    for start in sorted(knot):
        ways = {start: [start]}
        queue = [start]
        while queue:
            at = queue.pop(0)
            for target in sorted(set(known[at]) & knot):
                if target == start and (not best or len(ways[at]) < len(best) - 1):
                    best = [*ways[at], start]
                if target not in ways:
                    ways[target] = [*ways[at], target]
                    queue.append(target)
    return best


def orders(table: Mapping[str, Any]) -> tuple[dict[str, Floors], list[str]]:
    """From ``pyproject.toml``: by package, its rooms from the roof to the ground floor (rooms of one floor
    stand together; the package without a name holds the houses), and the imports that may still climb."""
    found, left = {}, []
    for contract in table["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            floors = [{room.strip() for room in layer.split("|")} for layer in contract["layers"]]
            for container in contract.get("containers", [""]):
                found[container] = floors
            left += contract.get("ignore_imports", [])
    return found, left


def climbing(known: Imports, order: Mapping[str, Floors]) -> list[tuple[str, str]]:
    """Imports of a room above one's own, or of another one on the same floor."""
    found = []
    for name, targets in known.items():
        for target in targets:
            for package, floors in order.items():
                here, there = _floor(name, package, floors), _floor(target, package, floors)
                if here and there and here[1] != there[1] and there[0] <= here[0]:
                    found.append((name, target))
    return found


def _floor(name: str, package: str, floors: Floors) -> tuple[int, str] | None:
    """On which floor of a package a module stands, and in which room; 0 is the roof."""
    prefix = f"{package}." if package else ""
    if not name.startswith(prefix):
        return None
    room = name[len(prefix) :].split(".")[0]
    return next(((number, room) for number, floor in enumerate(floors) if room in floor), None)


def _named(pair: tuple[str, str], left: Iterable[str]) -> bool:
    """Is an import among those that are named, ``*`` standing for anything?"""
    return any(fnmatchcase(" -> ".join(pair), pattern) for pattern in left)


def report(root: Path = ROOT) -> tuple[list[str], int]:
    """What is wrong, a line each, and how many imports were read."""
    table = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    files = modules(root, (*HOUSES, FACE))
    known = imports(files)
    order, left = orders(table)
    lines = []
    for name, target in climbing(known, order):
        if not _named((name, target), left):
            where = f"{files[name].relative_to(root)}:{known[name][target]}"
            lines.append(f"{where}: {name} -> {target} climbs; see the order of rooms in pyproject.toml")
    closing = table["tool"].get("kvlab-imports", {}).get("circles_left", [])
    bare = {
        name: {t: at for t, at in targets.items() if not _named((name, t), closing)}
        for name, targets in known.items()
    }
    for knot in knots(bare):
        chain = " -> ".join(shortest_circle(bare, knot))
        lines.append(f"{len(knot)} modules import one another: {chain}")
    return lines, sum(map(len, known.values()))


def main(root: Path = ROOT) -> int:
    """Print what is wrong; the exit status."""
    lines, count = report(root)
    print("\n".join([*lines, f"{count:,} imports: {len(lines)} climb or close a circle."]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
