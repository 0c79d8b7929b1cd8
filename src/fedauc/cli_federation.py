"""The commands of real federations: `fedauc federation …` for the coordinator, `fedauc site …` for a site."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from fedauc.consoles import err_console, out_console, say
from fedauc.errors import InputError

if TYPE_CHECKING:
    from fedauc.federation.folder import Folder
    from fedauc.federation.plan import Plan

federation = typer.Typer(no_args_is_help=True, help="Run a federation of organisations (the coordinator).")
site = typer.Typer(no_args_is_help=True, help="Take part in a federation (a hospital, a bank).")

Where = Annotated[Path, typer.Argument(help="The federation's folder (this one).", show_default=False)]
Kit = Annotated[Path, typer.Argument(help="The kit that the coordinator has sent: NAME.zip, or its folder.")]
SiteData = Annotated[
    list[Path], typer.Option("--data", help="This site's table, CSV or Parquet. It stays here.")
]
Limits = Annotated[
    Path | None, typer.Option(help="This site's own limits, a TOML file (docs/federation.md).")
]


def _say(text: str) -> None:
    stamp = datetime.now().strftime("%H:%M:%S")
    err_console.print(f"{stamp} {text}", highlight=False, markup=False)


def _folder(path: Path) -> Folder:
    _installed()
    from fedauc.federation.folder import Folder

    return Folder(path)


def _installed() -> None:
    try:
        import nvflare  # noqa: F401
        import psutil  # noqa: F401
    except ImportError:
        raise InputError("Federations need NVIDIA FLARE: pip install 'fedauc[nvflare]'.") from None


@federation.command()
def init(
    folder: Where,
    sites: Annotated[list[str], typer.Option("--site", help="A site's name (repeat).")],
    label: Annotated[str, typer.Option(help="Column that says which rows are positive.")],
    positive: Annotated[str, typer.Option(help="The label's positive value.")],
    host: Annotated[str, typer.Option(help="Name under which sites reach this machine.")] = "localhost",
    port: Annotated[int, typer.Option(help="Port that sites connect to.")] = 8002,
    admin_port: Annotated[int, typer.Option(help="Port of the coordinator's own commands.")] = 8003,
    method: Annotated[str, typer.Option(help="A method (`fedauc methods`).")] = "cycp-pairwise",
    model: Annotated[str, typer.Option(help="linear, mlp, …")] = "linear",
    drop: Annotated[list[str] | None, typer.Option(help="Column not to use (repeat).")] = None,
    like: Annotated[
        Path | None, typer.Option(help="A table with the columns that every site must have.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of splits, start values and draws.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, key=value (repeat).")
    ] = None,
) -> None:
    """Begin a federation: federation.toml, and a kit with a certificate for every site."""
    _installed()
    import yaml

    from fedauc.data.table import read_table
    from fedauc.experiments.config import parse_settings
    from fedauc.federation import plan
    from fedauc.federation.folder import Folder
    from fedauc.federation.joining import examine

    address = plan.Address(folder.resolve().name, host, port, admin_port)
    given = {name: yaml.safe_load(text) for name, text in parse_settings(settings or []).items()}
    experiment = plan.Experiment(label, positive, method, model, tuple(drop or ()), seed, given)
    first = plan.Plan(address, experiment, {name: plan.Organisation() for name in sites})
    columns = {}
    if like is not None:
        read_table(like, label=label, positive=positive, drop=drop or ())  # (it must have both classes)
        columns = {n: kind for n, kind, _ in examine(first, like).columns}
    Folder.new(folder, address, experiment, sites, columns)
    say(
        f"{folder / plan.FILE}: look it over, and say which sites train together and when.\n"
        f"Then `fedauc federation kit {sorted(sites)[0]} {folder}` (and so on) packs what each site gets,\n"
        f"and `fedauc federation start {folder}` runs the server and the training."
    )


@federation.command()
def kit(
    name: Annotated[str, typer.Argument(help="The site.")],
    folder: Where = Path(),
    out: Annotated[Path | None, typer.Option(help="File to write; otherwise NAME.zip.")] = None,
) -> None:
    """Pack a site's kit into one file. It holds the site's private key: send it to that site alone."""
    path = _folder(folder).pack(name, out or Path(f"{name}.zip"))
    say(f"{path} holds {name}'s private key: send it to {name} alone, by a way that nobody else can read.")


@federation.command()
def start(folder: Where = Path()) -> None:
    """Run the server, and the training to its end. Interrupt it as you like: `resume` goes on."""
    here = _folder(folder)
    here.check_idle()
    if here.run.exists():
        raise InputError(f"{here.run} holds a run: `fedauc federation resume {folder}` goes on with it.")
    active = {name: site for name, site in here.plan.sites.items() if name not in here.revoked}
    _supervised(here, replace(here.plan, sites=active))


@federation.command()
def resume(folder: Where = Path()) -> None:
    """Go on with a run that was stopped, or whose coordinator has died."""
    from fedauc.experiments.records import read_json

    here = _folder(folder)
    if not here.run.exists():
        raise InputError(f"{here.run} holds no run: `fedauc federation start {folder}` begins one.")
    here.check_idle()
    if (here.run / "result.json").exists():
        _result(here, read_json(here.run / "result.json"))
        return
    _supervised(here, here.begun())


def _supervised(here: Folder, plan: Plan) -> None:
    from fedauc.federation.supervisor import Supervisor

    here.begin(plan)
    _ending(here)
    result = Supervisor(here, plan, _say).run()
    if result is None:
        _say(f"stopped; `fedauc federation resume {here.path}` goes on")
        return
    _result(here, result)


def _result(here: Folder, result: Mapping[str, Any]) -> None:
    low, high = result["test_auc_ci"]
    say(
        f"test AUC {result['test_auc']:.4f} (95 % {low:.4f} to {high:.4f}), validation AUC"
        f" {result['valid_auc']:.4f} at round {result['best_round']} of {result['rounds']}"
    )
    say(f"report: {here.run / 'report.html'}")


def _ending(here: Folder) -> None:
    """Say whose certificates end soon."""
    for name, end in here.ending(datetime.now(UTC)).items():
        own = name == here.plan.federation.host
        what = f"fedauc federation renew{'' if own else f' --site {name}'} {here.path}"
        err_console.print(
            f"note: the certificate of {name} ends on {end:%d %B %Y}: `{what}`", highlight=False, markup=False
        )


@federation.command()
def stop(folder: Where = Path()) -> None:
    """Stop the server and the training; nothing that was committed is lost."""
    _folder(folder).stop()
    say(f"stopped; `fedauc federation resume {folder}` goes on.")


@federation.command()
def status(
    folder: Where = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Who is online, the active group, round, AUC, bytes and faults."""
    from fedauc.federation.state import now

    here = _folder(folder)
    found = now(here)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    lines = [f"{found['name']}: {found['state']}" + (f" ({found['reason']})" if found["reason"] else "")]
    lines.append(f"round {found['round']} of {found['rounds']}, group {', '.join(found['group']) or '–'}")
    auc = "–"
    if found["valid_auc"] is not None:
        auc = f"{found['valid_auc']:.4f} at round {found['validated']}, {found['highest_auc']:.4f} at most"
    if found["waiting"]:
        lines.append(f"waiting for {found['waiting']}")
    lines.append(f"validation AUC {auc}; {found['up']} up, {found['down']} down")
    lines.append(f"restarts {found['restarts']}, faults {found['faults']}")
    for line in lines:
        say(line)
    table = Table("site", "online", "took part", "missed", "last missed because", box=None)
    for row in found["sites"]:
        online = "revoked" if row["revoked"] else "yes" if row["online"] else "no"
        table.add_row(row["site"], online, str(row["took_part"]), str(row["missed"]), row["why"] or "")
    out_console.print(table)
    _ending(here)


