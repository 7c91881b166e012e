// Sorting and merging of rows, and the lists that buckets give, beside versions that are too simple to be wrong.
#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "../core/buffers.hpp"
#include "../core/code_sharing.hpp"
#include "../core/merge.hpp"
#include "../core/search/lookups.hpp"
#include "../core/search/result_writer.hpp"
#include "../core/search/row_lists.hpp"
#include "../core/segment_builder.hpp"
#include "../kernels/code_kernel.hpp"
#include "check.hpp"
#include "rows.hpp"

namespace {

using namespace hamtarget;
using namespace hamtarget::tests;
using Random = std::mt19937_64;

// Return `count` different rows in ascending runs of any length, some of them empty, and where each run ends.
std::vector<RowNumber> rows_in_runs(Random& random, std::size_t count, std::size_t n_runs,
                                    std::vector<std::uint32_t>& ends) {
    std::set<RowNumber> different;
    const std::uint32_t most = random() % 2 ? 0xFFFFFFFDu : static_cast<std::uint32_t>(2 * count);
    while (different.size() < count) different.insert(row_number(random() % (most + 1ull)));
    std::vector<RowNumber> rows(different.begin(), different.end());
    std::shuffle(rows.begin(), rows.end(), random);
    ends.clear();
    for (std::size_t run = 0; run + 1 < n_runs; ++run)
        ends.push_back(static_cast<std::uint32_t>(random() % (count + 1)));
    ends.push_back(static_cast<std::uint32_t>(count));
    std::sort(ends.begin(), ends.end());
    std::uint32_t start = 0;
    for (const std::uint32_t end : ends) {
        std::sort(rows.begin() + start, rows.begin() + end);
        start = end;
    }
    return rows;
}

void check_sorting(Random& random, const CodeKernel& kernel) {
    const std::size_t counts[] = {0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 64, 100, 1000};
    for (const std::size_t count : counts)
        for (const std::size_t n_runs : {1, 2, 3, 4, 8}) {
            std::vector<std::uint32_t> ends;
            const std::vector<RowNumber> rows = rows_in_runs(random, count, n_runs, ends);
            std::vector<RowNumber> expected = rows;
            std::sort(expected.begin(), expected.end());

            std::vector<RowNumber> merged = rows, room(count + kSortSlack);
            merged.resize(count + kSortSlack);
            const RowNumber* result = merge_runs(merged.data(), room.data(), ends, kernel.merge_rows);
            CHECK(std::equal(expected.begin(), expected.end(), result));

            if (count > kernel.most_sorted) continue;
            std::vector<RowNumber> few = rows;
            std::shuffle(few.begin(), few.end(), random);
            few.resize(count + 2 * kSortSlack);
            if (count) kernel.sort_rows(few.data(), count);
            CHECK(std::equal(expected.begin(), expected.end(), few.begin()));
        }
}

// Entries of excerpts of every length and number, beside their distances one by one.
void check_excerpts(Random& random, const CodeKernel& kernel) {
    const std::size_t n_bytes = 1 + random() % 40, count = random() % 50, size = n_bytes + 4;
    const auto radius = static_cast<Distance>(random() % (6 * n_bytes));
    std::vector<std::uint8_t> wanted(n_bytes), entries(count * size);
    for (std::uint8_t& byte : wanted) byte = static_cast<std::uint8_t>(random());
    for (std::uint8_t& byte : entries) byte = static_cast<std::uint8_t>(random());
    std::vector<std::uint32_t> expected, found(count + kKernelSlack);
    for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t place;
        std::memcpy(&place, entries.data() + i * size + n_bytes, sizeof place);
        if (tests::distance_of(wanted, entries.data() + i * size) <= radius) expected.push_back(place);
    }
    found.resize(kernel.near_excerpts(wanted.data(), n_bytes, entries.data(), count, radius, found.data()));
    CHECK(found == expected);
}

// Rows within the radius that share a substring with the query, by distance.
using Found = std::vector<std::vector<RowNumber>>;

