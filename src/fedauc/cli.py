"""The command line: `fedauc train | compare | tune | reproduce | predict | report | methods | datasets`; real
federations are in `cli_federation`."""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.table import Table

from fedauc.cli_federation import federation, site
from fedauc.cli_options import (
    TOGETHER,
    Client,
    Data,
    Device,
    Drop,
    FreshHead,
    InitFrom,
    Label,
    ModelName,
    Out,
    Positive,
    Quiet,
    Resume,
    Root,
    Seed,
    Set,
    SplitBy,
    Test,
    Valid,
    at_least_one,
    device_of,
    overrides_of,
)
from fedauc.cli_tables import (
    list_cells,
    print_cells,
    print_comparison,
    print_list,
    print_notes,
    print_trials,
    show_cells,
)
from fedauc.consoles import err_console, out_console, say
from fedauc.errors import InputError, Lost, nearest
from fedauc.version import installed

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(federation, name="federation")
app.add_typer(site, name="site")


@app.command()
def train(
    data: Data = None,
    label: Label = None,
    client: Client = None,
    method: Annotated[str, typer.Option(help="A method (`fedauc methods`).")] = "cycp-pairwise",
    model: ModelName = None,
    positive: Positive = None,
    drop: Drop = None,
    valid: Valid = None,
    test: Test = None,
    split_by: SplitBy = None,
    data_root: Root = None,
    seed: Seed = 0,
    device: Device = "cpu",
    out: Out = None,
    settings: Set = None,
    init_from: InitFrom = None,
    fresh_head: FreshHead = False,
    resume: Resume = False,
    quiet: Quiet = False,
) -> None:
    """Train one classifier across the clients of a table."""
    from fedauc.experiments import runner
    from fedauc.experiments.config import Config
    from fedauc.progress import human_bytes, watch_on

    overrides = overrides_of(locals())
    config = Config.resolve(method, overrides | {"seed": seed})
    folder = out or Path("runs") / f"{method}-seed-{seed}"
    result = runner.run(config, folder, resume=resume, watch=watch_on(err_console, quiet))
    low, high = result["test_auc_ci"]
    print_notes(result["data"]["notes"])
    out_console.print(
        f"{method}: test AUC {result['test_auc']:.4f} (95 % {low:.4f} to {high:.4f}), validation AUC"
        f" {result['valid_auc']:.4f} at round {result['best_round']} of {result['rounds']},"
        f" {human_bytes(result['bytes_up'])} up, {human_bytes(result['bytes_down'])} down,"
        f" {result['seconds']:.1f} s",
        highlight=False,
    )
    say(f"report: {folder / 'report.html'}")


