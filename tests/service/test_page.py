"""The page in a real browser: what people search with, and what they see."""

import base64
import io

import numpy as np
import pytest
from pages import FAINT_TEXTS, N_IMAGES, a_query, drop, nearest, needs_browser, opened, set_radius, shot, shown_ids
from PIL import Image
from playwright.sync_api import expect
from services import N_BITS, ProbingEncoder, service

from hamtarget import open_encoder
from hamtarget.store import Store

pytestmark = [needs_browser]


def test_an_image_that_is_dropped_finds_the_nearest(page, demo):
    expect(page.locator("#message")).to_contain_text("Drop an image to begin")
    drop(page, a_query(demo))
    nearest(page)
    image = base64.b64encode(a_query(demo)).decode()
    found = demo[0].post("/v1/nearest", {"image": image, "k": 24, "ties": "mixed"}).json
    assert shown_ids(page) == [hit["id"] for hit in found["hits"]]
    first = page.locator(".hit").first
    expect(first.locator(".name")).to_have_text(f"{found['hits'][0]['id']:04}.png")
    expect(first.locator(".label")).to_have_text("Sandal")
    assert first.inner_text().count("Sandal") == 1
    assert first.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)") == 28
    # The strip marks as many cells as the distance says.
    cells = first.locator(".strip path.differ").get_attribute("d").count("M")
    assert f"{cells} bit" in first.locator(".distance").inner_text()
    expect(page.locator("#query-view")).to_contain_text("encoded in")


def test_the_radius_is_a_filter(page, demo):
    drop(page, a_query(demo, 3))
    nearest(page)
    page.locator("#limit").select_option("192")
    nearest(page, 192)
    slider = page.locator("#radius")
    slider.focus()
    counts = []
    for radius in (5, 6, 7, 8):
        page.keyboard.press("ArrowRight")
        expect(page.locator("#radius-text")).to_have_text(f"{radius} bits")
        expect(page.locator("#results-title")).to_contain_text(f"within {radius} bits")
        asked = {"image": base64.b64encode(a_query(demo, 3)).decode(), "radius": radius, "limit": 192}
        found = demo[0].post("/v1/search", asked).json
        expect(page.locator(".hit")).to_have_count(len(found["hits"]))
        counts.append(len(found["hits"]))
    assert counts == sorted(counts)
    page.locator("#order").select_option("embedding")
    closeness = [float(text) for text in page.locator(".hit .closeness").all_inner_texts()]
    assert closeness == sorted(closeness)
    page.locator("#within").uncheck()
    nearest(page, 192)


def test_what_lies_beyond_the_radius_is_told_apart(page, demo):
    drop(page, a_query(demo))
    nearest(page)
    page.locator("#limit").select_option("192")
    nearest(page, 192)
    expect(page.locator(".divider")).to_have_text("Farther than 4 bits, the store's radius")
    before = page.evaluate("document.querySelectorAll('#hits li:has(~ .divider)').length")
    asked = {"image": base64.b64encode(a_query(demo)).decode(), "limit": 500}
    assert before == len(demo[0].post("/v1/search", asked).json["hits"])


def test_more_hits_are_added_to_those_there(page, demo):
    drop(page, a_query(demo))
    nearest(page)
    first = shown_ids(page)
    page.locator("#more button").click()
    nearest(page, 48)
    assert shown_ids(page)[:24] == first
    assert len(set(shown_ids(page))) == 48
    # Who goes on by keyboard is at the first of the new ones.
    assert page.evaluate("document.activeElement.closest('.hit').dataset.id") == str(shown_ids(page)[24])
    assert "limit=48" in page.url


def test_hits_are_filtered_by_label(page, demo):
    drop(page, a_query(demo))
    nearest(page)
    expect(page.locator("#labels option")).not_to_have_count(0)
    page.locator("#label").fill("Bag")
    page.keyboard.press("Enter")
    expect(page.locator("#results-title")).to_have_text("The 24 nearest labelled Bag")
    assert set(page.locator(".hit .label").all_inner_texts()) == {"Bag"}
    page.locator("#label").fill("Spaceship")
    page.keyboard.press("Enter")
    expect(page.locator("#message")).to_contain_text("Nothing found")
    page.locator("#message button", has_text="without the label").click()
    nearest(page)


def test_a_link_keeps_picture_radius_limit_and_label(page, browser, demo):
    drop(page, a_query(demo), name="heel.png")
    nearest(page)
    page.locator("#label").fill("Sandal")
    page.keyboard.press("Enter")
    set_radius(page, 6)
    page.locator("#more button").click()
    expect(page.locator(".hit")).to_have_count(48)
    title, ids = page.locator("#results-title").inner_text(), shown_ids(page)
    assert "labelled Sandal within 6 bits" in title
    context = browser.new_context()
    other = context.new_page()
    other.goto(page.url)
    expect(other.locator("#results-title")).to_have_text(title)
    # Ties, too: the embedding is in the link.
    assert shown_ids(other) == ids
    expect(other.locator("#query-view .name")).to_have_text("heel.png")
    assert other.locator("#query-view img").evaluate("image => image.decode().then(() => image.naturalWidth)") == 28
    expect(other.locator("#radius-text")).to_have_text("6 bits")
    expect(other.locator("#label")).to_have_value("Sandal")
    other.goto(f"{demo[0].address}#code=zz&radius=99999&limit=-1&picture=%3Cscript%3E")
    other.reload()
    expect(other.locator("#message")).to_contain_text("Drop an image to begin")
    context.close()


