"""The other views of the page: an item enlarged, groups of duplicates, the map."""

import csv
import io
import json

import numpy as np
import pytest
from pages import FAINT_TEXTS, a_query, drop, nearest, needs_browser, opened, shot, shown_ids
from PIL import Image
from playwright.sync_api import expect
from services import N_BITS, service

from hamtarget.serve.access.tokens import TokenEntry, editing_tokens, new_token
from hamtarget.store import Store

pytestmark = [needs_browser]


# --- enlarged ---------------------------------------------------------------------------------------------------------


def test_a_hit_is_enlarged_beside_the_query(page, demo):
    drop(page, a_query(demo), name="heel.png")
    nearest(page)
    ids = shown_ids(page)
    page.locator(".hit .open").nth(1).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    expect(dialog.locator("figcaption")).to_have_text(["heel.png", f"{ids[2]:04}.png"])
    expect(dialog.locator("figure img")).to_have_count(2)
    expect(page.locator("#compare-title")).to_contain_text("apart")
    expect(page.locator("#compare-details")).to_contain_text("Sandal")
    page.keyboard.press("ArrowRight")
    expect(dialog.locator("figcaption").last).to_have_text(f"{ids[3]:04}.png")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.locator(".hit .open").nth(4).click()
    page.locator("#compare-search").click()
    expect(page.locator("#query-view .name")).to_have_text(f"{ids[4]:04}.png")


@pytest.fixture
def large(tmp_path):
    """A store with one picture, larger than any that the page shows by itself."""
    (tmp_path / "images").mkdir()
    Image.new("RGB", (3000, 20), "teal").save(tmp_path / "images" / "wide.png")
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    store.put_rows(["wide"], codes=np.zeros((1, 8), np.uint8), payloads=[{"image": "wide.png"}])
    return store, tmp_path / "images"


@pytest.mark.parametrize("token", [None, "a-token-of-some-length"])
def test_the_original_is_opened(browser, large, token):
    store, images = large
    with service(store, image_folders=(images,), token=token) as call:
        context = browser.new_context()
        page = context.new_page()
        page.goto(call.address)
        if token:
            page.locator("#token").fill(token)
            page.keyboard.press("Enter")
        page.locator(".hit .open").click()
        with context.expect_page() as opened_page:
            page.get_by_role("link", name="Open the original").click()
        width = opened_page.value.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)")
        assert width == 3000
        context.close()


def test_an_item_with_several_codes_is_shown_by_the_nearest(page, demo):
    """As other stores have them: `codes` in place of `code`."""
    near, far = "fb5ceedba93e14ad", "0" * 16
    hit = {"id": "video", "distance": 1, "codes": [far, near], "payload": {"name": "a video"}}
    item = {"id": "video", "codes": [far, near], "embeddings": None, "payload": {"name": "a video"}, "has_image": False}
    answer = demo[0].post("/v1/nearest", {"code": "fb5ceedba93e14ac", "k": 1}).json | {"hits": [hit]}
    page.route("**/v1/nearest", lambda route: route.fulfill(status=200, body=json.dumps(answer)))
    page.route("**/v1/items/video?*", lambda route: route.fulfill(status=200, body=json.dumps(item)))
    page.locator("#text").fill("video")
    page.keyboard.press("Enter")
    expect(page.locator("#query-view .name")).to_have_text("a video, first of 2 codes")
    expect(page.locator("#hits .hit")).to_have_count(1)
    assert page.locator(".hit .strip path.differ").get_attribute("d").count("M") == 1


# --- duplicates -------------------------------------------------------------------------------------------------------


def grouped(payloads):
    """What the service answers: a group of three and one of two, and another page of one."""

    def member(id, distance):
        return {"id": id, "distance": distance, "payload": payloads[id]}

    first = {"id": 17, "size": 3, "representative": 0, "is_capped": False}
    second = {"id": 40, "size": 2, "representative": 3, "is_capped": False}
    third = {"id": 50, "size": 3, "representative": 5, "is_capped": True}
    head = {"radius": 4, "linkage": "single", "n_groups": 3, "n_items": 8}
    return [
        {
            **head,
            "groups": [
                {**first, "members": [member(0, 0), member(1, 1), member(2, 3)]},
                {**second, "members": [member(3, 0), member(4, 2)]},
            ],
            "next": 40,
        },
        {**head, "groups": [{**third, "members": [member(5, 0), member(6, 4)]}], "next": None},
    ]


