"""Texts as queries and items of a service, by HTTP and by the client."""

import pytest
from services import service

from hamtarget import Store, open_encoder
from hamtarget.items import Item

TEXTS = ["the quick brown fox jumps over the lazy dog", "a text about taxes and forms and nothing else at all"]


@pytest.fixture
def texts(tmp_path):
    """A service of texts that can be changed."""
    store = Store.create(tmp_path / "store", encoder=open_encoder("simhash64"), durability="os")
    store.put_rows(["fox", "tax"], inputs=TEXTS, payloads=[{"n": 1}, {"n": 2}])
    with service(store, writable=True) as call:
        yield call


def ids(answer):
    assert answer.status == 200, answer.body
    return [hit["id"] for hit in answer.json["hits"]]


def test_a_text_is_a_query(texts):
    assert ids(texts.post("/v1/search", {"text": "The quick BROWN fox jumps over the lazy dog!"})) == ["fox"]
    assert ids(texts.post("/v1/nearest", {"text": TEXTS[1], "k": 1})) == ["tax"]
    assert texts("GET", "/v1/stats").json["input_shape"] == []


def test_a_text_is_an_item(texts):
    answer = texts("PUT", "/v1/items", {"items": [{"id": "new", "text": "entirely new words in a row here"}]})
    assert answer.status == 200, answer.body
    assert ids(texts.post("/v1/search", {"text": "entirely NEW words in a row here"})) == ["new"]


def test_many_texts_are_queries(texts):
    answer = texts.post("/v1/search/batch", {"texts": TEXTS})
    assert answer.status == 200, answer.body
    assert answer.json["ids"] == ["fox", "tax"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"text": "a", "code": "00" * 8}, "give one of"),
        ({"vector": [1.0]}, "takes texts"),
        ({"text": ""}, "at least 1 character"),
        ({"text": 3}, "valid string"),
    ],
)
def test_other_queries_are_refused(texts, body, said):
    answer = texts.post("/v1/search", body)
    assert answer.status == 422
    assert said in answer.json["error"]["message"]


def test_a_text_is_refused_by_a_store_of_vectors(writable):
    answer = writable.post("/v1/search", {"text": "a text"})
    assert answer.status == 422
    assert "a text is given" in answer.json["error"]["message"]


def test_the_client_sends_texts(texts, kind):
    with kind(texts.address) as client:
        assert [hit.id for hit in client.search("the QUICK brown fox jumps over the lazy dog")] == ["fox"]
        client.put([Item("new", input="entirely new words in a row here")])
        batch = client.search_batch([TEXTS[1], "entirely new words in a row here"])
        assert [[hit.id for hit in hits] for hits in batch] == [["tax"], ["new"]]