@app.command()
def compare(
    data: Data = None,
    label: Label = None,
    client: Client = None,
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas.")
    ] = "cycp-fedavg,cycp-minimax,cycp-pairwise",
    model: ModelName = None,
    positive: Positive = None,
    drop: Drop = None,
    valid: Valid = None,
    test: Test = None,
    split_by: SplitBy = None,
    data_root: Root = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds, from --seed on.")] = 3,
    yardsticks: Annotated[bool, typer.Option(help="Also each client alone, and the pooled rows.")] = True,
    jobs: Annotated[int, typer.Option(help="Runs at the same time, each in its own process.")] = 1,
    device: Device = "cpu",
    out: Out = None,
    settings: Set = None,
    init_from: InitFrom = None,
    fresh_head: FreshHead = False,
    resume: Resume = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods on the same splits and seeds, with each client alone and the pooled data beside."""
    from fedauc.experiments import compare as comparison
    from fedauc.progress import watch_on
    from fedauc.report import write_report
    from fedauc.transports import ranks

    at_least_one(seeds=seeds, jobs=jobs)
    overrides = overrides_of(locals())
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise InputError("--methods names none.")
    folder = out or Path("runs") / "compare"
    content = comparison.compare(
        names,
        overrides,
        range(seed, seed + seeds),
        folder,
        resume=resume,
        yardsticks=yardsticks,
        jobs=jobs,
        watch=watch_on(err_console, quiet),
    )
    if not ranks.here().first:
        return
    page = write_report([folder], folder / "report.html")
    print_notes(content["data"]["notes"])
    print_comparison(content)
    say(f"report: {page}")


@app.command()
def tune(
    data: Data = None,
    label: Label = None,
    client: Client = None,
    method: Annotated[str, typer.Option(help="A method (`fedauc methods`).")] = "cycp-pairwise",
    grid: Annotated[
        list[str] | None,
        typer.Option(
            help="Values to try, key=value,value,… (repeat); otherwise step sizes.", show_default=False
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Draw so many combinations of the grid instead of all.", show_default=False),
    ] = None,
    factor: Annotated[int, typer.Option(help="One of so many trials goes on; 1: all to the end.")] = 3,
    model: ModelName = None,
    positive: Positive = None,
    drop: Drop = None,
    valid: Valid = None,
    test: Test = None,
    split_by: SplitBy = None,
    data_root: Root = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds a trial has, from --seed on.")] = 1,
    jobs: Annotated[int, typer.Option(help="Runs at the same time, each in its own process.")] = 1,
    device: Device = "cpu",
    out: Out = None,
    settings: Set = None,
    init_from: InitFrom = None,
    fresh_head: FreshHead = False,
    resume: Resume = False,
    quiet: Quiet = False,
) -> None:
    """Find the best settings of a method: a grid, successive halving, judged by the validation AUC."""
    from fedauc.experiments import tune as tuning
    from fedauc.experiments.command import setting
    from fedauc.experiments.config import parse_grid
    from fedauc.progress import watch_on

    at_least_one(seeds=seeds, jobs=jobs, trials=trials)
    overrides = overrides_of(locals())
    folder = out or Path("runs") / f"tune-{method}"
    content = tuning.tune(
        method,
        overrides,
        parse_grid(grid or []),
        range(seed, seed + seeds),
        folder,
        most=trials,
        factor=factor,
        jobs=jobs,
        resume=resume,
        watch=watch_on(err_console, quiet),
    )
    best = content["best"]
    print_notes(best["notes"])
    print_trials(content)
    spread = "" if best["test_auc_std"] is None else f" ± {best['test_auc_std']:.4f}"
    whose = "best of the others" if content["missing"] else "best"
    say(f"{whose}: {', '.join(setting(name, value) for name, value in best['settings'].items())}")
    say(f"validation AUC {best['valid_auc']:.4f}, test AUC {best['test_auc']:.4f}{spread}")
    say(f"report: {folder / best['runs'][0] / 'report.html'}")
    say(f"the command that trains it, with seed {seed}:")
    say(f"{best['command']} --out {shlex.quote(str(folder / 'best'))}")
    if content["missing"]:
        raise typer.Exit(1)


@app.command()
def reproduce(
    paper: Annotated[str | None, typer.Argument(help="A paper's number.")] = None,
    table: Annotated[str | None, typer.Argument(help="A table or figure of it.")] = None,
    cells: Annotated[
        list[str] | None,
        typer.Option(help="Cells like these, with *; several with commas or several times; otherwise all."),
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds, from --seed on.")] = 3,
    jobs: Annotated[int, typer.Option(help="Runs at the same time, each in its own process.")] = 1,
    device: Device = "cpu",
    data_root: Root = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs; what is finished is not run again.")] = Path(
        "runs/reproduce"
    ),
    results: Annotated[
        Path, typer.Option(help="Folder of PAPER/results.json, which gets the numbers.")
    ] = Path("papers"),
    add: Annotated[
        bool, typer.Option("--add", help="Do not run again what results.json has with the same settings.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the commands that train the cells, and run nothing.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Run a table of a paper and print ours beside theirs; without a table, list what there is."""
    from fedauc.papers import PAPERS
    from fedauc.papers.reproduce import reproduce as run
    from fedauc.progress import watch_on

    at_least_one(seeds=seeds, jobs=jobs)
    if paper is None and cells:
        raise InputError("--cells are those of a table of a paper, which is not named.")
    if paper is None:
        print_list([(known.name, f"{known.title}: {', '.join(known.tables)}") for known in PAPERS.values()])
        return
    if paper not in PAPERS:
        raise InputError(f"There is no paper {paper!r}.{nearest(paper, PAPERS)}")
    chosen = PAPERS[paper]
    if table is None and cells:
        raise InputError(f"--cells are those of a table: {', '.join(chosen.tables)}.")
    if table is None:
        list_cells(chosen, data_root)
        return
    patterns = [each.strip() for each in ",".join(cells or []).split(",") if each.strip()]
    if cells and not patterns:
        raise InputError("--cells names none; leave it out to run all of them.")
    if show:
        show_cells(chosen, chosen.chosen(table, patterns), range(seed, seed + seeds), device, data_root, out)
        return
    failed: list[Any] = []
    rows = run(
        chosen,
        table,
        patterns,
        range(seed, seed + seeds),
        out,
        results,
        device=device_of(device),
        root=data_root,
        jobs=jobs,
        add=add,
        watch=watch_on(err_console, quiet),
        say=lambda text: err_console.print(text, highlight=False, markup=False),
        failed=failed.append,
    )
    print_cells(rows)
    if failed:
        raise typer.Exit(1)


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    data: Annotated[Path, typer.Option(help="CSV or Parquet file with the same feature columns.")],
    out: Annotated[Path, typer.Option(help="CSV or Parquet file to write.")] = Path("scores.csv"),
) -> None:
    """Score new rows with a trained model: row, raw score, calibrated probability."""
    from fedauc.experiments.predict import Predictor, are_scores

    if out.suffix not in (".csv", ".parquet"):
        raise InputError(f"--out {out} must end in .csv or .parquet.")
    if out.resolve() == data.resolve():
        raise InputError(f"--out {out} is the file to score; the scores need another name.")
    if out.exists() and not are_scores(out):
        raise InputError(
            f"--out {out} holds something else than scores, which would be lost; choose another."
        )
    scores = Predictor.load(run).predict_file(data)
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".csv":
        scores.to_csv(out, index=False)
    else:
        scores.to_parquet(out, index=False)
    say(f"{len(scores)} scores in {out}")


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs or of a comparison.")],
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write; otherwise report.html in the first folder.")
    ] = None,
) -> None:
    """Make the HTML report of finished runs."""
    from fedauc.report import write_report

    page = write_report(runs, out or runs[0] / "report.html")
    say(f"report: {page}")


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="A method, to see its settings.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The page docs/methods.md: what travels, when to choose which.")
    ] = False,
) -> None:
    """List the methods, or one method's settings with their defaults."""
    from fedauc.experiments.config import CHOSEN, FIXED, Config, describe
    from fedauc.experiments.presets import PRESETS, preset

    if markdown:
        from fedauc.experiments import catalogue

        print(catalogue.markdown(), end="")
        return
    if name is None:
        print_list([(p.name, f"{p.summary} ({p.paper})") for p in PRESETS.values()])
        return
    chosen = preset(name)
    config = Config.resolve(name)
    say(f"{chosen.name}: {chosen.summary}\n{chosen.paper}\n")
    table = Table("setting", "value", "meaning", box=None)
    for section in (*CHOSEN, *FIXED):
        values = config.sections[section]
        if section in CHOSEN:
            table.add_row(section, str(values["name"]), f"one of {', '.join(CHOSEN[section])}")
        for key, _, text in describe(section, str(values.get("name", ""))):
            table.add_row(key, str(values[key.split(".")[1]]), text)
    out_console.print(table)


