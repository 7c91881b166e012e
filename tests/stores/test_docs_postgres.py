"""The examples of the pages on PostgreSQL run against a server (tests/page_examples.py)."""

import pytest

from page_examples import name, pages_that_need, run_page


@pytest.mark.parametrize("page", pages_that_need("postgres"), ids=name)
def test_examples_in_postgresql_run(page, postgres_stores):
    shown = "postgresql://me@db.example/pictures?store=covers"
    assert shown in page.read_text()
    run_page(page, "postgres", change=lambda text: text.replace(shown, postgres_stores.place("covers")))
