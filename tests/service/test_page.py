"""The page in a real browser: what people do with it, and what they see when something is wrong."""

import base64
import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect, sync_playwright
from services import N_BITS, ProbingEncoder, service

from hamtarget import open_encoder
from hamtarget.serve.demo_store import make_demo
from hamtarget.store import Store

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SHOTS = Path("out/screenshots")
N_IMAGES = 900
# A busy machine is no failure.
expect.set_options(timeout=20_000)


def find_browser():
    named = os.environ.get("HAMTARGET_CHROMIUM")
    return named or next((path for path in map(shutil.which, BROWSERS) if path), None)


pytestmark = [
    pytest.mark.skipif(
        find_browser() is None,
        reason="NO BROWSER: THE PAGE IS NOT TESTED. Install chromium, or name one in HAMTARGET_CHROMIUM.",
    )
]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A service of bundled images, and the folder of its demo."""
    folder = tmp_path_factory.mktemp("demo")
    store, images = make_demo(folder, n_images=N_IMAGES)
    with service(Store.open(store, read_only=True), image_folders=(images,)) as call:
        yield call, folder


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        # Containers have no user namespaces for the browser's own sandbox; it loads nothing but our page.
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, demo):
    """The page of the demo, just opened; whatever it complains about fails the test."""
    yield from opened(browser, demo[0].address)


def opened(browser, address, **settings):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **settings)
    page = context.new_page()
    page.set_default_timeout(20_000)
    complaints, elsewhere = [], []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None)
    page.on("request", lambda asked: elsewhere.append(asked.url) if not ours(asked.url, address) else None)
    page.goto(address)
    expect(page.locator("#stats")).to_contain_text("Bits")
    yield page
    context.close()
    assert complaints == []
    assert elsewhere == []


def ours(url, address):
    return urlsplit(url).scheme == "blob" or urlsplit(url).netloc == urlsplit(address).netloc


def shot(page, name, **settings):
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.wait_for_function(
        "[...document.images].filter((image) => image.loading !== 'lazy').every((image) => image.complete)"
    )
    page.wait_for_timeout(100)
    page.screenshot(path=SHOTS / f"{name}.png", **settings)


def drop(page, content, name="query.png", kind="image/png"):
    """Drops a file on the page, as a person does."""
    transfer = page.evaluate_handle(
        """([text, name, kind]) => {
          const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
          const transfer = new DataTransfer();
          transfer.items.add(new File([bytes], name, { type: kind }));
          return transfer;
        }""",
        [base64.b64encode(content).decode(), name, kind],
    )
    page.dispatch_event("#drop", "dragenter", {"dataTransfer": transfer})
    page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})
    return transfer


def a_query(demo, number=5):
    return (demo[1] / "queries" / f"{number:04}.png").read_bytes()


def shown_ids(page):
    texts = page.locator(".hit .payload").all_inner_texts()
    return [int(text.removeprefix("id ")) for text in texts]


def set_radius(page, radius):
    page.locator("#radius").fill(str(radius))
    expect(page.locator("#hits")).to_have_attribute("aria-busy", "false")


def test_an_image_that_is_dropped_is_searched_with(page, demo):
    expect(page.locator("#message")).to_contain_text("Drop an image to begin")
    drop(page, a_query(demo))
    expect(page.locator("#results-title")).to_contain_text("within 4 bits")
    set_radius(page, 6)
    expect(page.locator("#results-title")).to_contain_text("within 6 bits")
    asked = {"image": base64.b64encode(a_query(demo)).decode(), "radius": 6, "limit": 24}
    found = demo[0].post("/v1/search", asked).json
    assert set(shown_ids(page)) == {hit["id"] for hit in found["hits"]}
    expect(page.locator("#m-candidates")).to_have_text(f"{found['cost']['candidates']:,}")
    expect(page.locator("#histogram-text")).to_contain_text(f"of all {N_IMAGES:,} items lie within 6 bits")
    expect(page.locator("#query-view")).to_contain_text("encoded in")
    first = page.locator(".hit").first
    expect(first.locator("img")).to_have_js_property("complete", True)
    assert first.locator("img").evaluate("image => image.naturalWidth") == 28
    # The strip marks as many cells as the distance says.
    cells = first.locator(".strip path.differ").get_attribute("d").count("M")
    assert f"{cells} bit" in first.locator(".distance").inner_text()
    shot(page, "hits-light-1280")


def test_an_image_can_be_pasted_or_chosen(page, demo):
    drop(page, a_query(demo))
    expect(page.locator("#results-title")).to_contain_text("within 4 bits")
    by_drop = shown_ids(page)
    page.goto(demo[0].address)
    expect(page.locator("#message")).to_contain_text("Drop an image to begin")
    page.evaluate(
        """(text) => {
          const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
          const transfer = new DataTransfer();
          transfer.items.add(new File([bytes], "pasted.png", { type: "image/png" }));
          document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true }));
        }""",
        base64.b64encode(a_query(demo)).decode(),
    )
    expect(page.locator("#results-title")).to_contain_text("within 4 bits")
    assert shown_ids(page) == by_drop
    page.set_input_files("#pick", demo[1] / "queries" / "0008.png")
    expect(page.locator("#query-view")).to_contain_text("0008.png")


def test_a_hit_that_is_pressed_becomes_the_query_and_back_goes_back(page, demo):
    drop(page, a_query(demo))
    set_radius(page, 8)
    expect(page.locator("#results-title")).to_contain_text("within 8 bits")
    second = shown_ids(page)[1]
    page.locator(".hit").nth(1).click()
    expect(page.locator(".hit").first.locator(".payload")).to_have_text(f"id {second}")
    expect(page.locator(".hit").first.locator(".distance")).to_have_text("0 bits")
    # By the keyboard: to the grid, along it, and from there.
    page.locator(".hit").first.focus()
    page.keyboard.press("ArrowRight")
    next_id = shown_ids(page)[1]
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{demo[0].address}#{next_id}")
    page.go_back()
    expect(page.locator(".hit").first.locator(".payload")).to_have_text(f"id {second}")
    page.go_back()
    expect(page.locator("#query-view")).to_contain_text("query.png")
    expect(page.locator("#results-title")).to_contain_text("within 8 bits")


def test_the_slider_updates_the_result_live(page, demo):
    drop(page, a_query(demo, 3))
    expect(page.locator("#results-title")).to_contain_text("within")
    page.locator("#limit").select_option("192")
    slider = page.locator("#radius")
    slider.focus()
    counts = []
    for radius in (5, 6, 7, 8):
        page.keyboard.press("ArrowRight")
        expect(page.locator("#radius-text")).to_have_text(f"{radius} bits")
        expect(page.locator("#histogram-text")).to_contain_text(f"within {radius} bits")
        asked = {"image": base64.b64encode(a_query(demo, 3)).decode(), "radius": radius, "limit": 192}
        found = demo[0].post("/v1/search", asked).json
        expect(page.locator(".hit")).to_have_count(len(found["hits"]))
        counts.append(len(found["hits"]))
    assert counts == sorted(counts)
    page.locator("#order").select_option("embedding")
    closeness = [float(text) for text in page.locator(".hit .closeness").all_inner_texts()]
    assert closeness == sorted(closeness)


def test_nothing_within_the_radius_says_what_to_do(page):
    noise = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)
    path = SHOTS.parent / "noise.png"
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(noise).save(path)
    drop(page, path.read_bytes())
    set_radius(page, 0)
    expect(page.locator("#message")).to_contain_text("Nothing within 0 bits")
    button = page.locator("#message button")
    expect(button).to_contain_text("Search within")
    shot(page, "nothing-light-1280")
    button.click()
    expect(page.locator(".hit").first).to_be_visible()


@pytest.mark.parametrize("content", [b"no image at all", b"\x89PNG\r\n\x1a\n broken"])
def test_a_broken_file_is_told_and_the_page_goes_on(page, demo, content):
    drop(page, content, name="broken.png")
    alert = page.locator("#message[role=alert]")
    expect(alert).to_contain_text("That file cannot be read")
    expect(alert).to_contain_text("Choose another image")
    expect(page.locator(".hit")).to_have_count(0)
    shot(page, "error-light-1280")
    drop(page, a_query(demo))
    expect(page.locator("#results-title")).to_contain_text("within 4 bits")
    expect(page.locator("#message")).to_be_empty()


def test_a_service_that_is_gone_is_told(page, demo):
    drop(page, a_query(demo))
    expect(page.locator("#results-title")).to_contain_text("within 4 bits")
    page.context.set_offline(True)
    page.locator("#radius").fill("5")
    expect(page.locator("#message")).to_contain_text("The service does not answer")
    page.context.set_offline(False)
    page.locator("#message button").click()
    expect(page.locator("#results-title")).to_contain_text("within 5 bits")


def test_an_id_and_a_code_can_be_typed_and_an_example_taken(page, demo):
    page.locator("#text").fill("17")
    page.keyboard.press("Enter")
    expect(page.locator(".hit").first.locator(".payload")).to_have_text("id 17")
    code = demo[0]("GET", "/v1/items/17?kind=integer").json["code"]
    page.locator("#text").fill(code)
    page.keyboard.press("Enter")
    expect(page.locator("#query-view")).to_contain_text("Code")
    expect(page.locator(".hit").first.locator(".distance")).to_have_text("0 bits")
    page.locator("#text").fill("nothing like it")
    page.keyboard.press("Enter")
    expect(page.locator("#message")).to_contain_text("There is no such item")
    page.locator("#demo").click()
    expect(page.locator(".hit").first.locator(".distance")).to_have_text("0 bits")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_can_be_read_on_every_screen(browser, demo, scheme, width):
    for page in opened(browser, demo[0].address, color_scheme=scheme):
        page.set_viewport_size({"width": width, "height": 844})
        expect(page.locator(".hit").first).to_be_visible()
        shot(page, f"start-{scheme}-{width}")
        page.locator(".hit").nth(2).click()
        expect(page.locator("#results-title")).to_contain_text("within")
        shot(page, f"{scheme}-{width}", full_page=width < 500)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        faint = page.evaluate(FAINT_TEXTS)
        assert faint == []


# Texts whose contrast with their ground is below 4.5 to 1, the bound of WCAG AA.
FAINT_TEXTS = """() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = color.map((value) => value / 255)
      .map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = parse(getComputedStyle(each).backgroundColor);
      if (color.length < 4 || color[3] === 1) return color.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.getClientRects().length || element.matches("option, .skip, .visually-hidden")) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color).slice(0, 3)), light(ground(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faint.push(`${element.tagName} ${element.textContent.slice(0, 30)} ${contrast.toFixed(2)}`);
  }
  return faint;
}"""


def test_everything_has_a_name_and_a_focus_ring(page, demo):
    drop(page, a_query(demo))
    expect(page.locator("#results-title")).to_contain_text("within 4 bits")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, [role=img]")]
          .filter((each) => !(each.getAttribute("aria-label") || each.textContent.trim() || each.labels?.length
            || each.getAttribute("aria-labelledby")))
          .map((each) => each.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    seen = []
    for _ in range(14):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
        ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        # The file input itself is out of sight; its label has the ring.
        assert ring != "none" or seen[-1] == "pick", seen
    assert page.locator("#pick-label").evaluate("label => label.matches(':has(+ input)')")
    assert [name for name in ("pick", "demo", "text", "radius", "limit", "order", "hit") if name not in seen] == []


def test_a_token_is_asked_for_once(browser, tmp_path):
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    store.put_rows([1, 2], codes=np.zeros((2, 8), np.uint8), payloads=[{"name": "one"}, {"name": "two"}])
    with service(store, token="a-token-of-some-length") as call:
        context = browser.new_context()
        page = context.new_page()
        page.goto(call.address)
        expect(page.locator("#token-dialog")).to_be_visible()
        page.locator("#token").fill("wrong-token-of-some-length")
        page.keyboard.press("Enter")
        expect(page.locator("#token-dialog")).to_be_visible()
        page.locator("#token").fill("a-token-of-some-length")
        page.keyboard.press("Enter")
        expect(page.locator("#stats")).to_contain_text("none (codes only)")
        expect(page.locator(".hit")).to_have_count(2)
        page.locator(".hit").first.click()
        expect(page.locator("#results-title")).to_have_text("2 within 2 bits")
        page.goto(f"{call.address}docs")
        expect(page.locator("details")).not_to_have_count(0)
        context.close()


def test_ids_of_64_bits_are_not_rounded(browser, tmp_path):
    large = 2**61 + 1
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    store.put_rows([large, str(large)], codes=np.zeros((2, 8), np.uint8), payloads=[{"big": [2**60 + 1]}, None])
    with service(store) as call:
        for page in opened(browser, call.address):
            page.locator(".hit", has_text="big").click()
            expect(page.locator("#results-title")).to_have_text("2 within 2 bits")
            expect(page).to_have_url(f"{call.address}#{large}")
            expect(page.locator("#hits")).to_contain_text(f"big: [{2**60 + 1}]")


def test_codes_for_probing_are_searched_widely(browser, tmp_path, vectors):
    """They have no radius of their own: the first search must not find nothing."""
    store = Store.create(tmp_path / "store", encoder=ProbingEncoder(), durability="os")
    store.put_rows(list(range(len(vectors))), inputs=vectors)
    with service(store) as call:
        for page in opened(browser, call.address):
            expect(page.locator("#stats")).to_contain_text("search, nearest, probe (advised)")
            expect(page.locator("#radius-text")).to_have_text(f"{N_BITS // 2} bits")
            page.locator(".hit").first.click()
            expect(page.locator("#results-title")).to_have_text(f"The first 24 within {N_BITS // 2} bits")


def test_a_text_is_searched_for_in_a_store_of_texts(browser, tmp_path):
    store = Store.create(tmp_path / "store", encoder=open_encoder("simhash64"), durability="os")
    texts = ["the quick brown fox jumps over the lazy dog", "a text about taxes and forms and nothing else at all"]
    store.put_rows(["fox", "tax"], inputs=texts, payloads=[{"text": text} for text in texts])
    with service(store) as call:
        for page in opened(browser, call.address):
            expect(page.locator("#drop-hint")).to_contain_text("Search by a text, an id or a code")
            page.locator("#text").fill("The quick BROWN fox jumps over the lazy dog!")
            page.locator("#by-text button").click()
            expect(page.locator("#query-view .name")).to_have_text("The quick BROWN fox jumps over the lazy dog!")
            expect(page.locator(".hit")).to_have_count(1)
            expect(page.locator(".hit")).to_contain_text("fox")
            # A word may be an id.
            page.locator("#text").fill("tax")
            page.locator("#by-text button").click()
            expect(page.locator(".hit")).to_contain_text("taxes")
            # One that is none is a text, too; the page can be loaded again with it.
            page.locator("#text").fill("unheard-of")
            page.locator("#by-text button").click()
            expect(page.locator("#message")).to_contain_text("Nothing within")
            page.locator("#text").fill(texts[1])
            page.locator("#by-text button").click()
            expect(page.locator(".hit")).to_contain_text("taxes")
            page.reload()
            expect(page.locator("#query-view .name")).to_have_text(texts[1])
            expect(page.locator(".hit")).to_contain_text("taxes")


def test_an_empty_store_says_what_to_do(browser, tmp_path):
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    with service(store) as call:
        for page in opened(browser, call.address):
            expect(page.locator("#message")).to_contain_text("This store is empty")
            expect(page.locator("#demo")).to_be_disabled()


def test_the_endpoints_are_described_without_anybody_else(browser, demo):
    for page in opened(browser, demo[0].address):
        page.locator("nav a").click()
        expect(page.locator("details")).not_to_have_count(0)
        page.locator("summary", has_text="/v1/search").first.click()
        expect(page.locator("details[open] table").first).to_contain_text("radius")
        shot(page, "docs-light-1280")