@pytest.fixture
def copies(demo, tmp_path):
    """Pictures of a store that can be changed, and the payloads that it has."""
    payloads = [{"image": f"{row:04}.png", "class": "Sandal"} for row in range(8)]
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=4, durability="os")
    store.put_rows(list(range(8)), codes=np.zeros((8, 8), np.uint8), payloads=payloads)
    return store, payloads, demo[1] / "images"


def answer_groups(page, payloads, asked):
    answers = grouped(payloads)

    def answer(route):
        request = json.loads(route.request.post_data)
        asked.append(request)
        route.fulfill(status=200, body=json.dumps(answers[0 if request["after"] is None else 1]))

    def answer_members(route):
        assert json.loads(route.request.post_data) == {
            "radius": 4,
            "linkage": "single",
            "group": 50,
            "start": 2,
            "limit": 100,
        }
        member = {"id": 7, "distance": 4, "payload": payloads[7]}
        route.fulfill(status=200, body=json.dumps({"members": [member]}))

    page.route("**/v1/groups", answer)
    page.route("**/v1/groups/members", answer_members)


def test_duplicates_are_compared_chosen_exported_and_deleted(browser, copies):
    store, payloads, images = copies
    with service(store, writable=True, image_folders=(images,)) as call:
        for page in opened(browser, call.address):
            asked = []
            answer_groups(page, payloads, asked)
            page.get_by_role("link", name="Duplicates").click()
            expect(page.locator("#groups-title")).to_have_text("3 groups of 8 items within 4 bits")
            expect(page.locator(".group")).to_have_count(2)
            assert asked == [{"radius": 4, "linkage": "single", "limit": 20, "after": None, "members": 100}]
            page.locator("#more-groups button").click()
            expect(page.locator(".group")).to_have_count(3)
            assert asked[-1]["after"] == 40
            page.get_by_role("button", name="Show more of the other 1 member").click()
            expect(page.locator(".group").last.locator("li")).to_have_count(3)
            expect(page.locator("#delete")).to_be_disabled()
            # Compare with the best.
            page.get_by_role("button", name="0001.png, 1 bit from the best. Compare.").click()
            expect(page.locator("#compare figcaption")).to_have_text(["0000.png (best)", "0001.png"])
            page.keyboard.press("Escape")
            # The best is another one to this person.
            page.locator("#select-rest").click()
            page.get_by_role("button", name="Keep only 0002.png").click()
            checked = page.locator(".group input:checked")
            expect(checked).to_have_count(5)
            with page.expect_download() as saved:
                page.locator("#export-csv").click()
            rows = list(csv.DictReader(io.StringIO(saved.value.path().read_text())))
            assert [int(row["id"]) for row in rows if row["selected"] == "true"] == [0, 1, 4, 6, 7]
            assert rows[0] == {
                "group": "17",
                "id": "0",
                "distance": "0",
                "best": "true",
                "selected": "true",
                "image": "0000.png",
                "label": "Sandal",
            }
            with page.expect_download() as saved:
                page.locator("#export-json").click()
            assert [row["id"] for row in json.loads(saved.value.path().read_text()) if row["selected"]] == [
                0,
                1,
                4,
                6,
                7,
            ]
            # Nothing is deleted without a yes.
            page.get_by_role("button", name="Delete 5 items").click()
            expect(page.locator("#confirm-title")).to_have_text("Delete 5 items from the store?")
            expect(page.locator("#confirm-no")).to_be_focused()
            page.keyboard.press("Escape")
            expect(page.locator("#confirm")).to_be_hidden()
            assert len(store) == 8
            page.get_by_role("button", name="Delete 5 items").click()
            page.locator("#confirm").get_by_role("button", name="Delete").click()
            expect(page.locator("#message")).to_contain_text("5 items deleted")
            assert [item.id for item in store.scan()] == [2, 3, 5]
            expect(page.locator(".group:visible")).to_have_count(0)
            expect(page.locator("#groups-title")).to_be_empty()
            expect(page.locator("#group-tools")).to_be_hidden()


