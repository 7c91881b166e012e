"""What the page says when something is wrong: the right cause, and what to do."""

import json
from functools import partial

import numpy as np
import pytest
from pages import a_query, drop, nearest, needs_browser, opened
from playwright.sync_api import expect
from services import N_BITS, SignEncoder, service

from hamtarget.store import Store

pytestmark = [needs_browser]


@pytest.mark.parametrize("content", [b"no image at all", b"\x89PNG\r\n\x1a\n broken"])
def test_a_broken_file_is_told_and_the_page_goes_on(page, demo, content):
    drop(page, content, name="broken.png")
    alert = page.locator("#message[role=alert]")
    expect(alert).to_contain_text("That file cannot be read")
    expect(alert).to_contain_text("Choose another image")
    expect(page.locator(".hit")).to_have_count(0)
    drop(page, a_query(demo))
    nearest(page)
    expect(page.locator("#message")).to_be_empty()


def test_being_offline_is_told(page, demo):
    drop(page, a_query(demo))
    nearest(page)
    page.context.set_offline(True)
    page.locator("#radius").fill("5")
    expect(page.locator("#message")).to_contain_text("You are offline")
    page.context.set_offline(False)
    page.locator("#message button").click()
    expect(page.locator("#results-title")).to_contain_text("within 5 bits")


def fulfil(answer, route):
    route.fulfill(**answer)


REFUSALS = [
    (413, "too_large", "the body has more than 8 bytes", "That file is too large", "Choose a smaller one"),
    (413, "too_much", "more than 9 rows; use a smaller radius", "too much for one search", "smaller radius"),
    (429, "too_busy", "x", "Too many of your requests at once", "Try again in 7 seconds"),
    (503, "busy", "x", "The service is busy", "Try again in 7 seconds"),
    (503, "not_ready", "the disk is nearly full", "The service is not ready", "The disk is nearly full."),
    (504, "deadline", "the request took more than 30 s", "That took too long", "more than 30 s"),
    (501, "not_installed", "Pillow is not installed", "The service lacks a package", "Pillow"),
    (422, "input", "the image has 9 x 9 pixels; make it smaller", "That image is too large", "9 x 9"),
    (422, "input", "this store has no encoder", "This store takes no images", "no encoder"),
    (500, "internal", "the service failed; its log says why", "The service failed", "its log"),
]


def test_a_refusal_names_its_cause(page, demo):
    for status, kind, message, title, text in REFUSALS:
        refusal = json.dumps({"error": {"kind": kind, "message": message}})
        answer = {"status": status, "headers": {"Retry-After": "7"}, "body": refusal}
        page.route("**/v1/nearest", partial(fulfil, answer))
        drop(page, a_query(demo))
        alert = page.locator("#message[role=alert]")
        expect(alert.locator("strong")).to_contain_text(title)
        expect(alert).to_contain_text(text)
        expect(page.locator("#progress")).to_be_hidden()
        page.unroute("**/v1/nearest")
        again = alert.get_by_role("button", name="Try again")
        # What would be refused again is not offered.
        may_work = status in (429, 500, 503, 504)
        expect(again).to_have_count(int(may_work))
        if may_work:
            again.click()
        else:
            drop(page, a_query(demo))
        nearest(page)


def test_an_item_that_is_not_there_is_told(page, demo):
    page.locator("#text").fill("nothing like it")
    page.keyboard.press("Enter")
    expect(page.locator("#message")).to_contain_text("There is no such item")
    page.goto(f"{demo[0].address}#id=gone")
    page.reload()
    expect(page.locator("#message")).to_contain_text("There is no such item")


@pytest.mark.parametrize(("encoder", "text"), [(None, "without an encoder"), (SignEncoder(), "takes vectors")])
def test_a_store_that_takes_no_images_says_why(browser, tmp_path, demo, encoder, text):
    how = {"n_bits": N_BITS} if encoder is None else {"encoder": encoder}
    store = Store.create(tmp_path / "store", radius=2, durability="os", **how)
    store.put_rows([1], codes=np.zeros((1, 8), np.uint8))
    with service(store) as call:
        for page in opened(browser, call.address):
            expect(page.locator("#pick-label")).to_be_hidden()
            drop(page, a_query(demo))
            expect(page.locator("#message")).to_contain_text("This store takes no images")
            expect(page.locator("#message")).to_contain_text(text)


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
        page.locator(".hit .from").first.click()
        expect(page.locator("#results-title")).to_have_text("The 2 nearest")
        page.goto(f"{call.address}docs")
        expect(page.locator("details")).not_to_have_count(0)
        context.close()