@federation.command()
def add(name: Annotated[str, typer.Argument(help="The new site.")], folder: Where = Path()) -> None:
    """Add an organisation. It takes part in the next run; one that has begun goes on without it."""
    from fedauc.federation.plan import FILE

    _folder(folder).add(name)
    path = folder / FILE
    say(
        f"{path}: change {name}'s lines if it trains in another group, or at times; then `fedauc federation"
        f" kit {name} {folder}`. It takes part in the next run."
    )


@federation.command()
def revoke(name: Annotated[str, typer.Argument(help="The site.")], folder: Where = Path()) -> None:
    """Refuse an organisation for good; a run that has begun goes on without it."""
    _folder(folder).revoke(name)
    say(f"{name} is refused from now on.")


@federation.command()
def renew(
    folder: Where = Path(),
    sites: Annotated[
        list[str] | None, typer.Option("--site", help="Renew a site's instead (repeat).", show_default=False)
    ] = None,
) -> None:
    """Renew the coordinator's certificates, or those of sites, which then get a new kit."""
    from fedauc.federation import kits

    here = _folder(folder)
    here.renew(sites or [])
    ends = kits.ends(here.kits.site(sites[0]) if sites else here.kits.server)
    say(f"The new certificates are valid until {ends:%d %B %Y}.")
    for name in sites or []:
        say(f"`fedauc federation kit {name} {folder}` packs what {name} gets.")