def test_back_goes_back(page, demo):
    drop(page, a_query(demo))
    nearest(page)
    second = shown_ids(page)[1]
    page.locator(".hit .from").nth(1).click()
    expect(page.locator("#query-view .name")).to_have_text(f"{second:04}.png")
    nearest(page)
    expect(page.locator(".hit").first.locator(".distance")).to_have_text("0 bits")
    assert f"id={second}&kind=integer" in page.url
    page.go_back()
    expect(page.locator("#query-view")).to_contain_text("query.png")
    nearest(page)
    page.go_back()
    expect(page.locator("#message")).to_contain_text("Drop an image to begin")
    page.go_forward()
    expect(page.locator("#query-view")).to_contain_text("query.png")


def test_several_images_have_a_result_each(page, demo):
    drop(page, *(a_query(demo, number) for number in (5, 8, 3)))
    nearest(page)
    tabs = page.get_by_role("tab")
    expect(tabs).to_have_count(3)
    first = shown_ids(page)
    tabs.nth(0).focus()
    page.keyboard.press("ArrowRight")
    expect(tabs.nth(1)).to_have_attribute("aria-selected", "true")
    expect(tabs.nth(1)).to_be_focused()
    nearest(page)
    image = base64.b64encode(a_query(demo, 8)).decode()
    found = demo[0].post("/v1/nearest", {"image": image, "k": 24, "ties": "mixed"}).json
    assert shown_ids(page) == [hit["id"] for hit in found["hits"]] != first
    tabs.nth(0).click()
    nearest(page)
    assert shown_ids(page) == first
    page.locator("#text").fill("17")
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab")).to_have_count(0)