Found naive_lists(const Rows& rows, const std::uint8_t* query, std::size_t radius, std::size_t n_tables) {
    Found found(radius + 1);
    const std::size_t n_bits = 8 * rows.n_bytes;
    for (std::size_t row = 0; row < rows.size(); ++row) {
        const std::uint8_t* code = rows.codes.data() + row * rows.n_bytes;
        const auto differs = [&](std::size_t bit) { return ((code[bit / 8] ^ query[bit / 8]) >> (bit % 8) & 1) != 0; };
        std::size_t distance = 0;
        bool shares = false;
        for (std::size_t bit = 0; bit < n_bits; ++bit) distance += differs(bit);
        for (std::size_t t = 0; t < n_tables; ++t) {
            bool same = true;
            for (std::size_t bit = substring_start(n_bits, n_tables, t); bit < substring_start(n_bits, n_tables, t + 1);
                 ++bit)
                same &= !differs(bit);
            shares |= same;
        }
        if (distance <= radius && shares) found[distance].push_back(row_number(row));
    }
    return found;
}

void check_buckets(Random& random, const CodeKernel& kernel) {
    const std::size_t widths[] = {1, 4, 8, 8, 12, 16, 16, 32, 32, 64};
    const std::size_t n_bytes = widths[random() % std::size(widths)];
    const std::size_t n_tables = 1 + random() % 8;
    const std::size_t radius = random() % std::min<std::size_t>(n_tables, 8);
    Rows rows;
    rows.n_bytes = n_bytes;
    for (std::size_t i = 0; i < kMinTableRows + random() % 1000; ++i)
        rows.push(static_cast<std::int64_t>(i), clustered_code(random, n_bytes), {});
    const Segment segment = build_segment({n_bytes, n_tables, 0}, rows.view(), {});

    std::vector<const Table*> tables;
    for (const Table& table : segment.tables) tables.push_back(&table);
    const std::size_t n_queries = 20;
    std::vector<std::uint8_t> queries;
    for (std::size_t q = 0; q < n_queries; ++q) {
        const auto code = clustered_code(random, n_bytes);
        queries.insert(queries.end(), code.begin(), code.end());
    }
    Lookups lookups(tables);
    lookups.start({queries.data(), n_queries, n_bytes});
    RowLists lists;
    const auto room = std::make_unique<KernelRoom>();
    Hits hits;
    for (std::size_t q = 0; q < n_queries; ++q) {
        const std::uint8_t* query = queries.data() + q * n_bytes;
        std::size_t most = 0;
        for (std::size_t j = 0; j < n_tables; ++j) most += lookups.of(q)[j].span.size();
        lists.reset(static_cast<Distance>(radius), most, n_tables);
        kernel.read_buckets(
            {query, n_bytes, static_cast<Distance>(radius), segment.tables.data(), n_tables, lookups.of(q),
             lookups.later(q, 0)}, *room,
            lists.view());
        Work work(nullptr);
        if (!segment.shared.empty()) lists.take_rows(segment.shared, kernel, work);
        most = 0;
        for (std::size_t distance = 0; distance <= radius; ++distance) most += lists.size(distance);
        // With fewer than radius + 1 tables some rows share no substring, and are not in any list.
        const Found expected = naive_lists(rows, query, radius, n_tables);
        const std::size_t first = hits.ids.size();
        ResultWriter writer(kernel, segment.ids, hits, most);
        for (std::size_t distance = 0; distance <= radius; ++distance) {
            const auto found = lists.sorted(distance, kernel);
            CHECK(std::equal(found.begin(), found.end(), expected[distance].begin(), expected[distance].end()));
            writer.write(found, static_cast<Distance>(distance));
        }
        writer.finish();
        std::size_t at = first;
        for (std::size_t distance = 0; distance <= radius; ++distance)
            for (const RowNumber row : expected[distance]) {
                CHECK(hits.ids[at] == static_cast<Id>(raw(row)) && hits.distances[at] == distance);
                ++at;
            }
        CHECK(at == hits.ids.size() && at == hits.distances.size());
    }
}

