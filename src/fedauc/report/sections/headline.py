"""First thing on the page: the number, the verdict, the essentials."""

from __future__ import annotations

from functools import partial

from fedauc.report.figures.scores import ruler
from fedauc.report.load import Study
from fedauc.report.parts import swatch, tiles, unbroken
from fedauc.report.svg import responsive
from fedauc.report.text import as_dict, auc, count, duration, esc, mean, num, plural, short, size, word
from fedauc.report.verdict import gap_closed, verdict


def section(study: Study) -> str:
    best = study.best
    about = "FedAUC report"
    if study.comparable and (data := word(study.data.get("name"))):
        about += f" · {esc(short(data, 80))}"
    heading = f"{swatch(best)}{esc(short(best.label, 80))}"
    if study.others and study.comparable:
        heading += ", the best federated method"
    drawn = responsive(partial(ruler, study), 560) if best.auc is not None and study.comparable else ""
    problems = "".join(f'<p class="warn">{esc(p)}</p>' for p in study.problems)
    return (
        f'<p class="eyebrow">{about}</p><h1>{heading}</h1>'
        f'<div class="hero"><div><p class="big">{auc(best.auc)}</p><p class="under">{_under(study)}</p></div>'
        f"<div>{drawn}</div></div>"
        f'<p class="verdict {best.colour}"><span>{unbroken(verdict(study), study)}</span></p>'
        f"{problems}{_tiles(study)}"
    )


def _under(study: Study) -> str:
    best = study.best
    said = ["test AUC"]
    if best.std is not None:
        said = [f"mean test AUC, ± {best.std:.3f} over {plural(best.seeds, 'seed')}"]
    if best.ci:
        often = "mean 95 % interval" if best.seeds > 1 else "95 % interval"
        said.append(f"{often} {auc(best.ci[0])} to {auc(best.ci[1])}")
    if study.comparable and (closed := gap_closed(study)):
        said.append(closed)
    return "<br>".join(said)


def _tiles(study: Study) -> str:
    best = study.best
    tests = [as_dict(run.result.get("test")) for run in best.runs]
    precision = mean(num(test.get("average_precision")) for test in tests)
    rows, positives = (mean(num(test.get(key)) for test in tests) for key in ("rows", "positives"))
    chance = f"chance: {positives / rows:.3f}" if rows and positives is not None else ""
    kept_round = mean(run.number("best_round") for run in best.runs)
    kept = f"kept the model of {'about ' if len(best.runs) > 1 else ''}round {count(kept_round)}"
    ways = [b for b in (best.bytes_up, best.bytes_down) if b is not None]
    each = " per run" if best.seeds > 1 else ""
    return tiles(
        [
            ("Valid AUC", auc(best.valid), ""),
            ("Average precision", auc(precision), chance),
            ("Test positives", count(positives), f"of {plural(rows, 'row')}" if rows else ""),
            ("Rounds", count(best.rounds), kept if kept_round is not None else ""),
            (
                f"Travelled{each}",
                size(sum(ways) if ways else None),
                f"{size(best.bytes_up)} up, {size(best.bytes_down)} down",
            ),
            (f"Uplink time{each}", duration(best.uplink), ""),
            (f"Time{each}", duration(best.seconds), ""),
        ]
    )
