"""Look words up in a local text collection: the wiki search of the KVCOMM paper without a network.

The call is the last ``lookup[...]`` or ``Search[...]``, as in ReAct. A text without one is searched for
entities between two at signs (``@catfish effect@``), as the paper's Knowledgeable Expert writes them
(appendix 6.3.2); each of at most six is looked up.
"""

import re
from collections.abc import Callable

from backend.prompts.tools.base import Tool, ToolError, ToolResult, clip, finish
from backend.prompts.tools.collection import Collection, Passage, price_list

MAX_QUERY = 200  # characters
MAX_ENTITIES = 6
PASSAGE_CHARS = 800  # of a passage that goes into a prompt

_CALL = re.compile(r"\b(?:lookup|search)\[([^\]\n]*)(?:\]|\Z)", re.IGNORECASE)
_ENTITY = re.compile(r"@([^@\n]{1,200})@")


def find_queries(text: str) -> list[str]:
    """What the text asks to look up: one query of a call, or the entities between at signs."""
    if calls := _CALL.findall(text):
        return [" ".join(calls[-1].split())]
    entities = (" ".join(match[1].split()) for match in _ENTITY.finditer(text))
    return list(dict.fromkeys(filter(None, entities)))[:MAX_ENTITIES]


def clip_passage(passage: Passage, limit: int) -> str:
    """What a prompt gets of a passage: its value, else its text, in at most ``limit`` characters."""
    return clip((passage.text if passage.value is None else passage.value).strip(), limit)


def lookup(text: str, collection: Collection, limit: int = PASSAGE_CHARS) -> ToolResult:
    """The best passage for an agent's call, or that nothing was found.

    Args:
        text: what the agent wrote.
        collection: where to look.
        limit: characters of a passage that are given; its ``value`` is given instead, if it has one.
            Of several entities, each gives a line ``entity: passage``.
    """

    def work() -> str:
        queries = find_queries(text)
        if not any(queries):
            raise ToolError(
                "The text holds no lookup[...], no Search[...] and no entity between two @. "
                "Write for example lookup[pens].",
                "Error: nothing to look up",
            )
        if len(queries[0]) > MAX_QUERY:
            raise ToolError(
                f"The query {clip(queries[0], 40)!r} has {len(queries[0]):,} characters; up to {MAX_QUERY} "
                "are allowed. Shorten it.",
                "Error: the query is too long",
            )
        hits = [collection.search(query) for query in queries]
        passages = [clip_passage(hit[0][0], limit) if hit else "nothing was found" for hit in hits]
        if not any(hits):
            queried = ", ".join(repr(clip(query, 80)) for query in queries)
            raise ToolError(
                f"{collection.name} has no passage for {queried}. Use words that stand in it, or another "
                "collection.",
                f"Nothing was found for {queried}",
            )
        if len(queries) == 1:
            return passages[0]
        return "\n".join(f"{query}: {passage}" for query, passage in zip(queries, passages, strict=True))

    return finish(work)


def lookup_tool(collection: Callable[[], Collection] = price_list) -> Tool:
    """The tool over a collection, which is read when it is first used."""
    return Tool(
        "lookup",
        "Lookup",
        "Gives the best passage of a text collection for some words.",
        "The last lookup[...] or Search[...], else all words between two @.",
        lambda text: "; ".join(find_queries(text)) or None,
        lambda text: lookup(text, collection()),
    )