def test_a_large_image_is_made_smaller_before_it_is_sent(page):
    noise = np.random.default_rng(0).integers(0, 256, (1000, 2000, 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(noise).save(content, "PNG")
    sent = []
    page.on("request", lambda asked: sent.append(asked) if asked.url.endswith("/v1/nearest") else None)
    with page.expect_response("**/v1/nearest") as answered:
        drop(page, content.getvalue())
    assert answered.value.ok
    assert len(content.getvalue()) > 5 * 2**20
    assert int(sent[0].header_value("content-length")) < 2 * 2**20
    nearest(page)


def test_an_image_can_be_pasted_or_chosen(page, demo):
    drop(page, a_query(demo))
    nearest(page)
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
    nearest(page)
    assert shown_ids(page) == by_drop
    page.set_input_files("#pick", demo[1] / "queries" / "0008.png")
    expect(page.locator("#query-view")).to_contain_text("0008.png")


def test_nothing_within_the_radius_says_what_to_do(page):
    noise = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(noise).save(content, "PNG")
    drop(page, content.getvalue())
    nearest(page)
    page.locator("#radius").fill("0")
    expect(page.locator("#message")).to_contain_text("Nothing within 0 bits")
    expect(page.locator("#message")).to_contain_text("The nearest item is")
    page.locator("#message button", has_text="Show the nearest").click()
    nearest(page)


def test_an_id_and_a_code_can_be_typed_and_an_example_taken(page, demo):
    page.locator("#text").fill("17")
    page.keyboard.press("Enter")
    nearest(page)
    assert 17 in shown_ids(page)
    code = demo[0]("GET", "/v1/items/17?kind=integer").json["code"]
    page.locator("#text").fill(code)
    page.keyboard.press("Enter")
    expect(page.locator("#query-view")).to_contain_text("Code")
    expect(page.locator(".hit").first.locator(".distance")).to_have_text("0 bits")
    page.locator("#demo").click()
    expect(page.locator("#query-view")).to_contain_text(".png")


def test_figures_are_behind_a_toggle(page, demo):
    asked = []
    page.on("request", lambda sent: asked.append(sent.post_data or "") if sent.method == "POST" else None)
    page.locator("#text").fill("17")
    page.keyboard.press("Enter")
    nearest(page)
    expect(page.locator("#m-candidates")).to_be_hidden()
    assert '"histogram":false' in asked[-1]
    page.locator("#figures summary").click()
    expect(page.locator("#histogram-text")).to_contain_text(f"of all {N_IMAGES:,} items lie within 4 bits")
    set_radius(page, 6)
    found = demo[0].post("/v1/search", {"id": 17, "radius": 6, "limit": 24, "ties": "mixed", "histogram": True}).json
    expect(page.locator("#m-candidates")).to_have_text(f"{found['cost']['candidates']:,}")
    within = sum(found["histogram"]["counts"][:7])
    expect(page.locator("#histogram-text")).to_contain_text(f"{within:,} of all {N_IMAGES:,} items lie within 6 bits")
    expect(page.locator("#stats")).to_contain_text("not allowed")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_can_be_read_on_every_screen(browser, demo, scheme, width):
    for page in opened(browser, demo[0].address, color_scheme=scheme, width=width, height=844):
        expect(page.locator(".hit").first).to_be_visible()
        shot(page, f"start-{scheme}-{width}")
        drop(page, a_query(demo), a_query(demo, 8))
        nearest(page)
        # The first results are seen without scrolling.
        assert page.locator(".hit .distance").first.bounding_box()["y"] < 844
        shot(page, f"{scheme}-{width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(FAINT_TEXTS) == []
        page.locator("#figures summary").click()
        expect(page.locator("#histogram-text")).to_contain_text("items lie within")
        assert page.evaluate(FAINT_TEXTS) == []
        page.locator(".hit .open").nth(2).click()
        expect(page.locator("#compare")).to_be_visible()
        shot(page, f"compare-{scheme}-{width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        box = page.locator("#compare").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert page.evaluate(FAINT_TEXTS) == []


NAMELESS = """() => [...document.querySelectorAll("button, input, select, a, canvas, [role=img]")]
  .filter((each) => !(each.getAttribute("aria-label") || each.textContent.trim() || each.labels?.length
    || each.getAttribute("aria-labelledby")))
  .map((each) => each.outerHTML.slice(0, 80))"""


def test_everything_has_a_name_and_a_focus_ring(page, demo):
    drop(page, a_query(demo))
    nearest(page)
    assert page.evaluate(NAMELESS) == []
    seen = []
    for _ in range(16):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
        ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        # The file input itself is out of sight; its label has the ring.
        assert ring != "none" or seen[-1] == "pick", seen
    assert page.locator("#pick-label").evaluate("label => label.matches(':has(+ input)')")
    wanted = ("pick", "demo", "text", "within", "radius", "label", "limit", "order", "open")
    assert [name for name in wanted if name not in seen] == []


def test_ids_of_64_bits_are_not_rounded(browser, tmp_path):
    large = 2**61 + 1
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    store.put_rows([large, str(large)], codes=np.zeros((2, 8), np.uint8), payloads=[{"big": [2**60 + 1]}, None])
    with service(store) as call:
        for page in opened(browser, call.address):
            page.locator(".hit", has_text="big").locator(".from").click()
            expect(page.locator("#results-title")).to_have_text("The 2 nearest")
            assert f"id={large}&kind=integer" in page.url
            expect(page.locator("#hits")).to_contain_text(f"big: [{2**60 + 1}]")
            page.reload()
            expect(page.locator("#query-view .name")).to_have_text(f"id {large}")


def test_codes_for_probing_are_found(browser, tmp_path, vectors):
    """They have no radius of their own: the first search must not find nothing."""
    store = Store.create(tmp_path / "store", encoder=ProbingEncoder(), durability="os")
    store.put_rows(list(range(len(vectors))), inputs=vectors)
    with service(store) as call:
        for page in opened(browser, call.address):
            expect(page.locator("#stats")).to_contain_text("search, nearest, probe (advised)")
            page.locator(".hit .from").first.click()
            nearest(page)
            expect(page.locator(".divider")).to_have_count(0)


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
            expect(page.locator(".hit")).to_have_count(2)
            expect(page.locator(".hit").first).to_contain_text("fox")
            # A word may be an id.
            page.locator("#text").fill("tax")
            page.locator("#by-text button").click()
            expect(page.locator("#query-view .name")).to_have_text("tax")
            expect(page.locator(".hit").first).to_contain_text("taxes")
            # One that is none is a text, too; the page can be loaded again with it.
            page.locator("#text").fill("unheard-of")
            page.locator("#by-text button").click()
            expect(page.locator("#query-view .name")).to_have_text("unheard-of")
            page.locator("#text").fill(texts[1])
            page.locator("#by-text button").click()
            expect(page.locator(".hit").first).to_contain_text("taxes")
            page.reload()
            expect(page.locator("#query-view .name")).to_have_text(texts[1])
            expect(page.locator(".hit").first).to_contain_text("taxes")


def test_an_empty_store_says_what_to_do(browser, tmp_path):
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    with service(store) as call:
        for page in opened(browser, call.address):
            expect(page.locator("#message")).to_contain_text("This store is empty")
            expect(page.locator("#demo")).to_be_disabled()


def test_the_endpoints_are_described_without_anybody_else(browser, demo):
    for page in opened(browser, demo[0].address):
        page.locator(".endpoints").click()
        expect(page.locator("details")).not_to_have_count(0)
        page.locator("summary", has_text="/v1/search").first.click()
        expect(page.locator("details[open] table").first).to_contain_text("radius")