def refuse(route):
    refusal = {"error": {"kind": "busy", "message": "groups are being made; try again"}}
    route.fulfill(status=503, body=json.dumps(refusal))


def test_groups_that_are_being_made_are_waited_for(browser, copies):
    store, payloads, images = copies
    with service(store, image_folders=(images,)) as call:
        for page in opened(browser, call.address):
            answer_groups(page, payloads, [])
            page.route("**/v1/groups", refuse, times=1)
            page.get_by_role("link", name="Duplicates").click()
            expect(page.locator("#message")).to_contain_text("Groups are being made")
            expect(page.locator(".group")).to_have_count(2)
            expect(page.locator("#message")).to_be_empty()


def test_who_may_only_read_cannot_delete(browser, copies, tmp_path):
    store, payloads, images = copies
    reader = new_token()
    with editing_tokens(tmp_path / "tokens.json") as entries:
        entries.append(TokenEntry.of("reader", "read", reader))
    with service(store, writable=True, image_folders=(images,), tokens_file=tmp_path / "tokens.json") as call:
        context = browser.new_context()
        page = context.new_page()
        answer_groups(page, payloads, [])
        page.goto(f"{call.address}#view=duplicates")
        page.locator("#token").fill(reader)
        page.keyboard.press("Enter")
        expect(page.locator(".group")).to_have_count(2)
        expect(page.locator("#export-csv")).to_be_visible()
        expect(page.locator("#delete")).to_be_hidden()
        expect(page.locator(".group img").first).to_have_js_property("complete", True)
        context.close()


# --- the map ----------------------------------------------------------------------------------------------------------


def test_the_map_shows_items_by_mouse_and_keyboard(page, demo):
    page.get_by_role("link", name="Map").click()
    expect(page.locator("#map-title")).to_have_text("Map of 900 items")
    expect(page.locator("#map-legend li")).to_have_count(10)
    sky = page.locator("#map")
    sky.focus()
    page.keyboard.press("ArrowRight")
    name = page.locator("#map-item .name")
    expect(name).to_contain_text(".png")
    first = name.inner_text()
    page.keyboard.press("ArrowRight")
    expect(name).not_to_have_text(first)
    # Zoomed in on a point, it can still be pressed; a drag moves it and chooses nothing.
    blank = page.evaluate("document.getElementById('map').toDataURL()")
    for _ in range(3):
        page.keyboard.press("+")
    assert page.evaluate("document.getElementById('map').toDataURL()") != blank
    page.keyboard.press("0")
    assert page.evaluate("document.getElementById('map').toDataURL()") == blank
    box = sky.bounding_box()
    chosen = name.inner_text()
    page.mouse.move(box["x"] + 300, box["y"] + 300)
    page.mouse.down()
    page.mouse.move(box["x"] + 340, box["y"] + 330)
    page.mouse.up()
    assert page.evaluate("document.getElementById('map').toDataURL()") != blank
    assert name.inner_text() == chosen
    page.locator("#zoom-reset").click()
    page.get_by_role("button", name="Trouser 90").click()
    expect(page.locator("[aria-pressed=true]")).to_have_count(1)
    sky.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#map-item .label")).to_have_text("Trouser")
    name_of_trousers = name.inner_text()
    page.keyboard.press("Enter")
    expect(page.locator("#query-view .name")).to_have_text(name_of_trousers)
    nearest(page)
    page.go_back()
    expect(page.locator("#map-title")).to_be_visible()


