"""The page in a real browser: script, layout and colours."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedauc.experiments.presets import PRESETS
from fedauc.report import write_report

from .fixtures import client_names, compare_folder, federated_run, train_run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no chromium here; scripts/install-browser.sh installs one"),
]
QUIET = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
QUIET += " --disable-component-update --disable-sync --hide-scrollbars"
# Writes what only a browser knows into attributes that --dump-dom shows.
PROBE = """<script>addEventListener('load',function(){
var r=document.documentElement,d=r.dataset,outside=0,seen=0;
document.querySelectorAll('svg text').forEach(function(t){
  var b=t.getBoundingClientRect();if(!b.width)return;seen++;
  if(b.left<-1||b.right>r.clientWidth+1)outside++});
d.width=innerWidth;d.over=r.scrollWidth-r.clientWidth;d.texts=seen;d.outside=outside;
d.views=[].filter.call(document.querySelectorAll('.view'),function(v){return v.offsetHeight})
  .map(function(v){return v.id}).join(' ');
d.bg=getComputedStyle(document.body).backgroundColor;
function grey(){return document.querySelectorAll('#learning .faint').length}
var other=document.querySelector('#learning .rest button');
if(other){d.grey=grey();other.click();d.less=d.grey-grey();d.pressed=other.getAttribute('aria-pressed');
  other.click();d.again=grey()}
var marks=[].map.call(document.querySelectorAll('.swatch'),function(s){return s.getBoundingClientRect()});
d.unseen=marks.filter(function(b){return b.width&&(b.width<6||b.width>18||b.height<6)}).length;
})</script>"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a compare page, one of awkward names and one of all methods."""
    folder = tmp_path_factory.mktemp("pages")
    write_report([compare_folder(folder / "cmp")], folder / "compare.html")
    names = ["<script>document.title='hacked'</script>", "W" * 200, "ward 3 & 4"]
    awkward = train_run(folder / "awkward", "M" * 120, names=names, test_auc=0.99, test_auc_ci=[0.98, 1.0])
    write_report([awkward], folder / "awkward.html")
    crowd = compare_folder(folder / "crowd", list(PRESETS), (0, 1), rounds=40, uplink=0.02)
    write_report([crowd], folder / "crowd.html")
    sites = federated_run(folder / "sites", ["W" * 60, *client_names(29)], 3, 400)
    write_report([sites], folder / "sites.html")
    write_report([federated_run(folder / "pair", ["basel", "geneva"], 2, 3)], folder / "pair.html")
    for page in folder.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        page.with_suffix(".probe.html").write_text(
            text.replace("</body>", f"{PROBE}</body>"), encoding="utf-8"
        )
    return folder


def browse(tmp_path: Path, page: Path, *options: str, hash: str = "") -> str:
    command = [str(BROWSER), *QUIET.split(), f"--user-data-dir={tmp_path / 'profile'}", *options]
    done = subprocess.run([*command, page.as_uri() + hash], capture_output=True, timeout=60, check=True)
    return done.stdout.decode()


def probe(tmp_path: Path, page: Path, *options: str, hash: str = "") -> dict[str, str]:
    source = browse(tmp_path, page.with_suffix(".probe.html"), "--dump-dom", *options, hash=hash)
    opening = re.search(r"<html[^>]*>", source)
    assert opening
    return dict(re.findall(r'data-(\w+)="([^"]*)"', opening[0]))


def test_script_shows_one_view_at_a_time(pages: Path, tmp_path: Path) -> None:
    found = probe(tmp_path, pages / "compare.html", "--window-size=1200,900")
    assert found["ready"] == "1"
    assert found["views"] == "rounds roc-all"
    assert (found["over"], found["outside"]) == ("0", "0")
    assert int(found["texts"]) > 50


def test_hash_picks_a_view(pages: Path, tmp_path: Path) -> None:
    assert probe(tmp_path, pages / "compare.html", hash="#bytes")["views"] == "bytes roc-all"