@app.command()
def datasets() -> None:
    """List the data sets that can be named in --data."""
    from fedauc.data.partition import PARTITIONS
    from fedauc.data.sources import SOURCES

    print_list([(source.name, source.summary) for source in SOURCES.values()])
    out_console.print(
        "\nDealt to clients with --set partition=NAME (and clients=, alpha=, …):", highlight=False
    )
    print_list([(partition.name, partition.summary) for partition in PARTITIONS.values()])


def main() -> None:
    """Entry point: what the user got wrong is one sentence and exit code 2."""
    try:
        if TOGETHER:
            _join()
        app()
    except InputError as error:
        _end(2, partial(_complain, str(error)))
    except Lost as error:
        _end(1, partial(_complain, str(error)), patient=True)
    except SystemExit as stop:
        if stop.code == 130:  # Ctrl-C, which typer turns into an exit
            _end(130, _interrupted)
        _end(stop.code, lambda: None)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            _end(2, partial(_complain, f"{error.filename} cannot be used: {error.strerror}."))
        if not TOGETHER:
            raise
        _end(1, traceback.print_exc)


def _join() -> None:
    """Find the other processes of this run; only the first one is heard."""
    from fedauc.transports import ranks

    if not ranks.join().first:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (as long as the process lives)


def _end(code: Any, say: Callable[[], None], *, patient: bool = False) -> NoReturn:
    """Say what went wrong and end; of several processes one says it."""
    if TOGETHER:
        from fedauc.transports import ranks

        ranks.end(code, say, patient=patient)
    say()
    sys.exit(code)


def _complain(sentence: str) -> None:
    err_console.print(f"fedauc: {sentence}", style="bold red", highlight=False, markup=False)


def _interrupted() -> None:
    how = "" if sys.argv[1:2] == ["reproduce"] else " with --resume"
    err_console.print(f"fedauc: interrupted; the same command{how} goes on.", highlight=False)


def _version(wanted: bool) -> None:
    if wanted:
        out_console.print(f"fedauc {installed('fedauc')}", highlight=False)
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Federated learning for rare events: one classifier across organisations, maximising AUC."""