def test_a_point_that_is_pressed_shows_its_item(browser, tmp_path):
    """Two items lie at the two ends of the map."""
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    codes = np.array([[0] * 8, [255] * 8], dtype=np.uint8)
    store.put_rows(["left", "right"], codes=codes)
    with service(store) as call:
        for page in opened(browser, f"{call.address}#view=map"):
            expect(page.locator("#map-title")).to_have_text("Map of 2 items")
            box = page.locator("#map").bounding_box()
            seen = []
            for x in (18, box["width"] - 18):
                page.locator("#map").click(position={"x": x, "y": box["height"] / 2})
                expect(page.locator("#map-item .name")).to_be_visible()
                seen.append(page.locator("#map-item .name").inner_text())
                page.locator("#map").click(position={"x": box["width"] / 2, "y": box["height"] / 2})
                expect(page.locator("#map-item")).to_have_text("Press a point.")
            assert sorted(seen) == ["left", "right"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_views_can_be_read_on_every_screen(browser, copies, scheme, width):
    store, payloads, images = copies
    with service(store, writable=True, image_folders=(images,)) as call:
        for page in opened(browser, call.address, color_scheme=scheme, width=width, height=844):
            answer_groups(page, payloads, [])
            for view, sign in (("Duplicates", ".group"), ("Map", "#map-text:not(:empty)")):
                page.get_by_role("link", name=view).click()
                expect(page.locator(sign).first).to_be_visible()
                shot(page, f"{view.lower()}-{scheme}-{width}")
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                assert page.evaluate(FAINT_TEXTS) == []


# --- by keyboard alone ------------------------------------------------------------------------------------------------


def tab_to(page, id_or_class):
    """Presses Tab until something is reached, as a person would."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id || document.activeElement.className") == id_or_class:
            return
    raise AssertionError(f"{id_or_class} cannot be reached")


def test_all_of_it_is_done_by_keyboard_alone(browser, copies):
    store, payloads, images = copies
    with service(store, writable=True, image_folders=(images,)) as call:
        for page in opened(browser, call.address):
            answer_groups(page, payloads, [])
            tab_to(page, "text")
            page.keyboard.type("3")
            page.keyboard.press("Enter")
            expect(page.locator("#results-title")).to_have_text("The 8 nearest")
            expect(page).to_have_title("0003.png - hamtarget")
            # The first thing that Tab reaches leads to the results, and leaves the address alone.
            page.evaluate("document.activeElement.blur()")
            address = page.url
            page.locator("#skip").focus()
            page.keyboard.press("Enter")
            expect(page.locator("#results")).to_be_focused()
            assert page.url == address
            tab_to(page, "open")
            page.keyboard.press("Enter")
            expect(page.get_by_role("dialog", name="0 bits apart")).to_be_visible()
            page.keyboard.press("Escape")
            # The focus is where it was.
            assert page.evaluate("document.activeElement.className") == "open"
            page.locator("#views a").nth(1).focus()
            page.keyboard.press("Enter")
            expect(page.locator(".group")).to_have_count(2)
            tab_to(page, "select-rest")
            page.keyboard.press("Space")
            expect(page.locator(".group input:checked")).to_have_count(3)
            tab_to(page, "delete")
            page.keyboard.press("Enter")
            expect(page.get_by_role("dialog", name="Delete 3 items from the store?")).to_be_visible()
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")
            expect(page.locator("#message")).to_contain_text("3 items deleted")
            assert len(store) == 5


def test_a_link_keeps_how_groups_are_made(browser, copies):
    store, payloads, images = copies
    with service(store, image_folders=(images,)) as call:
        for page in opened(browser, f"{call.address}#view=duplicates"):
            asked = []
            answer_groups(page, payloads, asked)
            page.locator("#group-radius").fill("3")
            page.locator("#group-linkage").select_option("representative")
            expect(page.locator(".group")).to_have_count(2)
            assert (asked[-1]["radius"], asked[-1]["linkage"]) == (3, "representative")
            page.reload()
            expect(page.locator(".group")).to_have_count(2)
            assert (asked[-1]["radius"], asked[-1]["linkage"]) == (3, "representative")
            expect(page.locator("#delete")).to_be_hidden()