def test_all_views_show_without_script(pages: Path, tmp_path: Path) -> None:
    page = pages / "plain.html"
    source = (pages / "compare.html").read_text(encoding="utf-8")
    page.with_suffix(".probe.html").write_text(re.sub(r"<script>.*</script>", PROBE, source, flags=re.S))
    found = probe(tmp_path, page)
    assert "ready" not in found
    assert found["views"] == "rounds bytes roc-all roc-left"


def test_a_grey_curve_takes_its_colour_when_chosen(pages: Path, tmp_path: Path) -> None:
    found = probe(tmp_path, pages / "crowd.html", "--window-size=1200,900")
    assert found["ready"] == "1"
    assert (found["over"], found["outside"], found["unseen"]) == ("0", "0", "0")
    assert int(found["grey"]) == 24 * 4  # by round and by bytes, wide and narrow
    assert (found["less"], found["pressed"], found["again"]) == ("4", "true", found["grey"])


@pytest.mark.parametrize("name", ["compare", "awkward", "crowd", "sites"])
def test_phone_has_no_sideways_scrolling(pages: Path, tmp_path: Path, name: str) -> None:
    found = probe(tmp_path, pages / f"{name}.html", "--window-size=390,844")
    assert int(found["width"]) <= 500
    assert (found["ready"], found["over"], found["outside"]) == ("1", "0", "0")


@pytest.mark.parametrize("size", ["1200,1600", "390,844"])
def test_picture_is_not_blank(pages: Path, tmp_path: Path, size: str) -> None:
    shot = tmp_path / "shot.png"
    browse(tmp_path, pages / "compare.html", f"--screenshot={shot}", f"--window-size={size}")
    pixels = np.asarray(Image.open(shot).convert("RGB")).astype(int).reshape(-1, 3)
    inked = (np.abs(pixels - pixels[0]).sum(axis=1) > 60).mean()
    assert 0.01 < inked < 0.6
    assert len(np.unique(pixels, axis=0)) > 100


def test_dark_scheme(pages: Path, tmp_path: Path) -> None:
    light = probe(tmp_path, pages / "compare.html", "--blink-settings=preferredColorScheme=1")
    dark = probe(tmp_path, pages / "compare.html", "--blink-settings=preferredColorScheme=0")
    assert light["bg"] == "rgb(255, 255, 255)"
    assert dark["bg"] == "rgb(18, 21, 26)"


@pytest.mark.parametrize("name", ["sites", "pair"])
@pytest.mark.parametrize("scheme", [0, 1])
def test_participation_of_sites(pages: Path, tmp_path: Path, name: str, scheme: int) -> None:
    """With all folds open, on a phone of 360 pixels: a frame, as a window cannot be that narrow."""
    page = tmp_path / "frame.html"
    source = (pages / f"{name}.probe.html").read_text(encoding="utf-8").replace("<details>", "<details open>")
    copy = (
        "<script>addEventListener('load',function(){var f=document.querySelector('iframe').contentDocument,"
        "s=f.querySelector('#participation'),d=document.documentElement.dataset;"
        "Object.assign(d,f.documentElement.dataset);"
        "function look(q,key){return f.defaultView.getComputedStyle(s.querySelector(q))[key]}"
        "d.took=look('.narrow .took','fill');d.missed=look('.narrow .missed','stroke');"
        "d.hatch=s.querySelectorAll('.narrow .hatch').length})</script>"
    )
    frame = f'<iframe style="width:360px;height:800px;border:0" srcdoc="{html.escape(source)}"></iframe>'
    page.with_suffix(".probe.html").write_text(f"<html><body>{frame}{copy}</body></html>", encoding="utf-8")
    found = probe(tmp_path, page, f"--blink-settings=preferredColorScheme={scheme}")
    assert found["width"] == "360"
    assert (found["ready"], found["over"], found["outside"]) == ("1", "0", "0")
    assert found["bg"] == ("rgb(18, 21, 26)" if scheme == 0 else "rgb(255, 255, 255)")
    colours = (
        ("rgb(185, 198, 214)", "rgb(244, 138, 69)") if scheme == 0 else ("rgb(51, 65, 85)", "rgb(200, 68, 0)")
    )
    assert (found["took"], found["missed"]) == colours
    assert int(found["hatch"]) >= 1
