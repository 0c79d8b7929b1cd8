"""The catalogue of methods, docs/methods.md, written from the registry.

What travels and what clients keep is not written down anywhere: it is *measured*, with the ledger, on small
federations of different sizes, and the formula is solved from that. So it is what the code does.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch

from fedauc import models
from fedauc.core import tree
from fedauc.core.loop import advance, begin
from fedauc.data.federated import FederatedData
from fedauc.experiments.config import CHOSEN, Config
from fedauc.experiments.presets import PRESETS, Preset

FLOAT = 4
CLIENTS = 4
SYMBOLS = ("d", "l", "I·B", "I·P", "n⁺", "1")
"""What sizes are made of: parameters of the model, of its last layer, examples of a round, passive scores of
a round and class, most positives of a client, and one."""


class Size(NamedTuple):
    """What a client receives, sends and keeps, in floats."""

    down: float
    up: float
    kept: float
    stage_down: float
    """Down and up once more when a stage begins."""
    stage_up: float


def markdown() -> str:
    """The page."""
    rows = [_row(preset) for preset in PRESETS.values()]
    head = (
        "method",
        "rule · objective · correction · server",
        "participation",
        "down",
        "up",
        "kept by a client",
        "when to choose it",
        "paper",
    )
    lines = ["| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows)]
    return TEXT.format(methods="\n".join(lines), pieces=_pieces())


def _row(preset: Preset) -> tuple[str, ...]:
    formulas = {name: formula(values) for name, values in _measured(preset.name).items()}
    down, up = formulas["down"], formulas["up"]
    for way, name in (("down", "stage_down"), ("up", "stage_up")):
        if formulas[name] != "0":
            extra = f"; {formulas[name]} when a stage begins"
            down, up = (down + extra, up) if way == "down" else (down, up + extra)
    parts = [f"`{preset.rule}`", f"`{preset.objective}`"]
    parts += [f"`{name}`" for name in (preset.correction, preset.server) if name not in ("none", "average")]
    return (
        f"**`{preset.name}`** {preset.summary}",
        " · ".join(parts),
        f"`{preset.participation}`",
        down,
        up,
        formulas["kept"] if formulas["kept"] != "0" else "nothing",
        preset.choose,
        preset.paper,
    )


def _measured(name: str) -> dict[str, list[tuple[tuple[int, ...], float]]]:
    """Sizes of a method in different federations: [(values of SYMBOLS, size)] by what is measured."""
    found: dict[str, list[tuple[tuple[int, ...], float]]] = {field: [] for field in Size._fields}
    for hidden, features, steps, batch, passive, positives in (
        (3, 5, 2, 6, 5, 7),
        (5, 4, 3, 8, 7, 9),
        (4, 7, 4, 6, 3, 11),
        (6, 3, 2, 10, 4, 13),
        (2, 6, 5, 4, 11, 8),
        (7, 2, 3, 12, 2, 10),
    ):
        size = _size(name, hidden, features, steps, batch, passive, positives)
        d, last = hidden * features + 2 * hidden + 1, hidden + 1
        values = (d, last, steps * batch, steps * passive, positives, 1)
        for field, value in size._asdict().items():
            found[field].append((values, value))
    return found


def _size(
    name: str, hidden: int, features: int, steps: int, batch: int, passive: int, positives: int
) -> Size:
    """One client's traffic in a round with all pools filled, and what it keeps."""
    wanted: dict[str, Any] = {
        "model": "mlp",
        "model.hidden": (hidden,),
        "participation": "full",
        "uplink": "none",
        "schedule.steps": steps,
        "schedule.cycles": 4,
        "schedule.stage_cycles": 3,
        "train.batch": batch,
        "rule.passive": passive,
        "server.report": CLIENTS,
    }
    known = Config.resolve(name, {key: v for key, v in wanted.items() if "." not in key}).sections
    settings = {k: v for k, v in wanted.items() if "." not in k or k.split(".")[1] in known[k.split(".")[0]]}
    config = Config.resolve(name, settings)
    model, params = models.init(config.component("model"), (features,), 0)
    fed = config.federation(_rows(features, positives), model)
    states = [begin(fed, params)]
    for _ in range(4):
        states.append(advance(fed, states[-1])[0])
    ledgers = [state.ledger for state in states]
    down, up = (
        [getattr(ledger, f"total_{way}") / FLOAT / CLIENTS for ledger in ledgers] for way in ("down", "up")
    )
    kept = tree.nbytes(states[-1].memory.get(0, {})) / FLOAT
    usual = down[3] - down[2], up[3] - up[2]
    return Size(*usual, kept, down[4] - down[3] - usual[0], up[4] - up[3] - usual[1])


def _rows(features: int, positives: int) -> FederatedData:
    """Clients with equally many rows of both classes."""
    generator = np.random.default_rng(0)
    each = 2 * positives
    x = torch.from_numpy(generator.normal(size=(CLIENTS * each, features)).astype(np.float32))
    y = torch.from_numpy(np.tile(np.repeat([0, 1], positives), CLIENTS).astype(np.int8))
    return FederatedData.build(x, y, np.repeat(np.arange(CLIENTS), each), [str(i) for i in range(CLIENTS)])


def formula(measured: list[tuple[tuple[int, ...], float]]) -> str:
    """The size as a sum over SYMBOLS, solved from as many measurements; "0" for nothing."""
    matrix = np.array([values for values, _ in measured], dtype=np.float64)
    solved = np.linalg.solve(matrix, np.array([size for _, size in measured]))
    terms = []
    for symbol, value in zip(SYMBOLS, solved, strict=True):
        factor = Fraction(float(value)).limit_denominator(8)
        if abs(float(factor) - value) > 1e-6:
            raise ValueError(f"{solved} is not a sum of {', '.join(SYMBOLS)}")
        if factor:
            times = "" if factor == 1 else f"{factor}" if factor.denominator == 1 else f"{factor}·"
            terms.append(times + symbol if symbol != "1" else str(factor))
    return " + ".join(terms) if terms else "0"


def _pieces() -> str:
    """The registries, with the first line of what each component says of itself."""
    lines = []
    for section, registry in CHOSEN.items():
        lines.append(f"**{section}**")
        lines += [f"- `{name}`: {_first_line(cls)}" for name, cls in registry.items()]
        lines.append("")
    return "\n".join(lines).rstrip()


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")


TEXT = """# Methods

*Written by `fedauc methods --markdown > docs/methods.md` from the registry; a test fails when it is old.*

Every method is `server(correction(rule(objective)))` × participation × schedule. Its rule, correction and
server step are one short file each in `src/fedauc/methods`, beside the paper's pseudo-code and with what
departs from it. `fedauc methods NAME` lists a method's settings.

What travels is counted in floats, for each client and round, and *measured* with the ledger: d parameters of
the model, l of them in its last layer, I local steps, batches of B examples, P passive scores of a class per
step, n⁺ positives of the client that has most. Small numbers are scalars: a, b and α of minimax AUC (3), the
sums behind CODA's dual (4), the two ratios, the number of a cycle, whether a momentum has started. Agnostic
methods also ask some clients for their loss: those receive the model and send one number (here all do). What
a method that trains first sends (`two-stage-codasca`) comes on top.

{methods}

## Pieces

Any of them can be exchanged: `--set correction=control-variates`, `--set participation=full`. What the
mathematics forbids fails at once, with a sentence that says why.

{pieces}
"""