// Blocks come back, none is given out twice, and the pool keeps no more than it may.
void check_buffers() {
    BufferPool pool;
    std::size_t small = 100;
    void* first = pool.take(small);
    pool.give(first, small);
    std::size_t n_bytes = 3 * kHugePage;
    void* large = pool.take(n_bytes);
    pool.give(large, n_bytes);
    std::size_t similar = 2 * kHugePage;
    void* again = pool.take(similar);
    std::size_t other_bytes = 2 * kHugePage;
    void* other = pool.take(other_bytes);
    CHECK(again != other);
#if defined(__linux__) && defined(MADV_FREE)
    CHECK(again == large && similar == 3 * kHugePage);
    pool.give(again, similar);
    std::size_t far_smaller = kHugePage / 2;
    void* fresh = pool.take(far_smaller);
    CHECK(fresh != large && far_smaller == kHugePage / 2);
    pool.give(fresh, far_smaller);
#else
    pool.give(again, similar);
#endif
    pool.give(other, other_bytes);
    CHECK(pool.held() <= BufferPool::kMostBytes);
    std::vector<std::pair<void*, std::size_t>> many;
    for (int i = 0; i < 40; ++i) {
        std::size_t size = 10 * kHugePage;
        many.emplace_back(pool.take(size), size);
    }
    for (const auto& [memory, size] : many) {
        pool.give(memory, size);
        CHECK(pool.held() <= BufferPool::kMostBytes);
    }
    pool.clear();
    CHECK(pool.held() == 0);
}

// Rows with equal codes are found, whatever the codes are.
void check_sharing(Random& random) {
    const std::size_t widths[] = {1, 3, 8, 9, 32};
    const std::size_t n_bytes = widths[random() % std::size(widths)], n_rows = 1 + random() % 5000;
    const std::size_t n_different = 1 + random() % n_rows;
    std::vector<std::vector<std::uint8_t>> codes(n_different, std::vector<std::uint8_t>(n_bytes));
    for (auto& code : codes)
        for (auto& byte : code) byte = static_cast<std::uint8_t>(random());
    std::vector<std::size_t> drawn(n_rows);
    for (auto& number : drawn) number = random() % n_different;
    const auto code_of = [&](std::size_t row) { return codes[drawn[row]].data(); };
    const CodeSharing found = share_codes(n_rows, n_bytes, code_of);
    std::map<std::vector<std::uint8_t>, std::vector<std::uint32_t>> expected;
    for (std::uint32_t row = 0; row < n_rows; ++row) expected[codes[drawn[row]]].push_back(row);
    CHECK(found.first_rows.size() == expected.size() && found.numbers.size() == expected.size());
    CHECK(std::is_sorted(found.first_rows.begin(), found.first_rows.end()));
    for (std::size_t code = 0; code < found.numbers.size(); ++code) {
        const auto rows = found.shared.list(found.numbers[code]);
        const auto& wanted = expected[codes[drawn[found.first_rows[code]]]];
        CHECK(std::equal(rows.begin(), rows.end(), wanted.begin(), wanted.end()) && rows[0] == found.first_rows[code]);
    }
}

// A sample tells codes that repeat from codes that do not, and finds the one that many rows have.
void check_sample(Random& random) {
    constexpr std::size_t kRows = 100'000;
    std::vector<std::uint64_t> codes(kRows);
    const auto sampled = [&] { return repeats({reinterpret_cast<const std::uint8_t*>(codes.data()), kRows, 8}); };
    for (auto& code : codes) code = random();
    CHECK(!sampled());
    for (std::size_t i = 0; i < kRows; ++i) codes[i] = codes[i / 2 * 2];
    CHECK(sampled());
    for (auto& code : codes) code = random() % 2 ? random() : 77;
    CHECK(sampled());
}

}  // namespace

int main() {
    Random random(7);
    for (int i = 0; i < 30; ++i) check_sharing(random);
    check_sample(random);
    for (const CodeKernel* kernel : supported_kernels()) {
        for (int i = 0; i < 20; ++i) check_sorting(random, *kernel);
        for (int i = 0; i < 30; ++i) check_buckets(random, *kernel);
        for (int i = 0; i < 1000; ++i) check_excerpts(random, *kernel);
    }
    check_buffers();
    std::printf("lists: ok\n");
}
