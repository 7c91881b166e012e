"""What tests of several promises share."""

import pytest


class FolderStores:
    """Stores in folders, by SQLite; another kind of store would stand beside it and pass the same tests."""

    def __init__(self, folder):
        self.folder = folder

    def create(self, name="store", **settings):
        from hamtarget.store import Store

        return Store.create(self.folder / name, **settings)

    def open(self, name="store", **how):
        from hamtarget.store import Store

        return Store.open(self.folder / name, **how)


@pytest.fixture(params=[FolderStores], ids=["folder"])
def stores(request, tmp_path):
    """Creates and opens stores by name."""
    return request.param(tmp_path)
