// Merging in the background: rows are the same before, while and after parts are merged, whatever happens meanwhile.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <thread>

#include "../core/search/search.hpp"
#include "../core/young_filter.hpp"
#include "rows.hpp"

namespace {

using namespace hamtarget;
using namespace hamtarget::tests;
using Random = std::mt19937_64;

constexpr std::size_t kBytes = 8;
constexpr MergePolicy kEager = {.writer_rows = 0, .young_share = 4, .most_parts = 8};

Rows random_rows(Random& random, std::int64_t first_id, std::size_t count) {
    Rows rows;
    rows.n_bytes = kBytes;
    for (std::size_t i = 0; i < count; ++i)
        rows.push(first_id + static_cast<std::int64_t>(i), clustered_code(random, kBytes), {});
    return rows;
}

std::unique_ptr<MultiIndex> new_index(const MergePolicy& policy = kEager) {
    return std::make_unique<MultiIndex>(Layout{kBytes, 3, 0}, 2, EmbeddingKind{}, best_kernel(), policy);
}

// Each query finds exactly the rows of the model within the radius.
void check_search(const MultiIndex& index, const Model& model, Random& random) {
    std::vector<std::uint8_t> queries;
    for (int q = 0; q < 5; ++q) {
        const auto code = clustered_code(random, kBytes);
        queries.insert(queries.end(), code.begin(), code.end());
    }
    Request request;
    request.queries = {queries.data(), 5, kBytes};
    request.radius = 2;
    const Hits hits = search(index, request, 1);
    for (std::size_t q = 0; q < 5; ++q) {
        std::vector<std::pair<unsigned, std::int64_t>> expected, found;
        for (const auto& [id, row] : model)
            if (const unsigned away = distance_of(row.code, request.queries.row(q)); away <= 2)
                expected.emplace_back(away, id);
        std::sort(expected.begin(), expected.end());
        for (auto i = static_cast<std::size_t>(hits.offsets[q]); i < static_cast<std::size_t>(hits.offsets[q + 1]); ++i)
            found.emplace_back(hits.distances[i], hits.ids[i]);
        CHECK(found == expected);
    }
}

// Rows are added, deleted and replaced while a thread merges all of them again and again.
void changes_during_merges(std::uint64_t seed) {
    Random random(seed);
    const auto index = new_index();
    Model model;
    std::int64_t next = 0;
    for (int step = 0; step < 60; ++step) {
        const Rows rows = random_rows(random, next, 2049 + random() % 500);
        index->add(rows.view());
        next += static_cast<std::int64_t>(rows.size());
        for (std::size_t i = 0; i < rows.size(); ++i)
            model[rows.ids[i]] = {{rows.codes.begin() + static_cast<std::ptrdiff_t>(i * kBytes),
                                   rows.codes.begin() + static_cast<std::ptrdiff_t>((i + 1) * kBytes)},
                                  {}};
        // Now and then, most rows go: also the last row of a part that is being merged.
        const std::size_t share = step % 8 == 7 ? 20 : 1;
        std::vector<std::int64_t> gone;
        for (const auto& [id, row] : model)
            if (random() % 21 < share) gone.push_back(id);
        index->erase(gone.data(), gone.size());
        for (const std::int64_t id : gone) model.erase(id);
        if (step % 5 == 0) check_search(*index, model, random);
    }
    index->settle();
    CHECK(index->manifest()->n_live() == model.size());
    CHECK(due_merge(*index->manifest(), kEager, false).empty());
    check_search(*index, model, random);
    std::vector<std::int64_t> ids;
    for (const auto& [id, row] : model) ids.push_back(id);
    CHECK(index->ids() == ids);
}

// An index may go while its thread is at work.
void destroyed_while_merging() {
    Random random(1);
    for (int i = 0; i < 20; ++i) {
        const auto index = new_index();
        for (std::int64_t k = 0; k < 4; ++k) index->add(random_rows(random, 10'000 * k, 3000).view());
        std::this_thread::sleep_for(std::chrono::microseconds(100 * i));
    }
}

// A child has the rows, and no thread: it merges by itself.
void forked_while_merging() {
#if !defined(__SANITIZE_THREAD__)
    Random random(2);
    const auto index = new_index();
    std::int64_t next = 0;
    for (int i = 0; i < 20; ++i) {
        index->add(random_rows(random, next, 3000).view());
        next += 3000;
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            index->add(random_rows(random, next, 3000).view());
            index->settle();
            index->compact();
            _exit(index->manifest()->n_live() == static_cast<std::size_t>(next + 3000) ? 0 : 1);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    index->settle();
    CHECK(index->manifest()->n_live() == static_cast<std::size_t>(next));
#endif
}

// A filter never refuses a query that has a hit, and refuses most of those that have none.
void filters(std::size_t n_bytes, std::size_t radius) {
    Random random(n_bytes + radius);
    const auto code = [&] {
        std::vector<std::uint8_t> bytes(n_bytes);
        for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
        return bytes;
    };
    constexpr std::size_t kRows = 1000;
    const auto filter = YoungFilter::make(n_bytes, radius, kRows);
    CHECK(filter && filter->serves(radius) && !filter->serves(radius + 1));
    std::vector<std::uint8_t> rows, near, far;
    for (std::size_t i = 0; i < kRows; ++i) {
        const auto row = code();
        rows.insert(rows.end(), row.begin(), row.end());
        auto query = row;
        for (std::size_t flip = 0; flip < radius; ++flip) {
            const std::size_t bit = random() % (8 * n_bytes);
            query[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
        }
        near.insert(near.end(), query.begin(), query.end());
        const auto other = code();
        far.insert(far.end(), other.begin(), other.end());
    }
    filter->add({rows.data(), kRows, n_bytes});
    CHECK(!filter->is_full());
    std::vector<std::uint32_t> selected;
    filter->select({near.data(), kRows, n_bytes}, selected);
    CHECK(selected.size() == kRows);
    filter->select({far.data(), kRows, n_bytes}, selected);
    CHECK(selected.size() < kRows / 2);
    filter->add({rows.data(), 1, n_bytes});
    CHECK(filter->is_full());
}

// Inserted hits stand where sorting would put them.
void inserted_hits(std::uint64_t seed) {
    Random random(seed);
    using Found = std::vector<std::pair<Distance, Id>>;
    const auto write = [](Found& found, Hits& hits) {
        std::sort(found.begin(), found.end());
        for (const auto& [distance, id] : found) hits.distances.push(distance), hits.ids.push(id);
        hits.end_query({1, 2, 3});
    };
    Hits hits, others;
    std::vector<Found> expected;
    std::vector<std::uint32_t> queries;
    for (std::uint32_t q = 0; q < 30; ++q) {
        Found own(random() % 6), more(random() % 4);
        for (auto& hit : own) hit = {random() % 3, static_cast<Id>(2 * (random() % 50))};
        for (auto& hit : more) hit = {random() % 3, static_cast<Id>(2 * (random() % 50) + 1)};
        write(own, hits);
        if (random() % 2) {
            queries.push_back(q);
            write(more, others);
            own.insert(own.end(), more.begin(), more.end());
            std::sort(own.begin(), own.end());
        }
        expected.push_back(own);
    }
    hits.insert(others, queries);
    std::size_t n_hits = 0;
    for (std::size_t q = 0; q < 30; ++q) {
        Found found;
        for (auto i = static_cast<std::size_t>(hits.offsets[q]); i < static_cast<std::size_t>(hits.offsets[q + 1]); ++i)
            found.emplace_back(hits.distances[i], hits.ids[i]);
        CHECK(found == expected[q]);
        n_hits += found.size();
        const bool twice = std::find(queries.begin(), queries.end(), q) != queries.end();
        CHECK(hits.costs[3 * q] == (twice ? 2 : 1) && hits.costs[3 * q + 2] == (twice ? 6 : 3));
    }
    CHECK(hits.ids.size() == n_hits && hits.distances.size() == n_hits);
}

}  // namespace

int main() {
    for (std::uint64_t seed = 0; seed < 200; ++seed) inserted_hits(seed);
    for (const auto& [n_bytes, radius] : {std::pair{8, 2}, {8, 3}, {16, 4}, {32, 7}, {9, 0}})
        filters(static_cast<std::size_t>(n_bytes), static_cast<std::size_t>(radius));
    CHECK(!YoungFilter::make(32, 31, 1000));
    forked_while_merging();
    for (std::uint64_t seed = 0; seed < 3; ++seed) changes_during_merges(seed);
    destroyed_while_merging();
    std::puts("merging: ok");
}
