"""Costs of searches: quick ones are told from slow ones, and slow ones are cut into parts."""

from hamtarget.serve.lanes.cost_book import CostBook, Slices


def test_costs_follow_what_was_seen():
    book = CostBook()
    assert book.expected("kind", 5) is None
    book.saw("kind", 100, 0.01)
    assert book.expected("kind", 1000) == 0.1
    # At least as long as the quickest call of the kind.
    assert book.expected("kind", 1) == 0.01
    for _ in range(20):
        book.saw("kind", 1, 0.001)
    assert abs(book.expected("kind", 1) - 0.001) < 1e-4


def test_large_batches_do_not_make_a_small_search_slow():
    book = CostBook()
    for _ in range(5):
        book.saw("kind", 1, 0.0002)
    for _ in range(50):
        book.saw("kind", 2000, 0.1)
    assert book.expected("kind", 1) < 0.0004
    assert book.expected("kind", 2000) > 0.09


def test_searches_that_take_as_long_for_one_query_as_for_many_are_known():
    book = CostBook()
    book.saw("kind", 100, 0.05)
    book.saw("kind", 10, 0.05)
    assert book.expected("kind", 1) >= 0.05


def test_a_moment_of_a_busy_machine_changes_little():
    book = CostBook()
    for _ in range(5):
        book.saw("kind", 1, 0.001)
    book.saw("kind", 1, 1.0)
    assert book.expected("kind", 1) < 0.002
    for _ in range(30):
        book.saw("kind", 1, 1.0)
    assert book.expected("kind", 1) > 0.9


def test_a_search_that_was_given_up_is_slow_from_now_on():
    book = CostBook()
    book.saw("kind", 1, 0.0001)
    book.gave_up("kind", 0.02)
    assert book.expected("kind", 1) == 0.02


def test_the_book_has_an_end():
    book = CostBook()
    for kind in range(5000):
        book.saw(kind, 1, 1.0)
    assert sum(book.expected(kind, 1) is not None for kind in range(5000)) == 1024


def parts(n_queries, fixed, each, known=None):
    """Seconds of the parts into which a search is cut."""
    slices = Slices(0.1, known)
    took = []
    done = 0
    while done < n_queries:
        size = min(slices.size, n_queries - done)
        took.append(fixed + each * size)
        slices.took(size, took[-1])
        done += size
    return took


def test_parts_take_a_turn_each():
    took = parts(100_000, 0.0, 0.0001)
    assert max(took) < 0.16
    assert len(took) < 130


def test_parts_that_take_long_anyway_are_large():
    took = parts(8192, 0.3, 0.0001)
    assert sum(took) < 3 * (0.3 + 8192 * 0.0001)


def test_a_known_cost_makes_the_first_part_fit():
    assert len(parts(1000, 0.0, 0.00001, known=0.00001)) == 1
    assert parts(1000, 0.0, 0.05, known=0.05)[0] < 0.11