@federation.command()
def job(
    out: Annotated[Path, typer.Option(help="Folder to write the job to.")],
    runs: Annotated[Path, typer.Option(help="Where the FLARE server is to write the run (its own path).")],
    client: Annotated[str, typer.Option(help="A client of that deployment that is always there.")],
    folder: Where = Path(),
) -> None:
    """Write the training as a job for a FLARE deployment that is there already."""
    from fedauc.federation.flare import write_job

    here = _folder(folder)
    path = write_job(out, "fedauc", here.plan, runs, attendant=client)
    say(f"{path}: submit it with your own tools.")


@site.command()
def check(kit: Kit, data: SiteData, limits: Limits = None) -> None:
    """Hold the table against the federation's plan. Nothing is sent."""
    if not _checked(kit, data, limits):
        raise typer.Exit(2)


def _checked(kit: Path, tables: list[Path], limits: Path | None) -> bool:
    from fedauc.federation import kits
    from fedauc.federation.joining import examine
    from fedauc.federation.messages import Refused
    from fedauc.federation.policy import Policy

    if len(tables) > 1:
        raise InputError("--data names two tables: a site takes part with one.")
    (data,) = tables
    folder = kits.unpacked(kit)
    name, plan = kits.about(folder)
    found = examine(plan, data)
    share = 100 * found.positives / found.rows
    say(
        f"{name} in the federation {plan.federation.name!r}: {found.rows} rows, {found.positives} positive"
        f" ({share:.2f} %), {len(found.columns)} columns"
    )
    table = Table("column", "holds", "missing", box=None)
    for column, kind, missing in found.columns:
        table.add_row(column, f"{kind}s", f"{100 * missing:.1f} %")
    out_console.print(table)
    say(f"{plan.experiment.label}: " + ", ".join(f"{v} in {n} rows" for v, n in found.labels.items()))
    notes = list(found.notes)
    try:
        (Policy() if limits is None else Policy.read(limits)).check_method(plan.experiment.method)
    except Refused as reason:
        found.problems.append(f"{str(reason).capitalize()}, which this federation trains with.")
    if (end := kits.ends(folder)) - datetime.now(UTC) < kits.SOON:
        notes.append(f"This kit's certificate ends on {end:%d %B %Y}: ask the coordinator for a new one.")
    for note in notes:
        err_console.print(f"note: {note}", highlight=False, markup=False)
    for problem in found.problems:
        err_console.print(f"fedauc: {problem}", style="bold red", highlight=False, markup=False)
    if not found.problems:
        wanted = "as the federation wants it" if plan.columns else "the federation asks for no columns"
        without = "" if found.positives else ", without a positive row"
        say(f"The table can take part ({wanted}{without}).")
    return not found.problems


@site.command()
def join(
    kit: Kit,
    data: SiteData,
    limits: Limits = None,
) -> None:
    """Join the federation and stay; training begins when the coordinator asks. Ctrl-C leaves."""
    _installed()
    from fedauc.federation import joining, kits

    if not _checked(kit, data, limits):
        raise typer.Exit(2)
    folder = kits.unpacked(kit)
    _say(f"joining as {folder.name}; the log is {folder / 'site.log'}; Ctrl-C leaves")
    joining.join(folder, data[0], limits, _say)
    _say("left")
