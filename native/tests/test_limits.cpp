// Limits: exact counts, deadlines, cancelling, several threads; and large results, which are sorted in pieces.
#include <atomic>
#include <cstdio>
#include <thread>

#include "../core/limits.hpp"
#include "../core/search/search.hpp"
#include "rows.hpp"

namespace {

using namespace hamtarget;
using namespace hamtarget::tests;
using Random = std::mt19937_64;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBytes = 8;
constexpr std::uint64_t kMuch = Limits::kUnlimited;

// Return the limit that ends the work, or nothing.
template <class Work_>
std::string reached(Work_ work) {
    try {
        work();
    } catch (const LimitReached& failure) {
        return failure.limit;
    }
    return "";
}

void counting() {
    Limits limits(Limits::kForever, 10, 20, 30);
    limits.take(10, 20, 30);
    limits.check();
    limits.take(0, 0, 0);
    CHECK(reached([&] { limits.take(1, 0, 0); }) == "rows");
    // From now on, every thread that asks is told.
    CHECK(reached([&] { limits.take(0, 0, 0); }) == "rows");
    Limits huge(Limits::kForever, kMuch - 1, kMuch, kMuch);
    for (int i = 0; i < 9; ++i) CHECK(reached([&] { huge.take(~std::uint64_t{0}, 0, 0); }) == "rows");
    Limits hits(Limits::kForever, kMuch, 0, kMuch);
    CHECK(reached([&] { hits.take(5, 0, 0); }).empty());
    CHECK(reached([&] { hits.take(0, 1, 0); }) == "hits");
    Limits given_back(Limits::kForever, 5, 5, kMuch);
    given_back.take(5, 4);
    given_back.give_back(5, 4);
    given_back.take(5, 5);
    CHECK(reached([&] { given_back.take(1, 0); }) == "rows");
    Limits parent(Limits::kForever, 3, 0, kMuch);
    Limits without_hits(&parent);
    without_hits.take(3, 100);
    CHECK(reached([&] { without_hits.take(1, 0); }) == "rows");
    parent.cancel();
    CHECK(reached([&] { without_hits.check(); }) == "cancelled");
    CHECK(reached([&] { Limits(0, kMuch, kMuch, kMuch).check(); }) == "seconds");
    CHECK(reached([&] { Limits(1000, kMuch, kMuch, kMuch).check(); }).empty());
}

// Build an index of several parts: segments, a delta, deleted rows.
std::unique_ptr<MultiIndex> new_index(std::size_t n_tables, std::vector<std::size_t> batches) {
    auto index = std::make_unique<MultiIndex>(Layout{kBytes, n_tables, 0}, 2, EmbeddingKind{}, best_kernel());
    Random random(n_tables);
    std::int64_t id = 0;
    for (const std::size_t count : batches) {
        Rows rows;
        rows.n_bytes = kBytes;
        for (std::size_t i = 0; i < count; ++i) {
            std::vector<std::uint8_t> code(kBytes);
            for (std::uint8_t& byte : code) byte = static_cast<std::uint8_t>(random());
            rows.push(id += 3, code, {});
        }
        index->add(rows.view());
    }
    const auto ids = index->ids();
    index->erase(ids.data() + ids.size() / 3, ids.size() / 10);
    return index;
}

struct Totals {
    std::uint64_t rows = 0, hits = 0;
};

Totals totals_of(const Hits& hits) {
    Totals totals{0, hits.ids.size()};
    for (std::size_t i = 1; i < hits.costs.size(); i += 3) totals.rows += static_cast<std::uint64_t>(hits.costs[i]);
    return totals;
}

bool same(const Hits& left, const Hits& right) {
    return std::equal(left.ids.data(), left.ids.data() + left.ids.size(), right.ids.data(),
                      right.ids.data() + right.ids.size()) &&
           std::equal(left.distances.data(), left.distances.data() + left.distances.size(), right.distances.data(),
                      right.distances.data() + right.distances.size()) &&
           std::equal(left.offsets.data(), left.offsets.data() + left.offsets.size(), right.offsets.data(),
                      right.offsets.data() + right.offsets.size());
}

// What suffices changes nothing; one less ends the search.
void exact_limits(const MultiIndex& index, Request request) {
    for (const std::size_t n_threads : {1, 2}) {
        request.limits = nullptr;
        const Hits free = search(index, request, n_threads);
        const Totals totals = totals_of(free);
        Limits enough(1000, totals.rows, totals.hits, 0);
        request.limits = &enough;
        CHECK(same(search(index, request, n_threads), free));
        Limits fewer_rows(1000, totals.rows - 1, kMuch, kMuch), fewer_hits(1000, kMuch, totals.hits - 1, kMuch);
        request.limits = &fewer_rows;
        CHECK(!totals.rows || reached([&] { search(index, request, n_threads); }) == "rows");
        request.limits = &fewer_hits;
        CHECK(!totals.hits || reached([&] { search(index, request, n_threads); }) == "hits");
    }
}

// A search that would take minutes ends soon after its deadline, and soon after another thread cancels it.
void endless(const MultiIndex& index, Request request) {
    constexpr auto kSoon = std::chrono::seconds(5);
    for (const std::size_t n_threads : {1, 3}) {
        Limits deadline(0.05, kMuch, kMuch, kMuch);
        request.limits = &deadline;
        auto start = Clock::now();
        CHECK(reached([&] { search(index, request, n_threads); }) == "seconds");
        CHECK(Clock::now() - start < kSoon);
        Limits cancelled(Limits::kForever, kMuch, kMuch, kMuch);
        request.limits = &cancelled;
        std::thread other([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            cancelled.cancel();
        });
        start = Clock::now();
        CHECK(reached([&] { search(index, request, n_threads); }) == "cancelled");
        CHECK(Clock::now() - start < kSoon);
        other.join();
    }
}

}  // namespace

