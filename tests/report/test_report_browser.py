"""The report and an explanation in a real browser: nobody is asked, nothing runs, nothing sticks out."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="needs the group `browser`")
from playwright.sync_api import Browser, sync_playwright

from mein.data.corpus import Corpus, source_of_lists
from mein.explain import as_page, explain
from mein.model.loading import load_model
from mein.report.page import write_report
from tests.support import tiny
from tests.support.tiny import TEXTS

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]
HOSTILE = "<script>document.title = 'taken'</script><img src=x onerror=alert(1)> שלום 😀 "


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The report of a run on hostile documents, and the explanation of one."""
    folder = tmp_path_factory.mktemp("report")
    hostile = {
        name: [HOSTILE + text for text in getattr(TEXTS, f"{name}_texts")] for name in ("labeled", "test")
    }
    corpus = Corpus(
        labeled=source_of_lists(hostile["labeled"], TEXTS.labeled_labels),
        unlabeled=source_of_lists(TEXTS.unlabeled_texts),
        test=source_of_lists(hostile["test"], TEXTS.test_labels),
        names={"labeled": HOSTILE},
    )
    tiny.run(folder / "run", corpus)
    write_report([folder / "run"], folder / "report.html")
    explanation = explain(load_model(folder / "run", "cpu"), HOSTILE + TEXTS.test_texts[0])
    (folder / "explained.html").write_text(as_page(explanation), encoding="utf-8")
    return [folder / "report.html", folder / "explained.html"]


@pytest.mark.parametrize("which", [0, 1], ids=["report", "explanation"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_page_is_quiet_and_fits(
    browser: Browser, pages: list[Path], which: int, width: int, scheme: str
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844})
    page = context.new_page()
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    messages: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda problem: messages.append(str(problem)))
    page.on("dialog", lambda dialog: messages.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    address = pages[which].resolve().as_uri()
    page.goto(address)
    assert page.title() != "taken"
    assert page.locator("h1").count() == 1
    is_wide = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    assert not is_wide, "it scrolls sideways"
    assert messages == []
    assert asked == [address]
    context.close()
