"""The HTML report: self-contained, safe, and alive in a browser where there is one."""

from __future__ import annotations

import dataclasses
import html as escaping
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.model.operation import Group
from harness.report.html import html
from harness.report.load import load_run
from harness.report.picture import shown

from .evidence import INVERSION, write
from .some import AS_EXPECTED, SKIP, UNEXPECTED

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture
def page(tmp_path: Path) -> str:
    write(tmp_path / "run", INVERSION, "lane", AS_EXPECTED)
    write(tmp_path / "run", INVERSION, "lane", UNEXPECTED)
    write(tmp_path / "run", INVERSION, "lane", SKIP)
    return html(load_run(tmp_path / "run"), ["lane: a <model>"])


def test_it_needs_nothing_else(page: str) -> None:
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", page)
    assert not re.search(r"url\((?!#)", page)
    assert "@import" not in page
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_text_from_a_run_cannot_become_markup(tmp_path: Path) -> None:
    nasty = dataclasses.replace(AS_EXPECTED, reason="</pre><script>alert(1)</script>")
    write(tmp_path, INVERSION.replace("label=expert", "label=</section><script>"), "lane", nasty)
    page = html(load_run(tmp_path), [])
    assert page.count("<script>") == 1
    assert "&lt;/pre&gt;&lt;script&gt;alert(1)" in page


def test_every_cell_has_a_page_with_its_verdict_and_replay(page: str) -> None:
    for result in (AS_EXPECTED, UNEXPECTED, SKIP):
        article = page.split(f'<article id="{result.cell.id}"')[1].split("</article>")[0]
        assert f"harness replay {result.cell.token}" in article
        assert result.verdict in article
        assert escaping.escape(result.reason.replace("\x1b", "")) in article.replace("\x1b", "")
    assert page.count('class="lanes"') == 2  # a skipped cell has no picture
    assert "at train.py:12" in page


def test_the_command_takes_the_format_first(tmp_path: Path) -> None:
    write(tmp_path / "run", INVERSION, "lane", AS_EXPECTED)
    done = CliRunner().invoke(main, ["report", "html", str(tmp_path / "run"), "-o", str(tmp_path / "run.html")])
    assert done.exit_code == 0, done.output
    assert AS_EXPECTED.cell.id in (tmp_path / "run.html").read_text()


def test_a_group_of_very_many_ranks_is_named_in_short() -> None:
    assert shown(Group("world", tuple(range(1024)))) == "world{0,1,2,3,..,1023: 1024 ranks}"


def test_evidence_that_is_wrong_spoils_its_own_page_only(tmp_path: Path) -> None:
    path = write(tmp_path, INVERSION, "lane", AS_EXPECTED)
    write(tmp_path, INVERSION, "lane", UNEXPECTED)
    path.write_text(path.read_text().replace('"ops": [', '"ops": 7, "were": ['))
    page = html(load_run(tmp_path), [])
    assert page.count('class="lanes"') == 1
    assert "its evidence could not be drawn: " in page


def test_a_report_stays_of_a_size_that_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, INVERSION, "lane", AS_EXPECTED)
    write(tmp_path, INVERSION, "lane", UNEXPECTED)
    module = sys.modules["harness.report.html"]
    monkeypatch.setattr(module, "MOST_MARKS", 4)
    page = html(load_run(tmp_path), [])
    assert page.count("only the last 4 of 6 operations are drawn") == 2
    size = max(len(p.picture) + sum(len(s.text) for s in p.stacks) for p in module._pages(load_run(tmp_path).records))
    monkeypatch.setattr(module, "MOST_BYTES", size)
    page = html(load_run(tmp_path), [])
    assert page.count('class="lanes"') == 1, "room for one"
    assert page.count("no picture and no stacks") == 1
    article = page.split(f'<article id="{UNEXPECTED.cell.id}"')[1].split("</article>")[0]
    assert 'class="lanes"' in article, "and it is the one that matters"
    monkeypatch.setattr(module, "MOST_TEXT", 10)
    assert "...\nrain.py:12" in html(load_run(tmp_path), [])


# Steps that a person would take; what they lead to is written into the page, where the test finds it.
STEPS = """
<script>
const seen = {};
const cells = () => [...document.querySelectorAll(".cell")].filter((c) => c.offsetParent).length;
function set(form, name, value) {
  const field = form.elements[name];
  if (field.type === "checkbox") field.checked = value; else field.value = value;
  form.dispatchEvent(new Event("input", { bubbles: true }));
}
const overview = document.getElementById("filters");
seen.all = cells();
set(overview, "standing", "unexpected"); seen.unexpected = cells();
set(overview, "standing", ""); set(overview, "text", "with_fix lane"); seen.text = cells();
set(overview, "text", "nothing has this"); seen.none = cells();
set(overview, "text", ""); set(overview, "backend", "lane"); seen.backend = cells();
location.hash = document.querySelector(".cell.expected").getAttribute("href");
setTimeout(() => {
  const open = [...document.querySelectorAll("article")].filter((a) => !a.hidden);
  seen.open = open.map((a) => a.id);
  const lanes = open[0].querySelector(".lanes"), form = lanes.querySelector("form");
  const count = (what) => lanes.querySelectorAll(what).length;
  seen.marks = count(".mark"); seen.never = count(".never");
  seen.arrows = count(".arrow"); seen.parted = count(".parted");
  seen.dangling = [...lanes.querySelectorAll(".arrow")].filter((a) => a.getAttribute("d").includes("NaN")).length;
  set(form, "scale", "time"); seen.time = count(".mark");
  set(form, "stuck", true); seen.stuck = count(".mark");
  set(form, "stuck", false); set(form, "ranks", "1"); seen.oneRank = count(".mark");
  seen.lanes = lanes.querySelectorAll(".names text").length; set(form, "ranks", "0-1, 7"); seen.ranks = count(".mark");
  set(form, "ranks", ""); set(form, "text", "dense"); seen.dense = count(".mark");
  set(form, "text", ""); form.querySelector("[name=group]").click(); seen.oneGroup = count(".mark");
  location.hash = "";
  setTimeout(() => {
    seen.back = document.querySelectorAll("article:not([hidden])").length;
    document.body.insertAdjacentHTML("beforeend", `<output id="seen">${JSON.stringify(seen)}</output>`);
  }, 50);
}, 50);
</script>
"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: the page's script is not exercised")
def test_links_filters_and_pictures_work_in_a_browser(page: str, tmp_path: Path) -> None:
    seen = browse(page.replace("</body>", STEPS + "</body>"), tmp_path)
    assert seen == {
        "all": 3,
        "unexpected": 1,
        "text": 1,
        "none": 0,
        "backend": 2,
        "open": [AS_EXPECTED.cell.id],
        "marks": 6,
        "never": 4,
        "arrows": 4,
        "parted": 2,
        "dangling": 0,
        "time": 6,
        "stuck": 4,
        "oneRank": 3,
        "lanes": 1,
        "ranks": 6,
        "dense": 2,
        "oneGroup": 2,
        "back": 0,
    }


def browse(page: str, tmp_path: Path) -> dict[str, Any]:
    """Load the page in headless Chromium, and return what its steps saw."""
    path = tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    assert CHROMIUM is not None
    switches = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    command = [
        CHROMIUM,
        *switches,
        f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=5000",
        "--dump-dom",
    ]
    done = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<output id="seen">(\{.*?\})</output>', done.stdout)
    assert found is not None, done.stderr[-2000:]
    return json.loads(escaping.unescape(found[1]))