int main() {
    counting();
    Random random(7);
    std::vector<std::uint8_t> queries(4096 * kBytes);
    for (std::uint8_t& byte : queries) byte = static_cast<std::uint8_t>(random());
    std::vector<float> logits(4096 * 8 * kBytes);
    for (float& logit : logits) logit = static_cast<float>(random() % 1000) / 100 - 5;

    const auto parts = new_index(3, {9000, 2500, 40}), flat = new_index(0, {3000}), one = new_index(3, {400'000});
    one->compact();
    std::vector<Id> allowed;
    for (Id id = 0; id < 40'000; id += 2) allowed.push_back(id);
    Request request;
    for (const MultiIndex* index : {parts.get(), flat.get()})
        for (const std::size_t limit : {kNoLimit, std::size_t{7}})
            for (const unsigned radius : {2, 12, 20, 64})
                for (const bool filters : {false, true}) {
                    request.queries = {queries.data(), 90, kBytes};
                    request.radius = static_cast<Distance>(radius);
                    request.limit = limit;
                    request.filter.reset();
                    if (filters) request.filter = Filter(allowed.data(), allowed.size());
                    request.logits = nullptr;
                    exact_limits(*index, request);
                    request.logits = logits.data();
                    request.budget = 300;
                    exact_limits(*index, request);
                }
    // Hundreds of thousands of hits a query, in one segment and in several, are merged and sorted in pieces.
    const auto many = new_index(3, {300'000, 60'000, 10'000, 500});
    request = {};
    request.queries = {queries.data(), 3, kBytes};
    request.radius = 64;
    exact_limits(*one, request);
    exact_limits(*many, request);
    request.limit = 150'000;
    exact_limits(*many, request);
    request.limit = kNoLimit;
    request.logits = logits.data();
    request.budget = 250'000;
    exact_limits(*one, request);
    request.logits = nullptr;

    request.queries = {queries.data(), 4096, kBytes};
    endless(*one, request);
    request.radius = 26;
    request.limit = 100'000;
    endless(*one, request);
    request.logits = logits.data();
    request.limit = kNoLimit;
    endless(*one, request);
    std::printf("limits: ok\n");
}
