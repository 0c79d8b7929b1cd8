"""The page as text: what it says, what it survives, what it refuses."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedauc.errors import InputError
from fedauc.report import write_report

from .fixtures import client_names, compare_folder, train_run

VOID = {"meta", "link", "br"}


class Checker(HTMLParser):
    """Collects the text and objects to tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.ids: list[str] = []
        self.figures = self.labelled = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.ids += [known["id"]] if known.get("id") else []
        if tag == "svg" and not known.get("aria-hidden"):
            self.figures += 1
            self.labelled += bool(known.get("aria-label")) and known.get("role") == "img"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words.append(data)


def read(page: Path) -> tuple[str, str]:
    """The page's source and its words, after checking what holds for every page."""
    source = page.read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(source)
    checker.close()
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert checker.figures == checker.labelled
    assert len(source) < 1_000_000
    assert not re.search(r"https?://|\bsrc=|@import|url\(", source), "the page must load nothing"
    assert not re.search(r">\s*(nan|None|inf)\s*<", source)
    return source, " ".join(" ".join(checker.words).split())


def edit(folder: Path, **changes: object) -> None:
    path = folder / "result.json"
    found = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in found.items() if v is not ...}))


def test_one_run(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", test_auc=0.91, test_auc_ci=[0.88, 0.93])
    source, words = read(write_report([run], tmp_path / "report.html"))
    assert "0.910" in words
    assert "95 % interval 0.880 to 0.930" in words
    assert "91 times out of 100 (95 % interval 88 to 93): clearly better than chance." in words
    assert "No training rows left the clients, by this ledger." in words
    assert "Methods compared" not in words
    for heading in (
        "Learning curve",
        "ROC curve",
        "Client by client",
        "What travelled",
        "Who took part when",
    ):
        assert f"<h2>{heading}</h2>" in source
    assert "Rows without a label (212) were left out." in words
    assert "torch 2.11.0" in words
    assert words.count("How to read this.") == 5


def test_same_run_same_bytes(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run")
    first = write_report([run], tmp_path / "a.html").read_bytes()
    assert write_report([run], tmp_path / "b.html").read_bytes() == first


def test_directory_as_target(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run")
    assert write_report([run], run) == run / "report.html"
    assert write_report([run], tmp_path / "new" / "page.html").exists()
    with pytest.raises(InputError, match="cannot be written"):
        write_report([run], run / "result.json" / "page.html")


def test_compare(tmp_path: Path) -> None:
    source, words = read(write_report([compare_folder(tmp_path / "cmp")], tmp_path / "report.html"))
    table = source[source.index('aria-label="Methods compared"') :].split("</table>")[0]
    order = re.findall(r"</i>([\w-]+)</span>", table)
    assert order == ["central", "cycp-pairwise", "cycp-minimax", "cycp-fedavg", "fedavg", "clients-alone"]
    assert "cycp-pairwise, the best federated method" in words
    assert "% of the way from clients alone to pooled data" in words
    assert "3 of 3" in words
    assert "Pair by pair" in words


def test_one_colour_per_method(tmp_path: Path) -> None:
    source, _ = read(write_report([compare_folder(tmp_path / "cmp")], tmp_path / "report.html"))
    colours: dict[str, set[str]] = {}
    for colour, name in re.findall(r'swatch (\S+ \S+)" aria-hidden="true"></i>([\w-]+)', source):
        colours.setdefault(name, set()).add(colour)
    assert len(colours) == 6
    assert all(len(found) == 1 for found in colours.values())
    assert len(set.union(*colours.values())) == 6


def test_runs_of_several_methods_and_seeds(tmp_path: Path) -> None:
    runs = [train_run(tmp_path / f"{m}-{s}", m, s) for m in ("cycp-pairwise", "fedavg") for s in (0, 1)]
    _, words = read(write_report(runs, tmp_path / "report.html"))
    assert "over 2 seeds" in words
    assert "the best federated method" in words


def test_same_method_and_seed_twice(tmp_path: Path) -> None:
    runs = [train_run(tmp_path / name / "run") for name in ("small-eta", "large-eta")]
    _, words = read(write_report([*runs, runs[0]], tmp_path / "report.html"))
    assert "cycp-pairwise · small-eta/run" in words
    assert "cycp-pairwise · large-eta/run" in words


def test_different_data_are_not_compared(tmp_path: Path) -> None:
    runs = [train_run(tmp_path / "a"), train_run(tmp_path / "b", "fedavg", names=client_names(5))]
    _, words = read(write_report(runs, tmp_path / "report.html"))
    assert "on different data" in words
    assert "clearly" not in words


def test_a_seed_may_draw_other_rows(tmp_path: Path) -> None:
    runs = [train_run(tmp_path / f"{m}-{s}", m, s) for m in ("cycp-pairwise", "fedavg") for s in (0, 1)]
    for run in runs[1::2]:
        edit(run, data={"name": "Sepsis within 24 hours", "rows": 99, "positives": 9})
    assert "on different data" not in read(write_report(runs, tmp_path / "report.html"))[1]


def test_many_clients_few_with_an_auc(tmp_path: Path) -> None:
    rows = [{"client": f"c{n}", "rows": 9, "auc": 0.8 if n < 5 else None, "why": None} for n in range(60)]
    run = train_run(tmp_path / "run", per_client=rows)
    source, words = read(write_report([run], tmp_path / "report.html"))
    assert "Clients without an AUC are left out." in words
    assert "Test AUC of 5 clients" in source


def test_names_are_escaped(tmp_path: Path) -> None:
    names = ["<script>alert(1)</script>", "a\"b&c'd", "ü" * 300, "</style><b>"]
    method = "<img onerror=x>"
    notes = {"name": "<data>", "notes": ["<i>x</i>"], "rows": 10, "positives": 1}
    run = train_run(tmp_path / "run", method, names=names, data=notes, config={"k": "</pre><script>"})
    source, words = read(write_report([run], tmp_path / "report.html"))
    assert source.count("<script>") == 1
    assert "<img" not in source
    assert "<script>alert(1)</script>" in words
    assert method in words


def test_surrogates_and_control_characters(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", names=["a\ud800b", "c\x00d"])
    assert "\x00" not in read(write_report([run], tmp_path / "report.html"))[0]


def test_many_clients_are_folded(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", names=client_names(500), groups=50, turn=1)
    source, words = read(write_report([run], tmp_path / "report.html"))
    assert "470 more clients" in words
    visible = source[source.index('aria-label="Results by client"') :].split("</table>")[0]
    assert visible.count("<tr>") == 31
    assert "the first 24 are drawn" in words
    assert "Shown are the first 60 rounds" in words


def test_one_client(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", names=["only"], groups=1)
    assert "1 client, AUC" in read(write_report([run], tmp_path / "report.html"))[1]


def test_undefined_clients_say_why(tmp_path: Path) -> None:
    row = {"client": "a", "rows": 5, "positives": 0, "auc": None, "why": "no positives in the test rows"}
    run = train_run(tmp_path / "run", per_client=[row, row | {"client": "b", "auc": 0.8, "why": None}])
    _, words = read(write_report([run], tmp_path / "report.html"))
    assert "2 clients, AUC 0.800 with cycp-pairwise ; undefined for 1." in words
    assert "a undefined: no positives in the test rows" in words
    edit(run, per_client=[row])
    _, words = read(write_report([run], tmp_path / "report.html"))
    assert "1 client; undefined for all (no positives in the test rows)." in words


def test_no_evaluated_round(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", every=10**9)
    assert "No round was evaluated" in read(write_report([run], tmp_path / "report.html"))[1]


def test_each_optional_key_may_be_missing_or_odd(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", rounds=40)
    kept = (run / "result.json").read_text()
    for key in json.loads(kept):
        for value in (..., None, float("nan"), "text", [], {}, [None, 1]):
            if key == "schema" and value is not ...:
                continue
            edit(run, **{key: value})
            read(write_report([run], tmp_path / "report.html"))
            (run / "result.json").write_text(kept)


def test_almost_nothing_is_enough(tmp_path: Path) -> None:
    run = tmp_path / "old"
    run.mkdir()
    (run / "result.json").write_text("{}")
    assert "nothing to conclude" in read(write_report([run], tmp_path / "report.html"))[1]


def test_extreme_aucs(tmp_path: Path) -> None:
    for value in (0.0, 0.5, 1.0):
        run = train_run(tmp_path / f"run-{value}", rounds=20, test_auc=value, test_auc_ci=[value, value])
        read(write_report([run], tmp_path / "report.html"))


def test_cut_last_line_of_metrics_is_left_out(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", rounds=40)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"round": 41, "valid')
    assert "over 40 rounds" in read(write_report([run], tmp_path / "report.html"))[1]


@pytest.mark.parametrize("first", [0, 1])
def test_groups_counted_from_0_or_1(tmp_path: Path, first: int) -> None:
    run = train_run(tmp_path / "run", rounds=40)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["group"] += first
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    source, words = read(write_report([run], tmp_path / "report.html"))
    assert "4 groups over 40 rounds" in words
    assert source.count(">10 of 40<") == 4


def test_random_and_full_participation_have_no_strip(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", "rs-minimax", rounds=40)
    edit(run, groups=[client_names(12)])
    source, words = read(write_report([run], tmp_path / "report.html"))
    assert "40 rounds in 10 cycles, 3 clients of 12 in each, drawn at random." in words
    assert "Which of" not in source
    assert "Clients of each group" not in words
    run = train_run(tmp_path / "full", "coda+", groups=1, rounds=40, participation={"name": "full"})
    source, words = read(write_report([run], tmp_path / "report.html"))
    assert "40 rounds, all 12 clients in each." in words
    assert "Which of" not in source


def test_ledger_speaks_plainly(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run")
    source, words = read(write_report([run], tmp_path / "report.html"))
    assert "scores of positives numbers the model gave to positive rows, not the rows" in words
    assert "<th scope=row>z<" not in source
    assert "No training rows left the clients, by this ledger." in words


def test_rows_in_the_ledger_are_not_hidden(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", ledger={"up": {"model": 5, "feature_rows": 7}, "down": {"model": 5}})
    _, words = read(write_report([run], tmp_path / "report.html"))
    assert "may be rows of data: feature_rows" in words
    assert "rows left the clients" not in words


def test_compare_without_its_run_folders(tmp_path: Path) -> None:
    folder = compare_folder(tmp_path / "cmp", methods=("cycp-fedavg", "fedavg"), seeds=(0, 1))
    (folder / "fedavg" / "seed-1" / "result.json").unlink()
    assert (
        "fedavg/seed-1: its run folder is not there" in read(write_report([folder], tmp_path / "a.html"))[1]
    )
    found = json.loads((folder / "compare.json").read_text())
    (folder / "compare.json").write_text(json.dumps({"rows": found["rows"]}))
    assert "Learning curve" not in read(write_report([folder], tmp_path / "b.html"))[1]


def test_compare_with_odd_rows(tmp_path: Path) -> None:
    rows = [
        {"method": "a", "test_auc_by_seed": [0.8, None, float("nan")], "seeds": [0, 1, 2]},
        {"method": "b", "test_auc": None, "kind": "federated"},
        {"method": "central", "test_auc": 0.9},
        {},
    ]
    folder = tmp_path / "cmp"
    folder.mkdir()
    (folder / "compare.json").write_text(json.dumps({"rows": rows, "pairwise": [{}, None]}))
    assert "not enough seeds to tell it from" in read(write_report([folder], tmp_path / "report.html"))[1]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("result.json", None, r"result\.json is missing"),
        ("result.json", "{", r"result\.json is not valid JSON"),
        ("result.json", "[]", r"result\.json holds no JSON object"),
        ("result.json", "[" * 100_000, r"result\.json is not valid JSON"),
        ("result.json", b"\xff\xfe", r"result\.json cannot be read"),
        ("result.json", '{"schema": 2}', r"result\.json has schema 2"),
        (
            "metrics.jsonl",
            '{"round": 1}\n{oops\n{"round": 3}\n',
            r"metrics\.jsonl is not valid JSON in line 2",
        ),
        ("compare.json", "{}", r"compare\.json compares no methods"),
        ("compare.json", "x", r"compare\.json is not valid JSON"),
    ],
)
def test_unusable_files_are_named(tmp_path: Path, name: str, content: str | bytes | None, says: str) -> None:
    run = train_run(tmp_path / "run", rounds=10)
    if content is None:
        (run / name).unlink()
    else:
        (run / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=says) as caught:
        write_report([run], tmp_path / "report.html")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "report.html").exists()


def test_unusable_folders_are_named(tmp_path: Path) -> None:
    run, compare = train_run(tmp_path / "run", rounds=10), compare_folder(tmp_path / "cmp", ("fedavg",), (0,))
    for paths, says in [
        ([], "No run folder"),
        ([tmp_path / "nowhere"], "nowhere is not a run folder"),
        ([run / "result.json"], "is not a run folder"),
        ([compare, run], "cmp is a compare folder"),
    ]:
        with pytest.raises(InputError, match=says):
            write_report(paths, tmp_path / "report.html")
