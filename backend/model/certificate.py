"""Probes whether a model's keys can be moved to another position, and by which rotation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from backend.cache.kv_cache import KVCache, as_argument
from backend.cache.rope import LayerRotation, Rotation, rotate_layer
from backend.model.device_map import dtype_of, home_of
from backend.model.floor import numerical_floor
from backend.records.model_info import Certificate, LayerCertificate

#: Largest relative error of a moved key that counts as a rotation: TOLERANCE behind layer 0, where rounding
#: adds up, and FIRST at layer 0, where a key is rounded once (measured: 2e-7, 5e-4 and 4e-3).
TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
FIRST = {torch.float32: 1e-3, torch.float16: 2e-3, torch.bfloat16: 8e-3}
#: The same for layer 0's values, which are bit-equal at every position unless embeddings hold positions.
FIRST_VALUES = 1e-3
#: Rounding adds up with depth and width. So the limit is at least this factor times the difference of the
#: same keys computed in two pieces (measured: up to 3 in bf16, over 48 layers and over 1,024 dimensions).
ROUNDINGS = 6.0
FLOOR_TOKENS = 48
# Where keys hold no position: the order of earlier tokens counts as seen beyond this part of the tolerance.
ORDER_MATTERS = 0.1


@torch.inference_mode()
def certify(
    module: Any, shape: tuple[int, int, int, int], *, tokens: int = 24, shift: int = 37
) -> tuple[Certificate, Rotation]:
    """Probe whether keys are a pure rotation of position.

    The same random tokens are prefilled at positions 0.. and ``shift``..; at each layer the first keys,
    rotated by ``shift``, must equal the second, and values must not change. A model may ignore the given
    positions and use places in the sequence instead; so one token is also repeated: at layer 0 its keys,
    rotated back from their places, must all be equal, and so must its values.

    Args:
        module: a causal LM of transformers.
        shape: (layers, 1, kv_heads, head_dim).
        tokens: of the rotation's probe; the numerical floor is measured over :data:`FLOOR_TOKENS`.
    """
    layers, _, kv_heads, head_dim = shape
    device, dtype = home_of(module), dtype_of(module)
    generator = torch.Generator().manual_seed(0)
    vocabulary = int(module.config.get_text_config().vocab_size)
    more_ids = torch.randint(5, vocabulary - 1, (1, FLOOR_TOKENS), generator=generator).to(device)
    ids = more_ids[:, :tokens]

    def run(start: int, pieces: tuple[int, ...], ids: Tensor = ids) -> tuple[Tensor, Tensor, Tensor]:
        rows, length = ids.shape
        cache = KVCache((layers, rows, kv_heads, length, head_dim), dtype, device)
        count, logits = 0, []
        for size in pieces:
            positions = torch.arange(start + count, start + count + size, device=device).expand(rows, -1)
            mask = torch.ones(rows, count + size, dtype=torch.long, device=device)
            out = module(
                input_ids=ids[:, count : count + size],
                position_ids=positions,
                attention_mask=mask,
                **as_argument(module, cache.cache),
                use_cache=True,
            )
            logits.append(out.logits[0].float())
            count += size
        return cache.keys[:, 0], cache.values[:, 0], torch.cat(logits)

    keys, values, logits = run(0, (tokens,))
    moved_keys, moved_values, _ = run(shift, (tokens,))
    other_keys, _, _ = run(0, (tokens // 2, tokens - tokens // 2))
    positions = torch.full((tokens,), shift, device=device)
    rules = _candidate_rules(module, head_dim)
    tolerance = TOLERANCE[dtype]
    same_keys, same_values, _ = run(0, (tokens,), ids[:, :1].expand(-1, tokens))
    back = -torch.arange(tokens, device=device)
    selection, certificates = [], []
    deaf = 0.0  # how much layer 0 depends on a token's place, beyond rotation
    limits = [max(tolerance, ROUNDINGS * _relative(x, y)) for x, y in zip(other_keys, keys, strict=True)]
    limits[0] = FIRST[dtype]
    for layer in range(layers):
        errors = [_relative(rotate_layer(keys[layer], positions, r), moved_keys[layer]) for r in rules]
        best = min(range(len(rules)), key=errors.__getitem__)
        value_error = _relative(values[layer], moved_values[layer])
        if layer == 0:
            alike = rotate_layer(same_keys[0], back, rules[best])
            deaf = _spread(alike)
            value_error = max(value_error, _spread(same_values[0]))
        good = max(errors[best], deaf) <= limits[layer]
        good &= value_error <= (limits[layer] if layer else FIRST_VALUES)
        dims = rules[best].rotated_dims
        kind: Any = "not relocatable"
        if good:
            kind = "no position" if dims == 0 else "rotation" if dims == head_dim else "partial rotation"
        selection.append(rules[best])
        certificates.append(LayerCertificate(kind, dims if good else 0, max(errors[best], deaf), value_error))
    if all(c.kind == "no position" for c in certificates):
        alt_keys, _, alt_logits = run(0, (tokens,), ids[:, [*reversed(range(tokens - 1)), tokens - 1]])
        if layers > 1:  # the last token's key at layer 1 depends on what it attended to at layer 0
            difference = _relative(alt_keys[1, :, -1], keys[1, :, -1])
        else:
            difference = _relative(alt_logits[-1], logits[-1])
        if difference > ORDER_MATTERS * max(limits):
            certificates = [replace(c, kind="distance bias") for c in certificates]
    bad = [i for i, c in enumerate(certificates) if c.kind == "not relocatable"]
    rotation, places = Rotation(tuple(selection)), torch.arange(FLOOR_TOKENS, device=device)
    floor, logit_floor = numerical_floor(
        lambda pieces, rows: run(0, pieces, more_ids.expand(rows, -1)),
        FLOOR_TOKENS,
        lambda keys: rotation.rotate(rotation.rotate(keys, -places), places),
    )
    certificate = Certificate(
        relocatable=not bad,
        reason=_reason(certificates, bad, shift),
        layers=tuple(certificates),
        shift_tokens=shift,
        floor=floor,
        logit_floor=logit_floor,
    )
    return certificate, rotation


def _reason(layers: Sequence[LayerCertificate], bad: Sequence[int], shift: int) -> str:
    """The certificate in words."""
    if bad:
        first = layers[bad[0]]
        return (
            f"Not relocatable: at layer {bad[0]} a shift by up to {shift} positions changes the keys in a "
            f"way no rotation explains (relative error {first.key_error:.2g}) or changes the values "
            f"({first.value_error:.2g}); "
            "the model's position is not a rotation of its keys. Only dense runs are possible."
        )
    kinds = [c.kind for c in layers]
    if "distance bias" in kinds:
        return (
            "Keys hold no position: attention adds a bias by distance when it reads them (ALiBi), from where "
            "they then stand. So copied keys need no turning."
        )
    free = [str(i) for i, kind in enumerate(kinds) if kind == "no position"]
    if len(free) == len(kinds):
        return "Keys hold no position at any layer, so copied keys need no turning."
    worst = max(c.key_error for c in layers)
    reason = (
        f"Keys move by rotation: a shift by {shift} positions is undone to a relative error of {worst:.1g}."
    )
    if free:
        several = "s" if len(free) > 1 else ""
        reason += f" Those of layer{several} {', '.join(free)} hold no position and stay as they are."
    return reason


def _candidate_rules(module: Any, head_dim: int) -> list[LayerRotation]:
    """The rotations that this model might use: none, and each of its frequency tables in both pairings."""
    rules = [LayerRotation(torch.empty(0, device=home_of(module)))]
    distinct: list[Tensor] = []
    tables = [buffer for name, buffer in module.named_buffers() if name.endswith("inv_freq")]
    if dims := getattr(module.config.get_text_config(), "rotary_dim", None):  # GPT-J and CodeGen store sines
        tables.append(10_000.0 ** -(torch.arange(0, dims, 2) / dims))
    for buffer in [sign * table for table in tables for sign in (1, -1)]:  # NanoChat rotates the other way
        if buffer.numel() * 2 > head_dim:
            continue
        table = buffer.detach().float().to(home_of(module), copy=True)
        if any(torch.equal(table, other) for other in distinct if other.shape == table.shape):
            continue
        distinct.append(table)
        rules += [LayerRotation(table), LayerRotation(table, interleaved=True)]
    return rules


def _spread(rows: Tensor) -> float:
    """How much the rows of one repeated token, (heads, tokens, head_dim), differ from the first."""
    return _relative(rows, rows[:, :1].expand_as(rows))


def _relative(actual: Tensor, expected: Tensor) -> float:
    """Relative L2 difference."""
    return float((actual.float() - expected.float()).norm() / expected.float().norm().clamp_min(1e-12))
