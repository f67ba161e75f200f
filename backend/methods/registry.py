"""The methods by name. A new method is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from backend.base.errors import OptionError
from backend.methods.ape import ApeMethod
from backend.methods.base import Method
from backend.methods.block_attention import BlockAttentionMethod
from backend.methods.cacheblend import CacheBlendMethod
from backend.methods.composed import ComposedMethod
from backend.methods.dense import DenseMethod
from backend.methods.epic import EpicMethod
from backend.methods.kvcomm.method import KVCommMethod
from backend.methods.kvcomm.palkv import PalKVMethod
from backend.methods.kvcomm.slot_aligned import SlotAlignedMethod
from backend.methods.kvlink import KVLinkMethod
from backend.methods.kvpacket import KVPacketMethod
from backend.methods.masked import MaskedMethod
from backend.methods.naive import NaiveMethod
from backend.methods.options import Options
from backend.methods.oracle import OracleMethod
from backend.methods.prefix import PrefixMethod
from backend.methods.promptcache import PromptCacheMethod
from backend.methods.prophetkv import ProphetKVMethod
from backend.methods.recompute_slots import RecomputeSlotsMethod
from backend.methods.relaycaching import RelayCachingMethod
from backend.methods.repair import RepairMethod
from backend.methods.segments.method import SegmentsMethod
from backend.methods.selective import OracleKMethod, QueryNormMethod, RandomKMethod

METHODS: tuple[type[Method], ...] = (
    DenseMethod,
    PrefixMethod,
    NaiveMethod,
    KVCommMethod,
    PalKVMethod,
    SlotAlignedMethod,
    CacheBlendMethod,
    EpicMethod,
    ProphetKVMethod,
    QueryNormMethod,
    RandomKMethod,
    OracleKMethod,
    PromptCacheMethod,
    BlockAttentionMethod,
    KVLinkMethod,
    KVPacketMethod,
    ApeMethod,
    SegmentsMethod,
    RelayCachingMethod,
    RepairMethod,
    ComposedMethod,
    MaskedMethod,
    RecomputeSlotsMethod,
    OracleMethod,
)


@dataclass(frozen=True)
class OptionField:
    """What a widget, a flag or a docs table needs to know of one option."""

    name: str
    label: str
    kind: Literal["bool", "int", "float", "choice"]
    default: Any
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    help: str
    paper: str
    advanced: bool = False


def method_names() -> tuple[str, ...]:
    """Names in the order of columns."""
    return tuple(m.name for m in METHODS)


def method_class(name: str) -> type[Method]:
    """The class of a method.

    Raises:
        OptionError: there is no such method.
    """
    for method in METHODS:
        if method.name == name:
            return method
    raise OptionError(
        f"There is no method {name!r}; there are: {', '.join(method_names())}.", field="methods"
    )


def option_fields(cls: type[Method]) -> tuple[OptionField, ...]:
    """The method's options, from its ``Options`` dataclass."""
    out = []
    for f in fields(cls.Options):
        kinds: dict[type, Literal["bool", "int", "float", "choice"]] = {
            bool: "bool",
            int: "int",
            float: "float",
        }
        kind = "choice" if f.metadata["choices"] else kinds[type(f.default)]
        m = f.metadata
        out.append(
            OptionField(
                f.name,
                m["label"],
                kind,
                f.default,
                m["minimum"],
                m["maximum"],
                m["choices"],
                m["help"],
                m["paper"],
                m["advanced"],
            )
        )
    return tuple(out)


def profile_options(name: str, profile: str) -> dict[str, Any]:
    """The options that a method's profile sets.

    Raises:
        OptionError: the method has no such profile.
    """
    cls = method_class(name)
    if profile not in cls.profiles:
        allowed = ", ".join(cls.profiles) or "none"
        raise OptionError(
            f"{cls.title} has no profile {profile!r}; it has: {allowed}. Choose one of them.",
            field=f"{name}.profile",
        )
    return dict(cls.profiles[profile].options)


def make_options(name: str, given: Mapping[str, Any]) -> Options:
    """Check and build a method's options.

    Raises:
        OptionError: unknown method, unknown option, wrong type or range.
    """
    cls = method_class(name)
    known = {f.name for f in fields(cls.Options)}
    for key in given:
        if key not in known:
            allowed = ", ".join(sorted(known)) or "none"
            raise OptionError(f"{cls.title} has no option {key!r}; it has: {allowed}.", field=f"{name}.{key}")
    try:
        return cls.Options(**given)
    except OptionError as error:  # it names the options' class, which need not be called as the method is
        option = (error.field or "").rpartition(".")[2]
        raise OptionError(str(error), field=f"{name}.{option}") from None
