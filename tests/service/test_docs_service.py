"""The examples of the pages that call a service run against one (tests/page_examples.py), as does what curl sends."""

import json
import re
import shutil
import subprocess

import pytest
from services import service

from hamtarget.serve.demo_store import make_demo
from hamtarget.store import Store
from page_examples import PAGES, name, pages_that_need, run_page, with_next

ADDRESS = "http://127.0.0.1:8080"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A service of the demo's store that takes changes, and the folder that readers of its page work in."""
    folder = tmp_path_factory.mktemp("demo")
    store, images = make_demo(folder)
    for path in ("shoe.jpg", "other.jpg", "frame1.jpg", "frame2.jpg"):
        shutil.copy(images / "0225.png", folder / path)
    with service(Store.open(store), writable=True, image_folders=(images,)) as call:
        yield call, folder


@pytest.fixture(scope="module")
def codes_served(tmp_path_factory):
    """A service of a store that keeps codes and nothing else, and an empty folder."""
    folder = tmp_path_factory.mktemp("codes")
    with service(Store.create(folder / "store", n_bits=64, radius=4, durability="os"), writable=True) as call:
        yield call, folder


@pytest.mark.parametrize("page", pages_that_need("service"), ids=name)
def test_examples_that_call_a_service_run(page, served, monkeypatch):
    call, folder = served
    monkeypatch.chdir(folder)
    run_page(page, "service", change=lambda text: text.replace(ADDRESS, call.address.rstrip("/")))


def shape(document):
    """Return the names of a document's fields, at every depth; of a list, those of its first part."""
    if isinstance(document, dict):
        return {field: shape(value) for field, value in document.items() if field != "payload"}
    return [shape(document[0])] if isinstance(document, list) and document else type(document) is dict


def asked():
    """Return each command of curl that runs, and the document that its page shows after it, if there is one."""
    for page in PAGES:
        for block, after in with_next(page):
            if block.language == "sh" and block.need == "service":
                shown = after.text if after is not None and after.language == "json" else None
                yield pytest.param(block.text, shown, id=f"{name(page)}:{block.line}")


@pytest.mark.parametrize(("commands", "shown"), list(asked()))
def test_what_curl_sends_is_answered_as_the_page_says(commands, shown, served, codes_served):
    if shutil.which("curl") is None:
        pytest.skip("curl is NOT installed: the commands of the pages that use it do not run")
    # The demo keeps embeddings, so an item that brings a code alone is for another store.
    call, folder = codes_served if "-X PUT" in commands else served
    script = commands.replace("localhost:8080", re.sub("http://|/$", "", call.address)).replace(
        "curl ", "curl --silent --show-error --fail-with-body "
    )
    done = subprocess.run(["bash", "-e", "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if shown is not None:
        assert shape(json.loads(done.stdout)) == shape(json.loads(shown.replace("[...]", "[0]")))
