// Work on codes in plain C++, compiled once for each instruction set. inline.hpp says why this namespace has no name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "code_kernel.hpp"
#include "merge_two.hpp"

namespace hamtarget {

namespace {

// Runs are far apart in memory: while one is read, so many later ones are being fetched.
constexpr std::size_t kRunsAhead = 12;

HAMTARGET_INLINE void prefetch_run(const RowRun* runs, std::size_t n_runs, std::size_t i, std::size_t n_bytes) {
    if (i >= n_runs) return;
    prefetch_bytes(runs[i].codes, runs[i].count * n_bytes);
    prefetch_bytes(runs[i].rows, runs[i].count * sizeof *runs[i].rows);
}

template <class Word>
HAMTARGET_INLINE unsigned word_distance(const std::uint8_t* left, const std::uint8_t* right) {
    Word a, b;
    std::memcpy(&a, left, sizeof a);
    std::memcpy(&b, right, sizeof b);
    const auto differing = static_cast<Word>(a ^ b);
    return static_cast<unsigned>(sizeof(Word) == 8 ? __builtin_popcountll(differing)
                                                   : __builtin_popcount(static_cast<unsigned>(differing)));
}

HAMTARGET_INLINE unsigned code_distance(const std::uint8_t* left, const std::uint8_t* right, std::size_t n_bytes) {
    unsigned distance = 0;
    std::size_t at = 0;
    for (; at + 8 <= n_bytes; at += 8) distance += word_distance<std::uint64_t>(left + at, right + at);
    if (n_bytes & 4) distance += word_distance<std::uint32_t>(left + at, right + at), at += 4;
    if (n_bytes & 2) distance += word_distance<std::uint16_t>(left + at, right + at), at += 2;
    if (n_bytes & 1) distance += word_distance<std::uint8_t>(left + at, right + at);
    return distance;
}

HAMTARGET_INLINE void word_distances(const std::uint8_t* query, Codes rows, Distance* result) {
    const auto each_row = [&](std::size_t n_bytes) __attribute__((always_inline)) {
        for (std::size_t i = 0; i < rows.n_rows; ++i)
            result[i] = static_cast<Distance>(code_distance(query, rows.bytes + i * n_bytes, n_bytes));
    };
    // A length that the compiler knows needs no loop over words.
    switch (rows.n_bytes) {
        case 4: return each_row(4);
        case 8: return each_row(8);
        case 16: return each_row(16);
        case 32: return each_row(32);
        default: return each_row(rows.n_bytes);
    }
}

// CodeKernel::within for kernels that have nothing better: all distances, then those that are small enough.
template <void (*distances_to)(const std::uint8_t*, Codes, Distance*)>
std::size_t within_by_distances(const std::uint8_t* query, Codes rows, Distance radius, std::uint32_t* positions,
                                Distance* distances) {
    // Hits are rare: one test passes over a group of rows that has none.
    constexpr std::size_t kGroup = 16;
    Distance all[kBlockRows];
    distances_to(query, rows, all);
    std::size_t count = 0;
    for (std::size_t start = 0; start < rows.n_rows; start += kGroup) {
        const std::size_t stop = smaller(start + kGroup, rows.n_rows);
        if (stop - start == kGroup) {
            std::uint16_t any = 0;
            for (std::size_t i = start; i < start + kGroup; ++i) any |= static_cast<std::uint16_t>(all[i] <= radius);
            if (!any) continue;
        }
        for (std::size_t i = start; i < stop; ++i) {
            positions[count] = static_cast<std::uint32_t>(i);
            distances[count] = all[i];
            count += all[i] <= radius;
        }
    }
    return count;
}

// CodeKernel::near_excerpts, an entry at a time.
[[maybe_unused]] std::size_t near_excerpts_one_by_one(const std::uint8_t* wanted, std::size_t n_bytes,
                                                      const std::uint8_t* entries, std::size_t count, Distance radius,
                                                      std::uint32_t* places) {
    const auto each_entry = [&](std::size_t length) __attribute__((always_inline)) {
        const std::size_t size = length + sizeof(std::uint32_t);
        std::size_t found = 0;
        for (std::size_t i = 0; i < count; ++i) {
            std::memcpy(places + found, entries + i * size + length, sizeof *places);
            found += code_distance(wanted, entries + i * size, length) <= radius;
        }
        return found;
    };
    // A length that the compiler knows needs no loop over words.
    switch (n_bytes) {
        case 8: return each_entry(8);
        case 10: return each_entry(10);
        case 12: return each_entry(12);
        default: return each_entry(n_bytes);
    }
}

// CodeKernel::within_places, a row at a time.
[[maybe_unused]] std::size_t within_places_one_by_one(const std::uint8_t* query, Codes rows,
                                                      const std::uint32_t* places, std::size_t count, Distance radius,
                                                      std::uint32_t* positions, Distance* distances) {
    const auto each_place = [&](std::size_t n_bytes) __attribute__((always_inline)) {
        std::size_t found = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t place = smaller<std::size_t>(places[i], rows.n_rows - 1);
            const unsigned distance = code_distance(query, rows.bytes + place * n_bytes, n_bytes);
            positions[found] = static_cast<std::uint32_t>(i);
            distances[found] = static_cast<Distance>(distance);
            found += distance <= radius;
        }
        return found;
    };
    // A length that the compiler knows needs no loop over words.
    switch (rows.n_bytes) {
        case 16: return each_place(16);
        case 32: return each_place(32);
        case 128: return each_place(128);
        default: return each_place(rows.n_bytes);
    }
}

// Tell whether this table is the first whose substring the code shares with the query.
//
// To share the bucket number is not enough: it would have to be folded for every row and table, where comparing
// substrings takes one instruction.
HAMTARGET_INLINE bool is_first(const OwnBuckets& buckets, std::size_t table, const std::uint8_t* code) {
    for (std::size_t j = 0; j <= table; ++j) {
        const KeyBits& key = buckets.tables[j].key;
        if (key.substring_of(code) == key.substring_of(buckets.query)) return j == table;
    }
    return false;
}

// CodeKernel::read_buckets by the rows that `within` finds.
template <std::size_t (*within)(const std::uint8_t*, Codes, Distance, std::uint32_t*, Distance*)>
void read_buckets_by_within(const OwnBuckets& buckets, KernelRoom& room, const RowListsView& lists) {
    RowNumber* ends[kMostLists];
    for (std::size_t d = 0; d < lists.n_lists; ++d) ends[d] = lists.list(d);
    for (std::size_t table = 0; table < buckets.n_tables; ++table) {
        buckets.fetch_later(table);
        const Codes codes = buckets.codes(table);
        for (std::size_t start = 0; start < codes.n_rows; start += kBlockRows) {
            const Codes block = codes.slice(start, smaller(kBlockRows, codes.n_rows - start));
            const std::size_t count = within(buckets.query, block, buckets.radius, room.positions, room.distances);
            for (std::size_t i = 0; i < count; ++i) {
                RowNumber*& end = ends[room.distances[i]];
                *end = buckets.rows(table)[start + room.positions[i]];
                end += is_first(buckets, table, block.row(room.positions[i]));
            }
        }
        for (std::size_t d = 0; d < lists.n_lists; ++d) lists.end_run(table, d, ends[d]);
    }
}

// CodeKernel::filter_rows by the rows that `within` finds.
template <std::size_t (*within)(const std::uint8_t*, Codes, Distance, std::uint32_t*, Distance*)>
std::size_t filter_rows_by_within(const RowFilter& filter, const RowRun* runs, std::size_t n_runs, KernelRoom& room,
                                  Hit* hits, Asymmetric* distances) {
    std::size_t found = 0;
    for (std::size_t r = 0; r < n_runs; ++r) {
        prefetch_run(runs, n_runs, r + kRunsAhead, filter.n_bytes);
        const Codes codes{runs[r].codes, runs[r].count, filter.n_bytes};
        for (std::size_t start = 0; start < codes.n_rows; start += kBlockRows) {
            const Codes block = codes.slice(start, smaller(kBlockRows, codes.n_rows - start));
            const std::size_t count = within(filter.query, block, filter.radius, room.positions, room.distances);
            for (std::size_t i = 0; i < count; ++i, ++found) {
                hits[found] = hit_of(room.distances[i], runs[r].part, runs[r].rows[start + room.positions[i]]);
                if (filter.asymmetric) distances[found] = (*filter.asymmetric)(block.row(room.positions[i]));
            }
        }
    }
    return found;
}

[[maybe_unused]] void merge_rows_one_by_one(const RowNumber* left, const RowNumber* middle, const RowNumber* end,
                                            RowNumber* to) {
    merge_two(left, middle, middle, end, to, [](RowNumber row) __attribute__((always_inline)) { return raw(row); });
}

[[maybe_unused]] void write_rows_one_by_one(const RowNumber* rows, std::size_t count, Id base, Distance distance,
                                            Id* ids, Distance* distances) {
    for (std::size_t i = 0; i < count; ++i) ids[i] = base + static_cast<Id>(raw(rows[i]));
    for (std::size_t i = 0; i < count; ++i) distances[i] = distance;
}

[[maybe_unused]] std::size_t between_one_by_one(const Asymmetric* distances, std::size_t count, Asymmetric first,
                                                Asymmetric last, std::uint32_t* positions) {
    std::size_t found = 0;
    for (std::size_t i = 0; i < count; ++i) {
        positions[found] = static_cast<std::uint32_t>(i);
        found += distances[i] >= first && distances[i] <= last;
    }
    return found;
}

// A kernel of which only the distances are special.
template <void (*distances_to)(const std::uint8_t*, Codes, Distance*)>
constexpr CodeKernel code_kernel_by_distances(const char* name) {
    return {.name = name,
            .distances = distances_to,
            .within = within_by_distances<distances_to>,
            .near_excerpts = near_excerpts_one_by_one,
            .within_places = within_places_one_by_one,
            .read_buckets = read_buckets_by_within<within_by_distances<distances_to>>,
            .most_sorted = 0,
            .sort_rows = nullptr,
            .merge_rows = merge_rows_one_by_one,
            .write_rows = write_rows_one_by_one,
            .filter_rows = filter_rows_by_within<within_by_distances<distances_to>>,
            .between = between_one_by_one};
}

}  // namespace

}  // namespace hamtarget
