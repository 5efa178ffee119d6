"""The page in a real browser: what is typed and dropped is shown, and nothing else happens."""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="serving needs the extra `serve`")
pytest.importorskip("playwright", reason="needs the group `browser`")
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support import serving, tiny
from tests.support.serving import Server
from tests.support.tiny import TEXTS

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]
ODD = {
    "markup": "<script>alert(1)</script><img src=x onerror=alert(2)> good",
    "right to left": "שלום עולם, this is טוב مرحبا",
    "emoji": "😀👩‍👩‍👧 good \U0001f1eb\U0001f1f7",
    "long": "good battery, bad screen. " * 3_847,  # 100,022 characters, cut below
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("page")
    tiny.run(folder / "run")
    server = serving.start(folder / "run", folder / "log")
    yield server
    server.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=[(1280, "light"), (390, "dark")], ids=str)
def page(request: pytest.FixtureRequest, browser: Browser, server: Server) -> Iterator[Page]:
    """The page, open; at the end nothing was complained about or asked of anybody else."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    messages: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda problem: messages.append(str(problem)))
    page.on("dialog", lambda dialog: messages.append(f"a dialog: {dialog.message}"))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(server.url)
    yield page
    is_wide = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    assert messages == []
    assert [url for url in asked if not url.startswith((server.url, f"blob:{server.url}"))] == []
    assert not is_wide, "it scrolls sideways"
    context.close()


def classify(page: Page, text: str) -> Any:
    """Type a text and ask; the server's answer."""
    page.fill("#text", text)
    with page.expect_response("**/explain") as answer:
        page.click("#go")
    expect(page.locator("#go")).to_be_enabled(timeout=30_000)  # 100,000 characters take seconds to draw
    return answer.value.json()


def shown(page: Page) -> str:
    """The text with its marks, as it stands in the document."""
    text: str = page.evaluate("document.getElementById('marked').textContent")
    return text


def test_a_text_is_labeled_and_marked(page: Page) -> None:
    text = TEXTS.test_texts[0]
    answer = classify(page, text)
    expect(page.locator("#label")).to_have_text(str(answer["label"]))
    expect(page.locator("#certainty")).to_contain_text(f"{100 * answer['probability']:.1f}")
    names = page.locator("#probabilities .name").all_text_contents()
    assert names == sorted(answer["probabilities"], key=lambda name: -answer["probabilities"][name])
    assert shown(page) == text
    assert page.locator("#marked mark").count() > 0


def test_windows_and_labels_can_be_switched(page: Page) -> None:
    answer = classify(page, TEXTS.test_texts[1])
    words = answer["segments"][1::2]
    for window, shares in answer["shares"].items():
        page.click(f"#windows label:has(input[value='{window}'])")
        strongest = max(range(len(words)), key=lambda place: abs(shares[place]))
        deepest = page.locator("#marked mark.f5, #marked mark.a5").all_text_contents()
        assert words[strongest] in deepest
    page.click("#windows label:has(input[value='all'])")
    page.click("#sides label:has(input[value='for'])")
    assert page.locator("#marked mark[class^='a']").count() == 0
    page.click("#sides label:has(input[value='against'])")
    assert page.locator("#marked mark[class^='f']").count() == 0
    page.click("#strongest summary")
    assert set(page.locator("#fragments td.for").all_text_contents()) == {str(answer["alternative"])}


@pytest.mark.parametrize("name", ODD)
def test_odd_texts_are_shown_as_they_are(page: Page, name: str) -> None:
    text = ODD[name][:100_000]
    answer = classify(page, text)
    assert shown(page) == text
    expect(page.locator("#label")).to_have_text(str(answer["label"]))
    assert page.locator("main script, main img").count() == 0
    if name == "right to left":
        direction = "getComputedStyle(document.getElementById('marked')).direction"
        assert page.evaluate(direction) == "rtl"
    if name == "long":
        expect(page.locator("#count")).to_have_text("100,000 characters")


def test_an_empty_text_has_no_parts(page: Page) -> None:
    answer = classify(page, "")
    assert answer["is_empty"]
    expect(page.locator("#certainty")).to_contain_text("shares of the labels in training")
    expect(page.locator("#marked")).to_be_hidden()


def test_everything_works_by_keyboard(page: Page) -> None:
    page.focus("#text")
    page.keyboard.type("good battery")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#result")).to_be_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "go"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "windows"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.querySelector('#windows input:checked').value") != "all"
    assert page.evaluate("document.activeElement.name") == "windows"


def test_a_file_is_chosen_or_dropped_and_comes_back_labeled(page: Page) -> None:
    content = 'id,text\n1,good battery\n2,"<b>bad</b>, bad"\n'
    file = {"name": "re<b>views.csv", "mimeType": "text/csv", "buffer": content.encode()}
    page.set_input_files("#file", file)
    expect(page.locator("#file-state")).to_contain_text("2 rows labeled.")
    with page.expect_download() as download:
        page.click("#file-state a")
    rows = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert rows[0] == '"id","text","label","probability"'
    assert rows[2].startswith('"2","<b>bad</b>, bad"')
    drop(page, "dropped.csv", "text\ngood\n")
    expect(page.locator("#file-state")).to_contain_text("1 rows labeled. Save dropped.labeled.csv")


def drop(page: Page, name: str, content: str) -> None:
    """Drop a file on its place."""
    made = json.dumps([content, name])
    transfer = page.evaluate_handle(
        f"() => {{ const [content, name] = {made}; const given = new DataTransfer();"
        " given.items.add(new File([content], name, {type: 'text/csv'})); return given; }"
    )
    page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})


def test_a_refusal_is_shown(browser: Browser, server: Server) -> None:
    page = browser.new_page()  # a refused request is an error on the console, so not in the fixture
    page.goto(server.url)
    page.fill("#text", "a" * 100_001)
    page.click("#go")
    expect(page.locator("#problem")).to_have_text("text: String should have at most 100000 characters.")
    expect(page.locator("#result")).to_be_hidden()
    drop(page, "wrong.csv", "a,b\n1\n")
    expect(page.locator("#file-problem")).to_contain_text("The file is malformed in line 2")
    page.close()
