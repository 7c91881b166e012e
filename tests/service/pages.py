"""The page in a real browser: how tests open it, and what people do with it."""

import base64
import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SHOTS = Path("out/screenshots")
N_IMAGES = 900
# A busy machine is no failure.
expect.set_options(timeout=20_000)


def find_browser():
    named = os.environ.get("HAMTARGET_CHROMIUM")
    return named or next((path for path in map(shutil.which, BROWSERS) if path), None)


needs_browser = pytest.mark.skipif(
    find_browser() is None,
    reason="NO BROWSER: THE PAGE IS NOT TESTED. Install chromium, or name one in HAMTARGET_CHROMIUM.",
)


def opened(browser, address, *, width=1280, height=900, **settings):
    """Yield the page, just opened; whatever it complains about fails the test."""
    context = browser.new_context(viewport={"width": width, "height": height}, **settings)
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
    for picture in page.locator("img.picture").all()[:12]:
        picture.evaluate("image => image.loading === 'lazy' || image.decode().catch(() => 0)")
    page.wait_for_timeout(200)
    page.screenshot(path=SHOTS / f"{name}.png", **settings)


def drop(page, *contents, name="query.png", kind="image/png"):
    """Drops files on the page, as a person does."""
    transfer = page.evaluate_handle(
        """([texts, name, kind]) => {
          const transfer = new DataTransfer();
          for (const text of texts) {
            const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
            transfer.items.add(new File([bytes], name, { type: kind }));
          }
          return transfer;
        }""",
        [[base64.b64encode(content).decode() for content in contents], name, kind],
    )
    page.dispatch_event("#drop", "dragenter", {"dataTransfer": transfer})
    page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})


def a_query(demo, number=5):
    return (demo[1] / "queries" / f"{number:04}.png").read_bytes()


def shown_ids(page):
    return [int(id) for id in page.locator("#hits .hit").evaluate_all("cards => cards.map((card) => card.dataset.id)")]


def set_radius(page, radius):
    page.locator("#radius").fill(str(radius))
    expect(page.locator("#results-title")).to_contain_text(f"within {radius} bit")


def nearest(page, number=24):
    """Waits for the nearest."""
    expect(page.locator("#results-title")).to_have_text(f"The {number} nearest")
    expect(page.locator("#hits")).to_have_attribute("aria-busy", "false")


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
