// Readers go on while one writer changes the index: each search sees one version, whole.
//
// What a version holds is known by a rule (all codes equal, ids without a gap, rows in whole batches): a reader that
// sees a mixture of two versions sees the rule broken.
#include <atomic>
#include <cstdio>
#include <thread>

#include "../core/search/search.hpp"
#include "../file/index_file.hpp"
#include "rows.hpp"

namespace {

using namespace hamtarget;
using namespace hamtarget::tests;

constexpr std::size_t kBytes = 8;

Request request_for(const std::vector<std::uint8_t>& query) {
    Request request;
    request.queries = {query.data(), query.size() / kBytes, kBytes};
    request.radius = 2;
    return request;
}

// All merges are left to the thread of the index.
constexpr MergePolicy kEager = {.writer_rows = 0, .young_share = 4, .most_parts = 8};

MultiIndex& fresh(std::unique_ptr<MultiIndex>& index, const MergePolicy& policy) {
    index = std::make_unique<MultiIndex>(Layout{kBytes, 3, 0}, 2, EmbeddingKind{}, best_kernel(), policy);
    return *index;
}

// Run `write` in this thread while `read` runs again and again in others.
template <class Write, class Read>
void at_once(Write write, Read read) {
    std::atomic<bool> done = false;
    std::atomic<std::size_t> n_reads = 0;
    std::vector<std::thread> readers;
    for (int i = 0; i < 3; ++i)
        readers.emplace_back([&] {
            while (!done) read(), ++n_reads;
        });
    write();
    // A reader that came late reads what is left at the end.
    while (n_reads < 10) std::this_thread::yield();
    done = true;
    for (std::thread& reader : readers) reader.join();
}

// `replace` of all rows at once, in a delta and in segments: the codes of one version, never of two.
void replacing(std::size_t n_rows, int n_versions, const MergePolicy& policy) {
    std::unique_ptr<MultiIndex> owner;
    MultiIndex& index = fresh(owner, policy);
    Rows rows;
    rows.n_bytes = kBytes;
    const std::vector<std::uint8_t> zeros_code(kBytes);
    for (std::size_t i = 0; i < n_rows; ++i) rows.push(static_cast<std::int64_t>(i), zeros_code, {});
    index.add(rows.view());
    const auto code_of = [](int version) { return static_cast<std::uint8_t>(version % 2 ? 0xFF : 0x00); };
    std::vector<std::uint8_t> queries(2 * kBytes);
    std::fill(queries.begin() + kBytes, queries.end(), std::uint8_t{0xFF});
    at_once(
        [&] {
            for (int version = 1; version <= n_versions; ++version) {
                std::fill(rows.codes.begin(), rows.codes.end(), code_of(version));
                index.replace(rows.view());
            }
        },
        [&] {
            const Hits hits = search(index, request_for(queries), 1);
            const auto zeros = static_cast<std::size_t>(hits.offsets[1]);
            CHECK(hits.ids.size() == n_rows);
            CHECK(zeros == 0 || zeros == n_rows);
            for (std::size_t i = 0; i < n_rows; ++i) CHECK(hits.ids[i] == static_cast<std::int64_t>(i));
            CHECK(index.manifest()->n_live() == n_rows);
        });
}

// One row at a time, so that rows arrive in a delta that is being searched: what was added stays, in order.
void growing_and_shrinking(std::size_t n_rows, const MergePolicy& policy) {
    std::unique_ptr<MultiIndex> owner;
    MultiIndex& index = fresh(owner, policy);
    const std::vector<std::uint8_t> code(kBytes, 0x5A);
    std::atomic<std::int64_t> added = 0, erased = 0;
    const auto check = [&] {
        const std::int64_t erased_before = erased, added_before = added;
        const Hits hits = search(index, request_for(code), 1);
        const std::int64_t erased_after = erased + 1, added_after = added + 1;
        const std::size_t count = hits.ids.size();
        for (std::size_t i = 1; i < count; ++i) CHECK(hits.ids[i] == hits.ids[i - 1] + 1);
        if (count == 0) {
            CHECK(added_before <= erased_after);
            return;
        }
        CHECK(erased_before <= hits.ids[0] && hits.ids[0] <= erased_after);
        const std::int64_t last = hits.ids[count - 1];
        CHECK(added_before <= last + 1 && last < added_after);
    };
    at_once(
        [&] {
            Rows row;
            row.n_bytes = kBytes;
            row.push(0, code, {});
            for (std::size_t i = 0; i < n_rows; ++i) {
                row.ids[0] = static_cast<std::int64_t>(i);
                index.add(row.view());
                ++added;
                if (i % 3 == 2) {
                    const std::int64_t oldest = erased;
                    index.erase(&oldest, 1);
                    ++erased;
                }
                if (i % 1500 == 1499) index.compact();
            }
        },
        check);
    check();
}

// Saving, reading and searching in several threads while rows come in.
void saving(int n_batches, const MergePolicy& policy) {
    std::unique_ptr<MultiIndex> owner;
    MultiIndex& index = fresh(owner, policy);
    const Folder folder;
    const std::vector<std::uint8_t> code(kBytes, 0x5A);
    constexpr std::size_t kBatch = 400;
    std::atomic<int> n_files = 0;
    at_once(
        [&] {
            for (int batch = 0; batch < n_batches; ++batch) {
                Rows rows;
                rows.n_bytes = kBytes;
                for (std::size_t i = 0; i < kBatch; ++i)
                    rows.push(static_cast<std::int64_t>(static_cast<std::size_t>(batch) * kBatch + i), code, {});
                index.add(rows.view());
            }
        },
        [&] {
            const auto path = folder / std::to_string(n_files++ % 5).c_str();
            save_index(index, path);
            const auto opened = open_index(path, SnapshotFile::Access::map, SnapshotFile::Check::all, best_kernel());
            CHECK(opened->manifest()->n_live() % kBatch == 0);
            const Hits hits = search(*opened, request_for(code), 2);
            CHECK(hits.ids.size() % kBatch == 0);
            CHECK(index.contains(0) || hits.ids.size() == 0);
        });
}

}  // namespace

int main() {
    for (const MergePolicy& policy : {MergePolicy{}, kEager}) {
        replacing(100, 400, policy);
        replacing(3000, 60, policy);
        growing_and_shrinking(6000, policy);
        saving(30, policy);
    }
    std::puts("index_threads: ok");
}
