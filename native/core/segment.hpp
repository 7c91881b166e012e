// Segments: rows that no longer change, and the tables that find them by substring.
//
// Rows are numbered in the order of their ids. So consecutive ids need no memory, hits are sorted by their row numbers,
// and rows ascend within a bucket: hits of a bucket come out in order. Codes are not stored by row: the first table
// has them all, and the place of each row is worked out when a caller asks for codes by row, which no search does.
// Where many rows share their codes, tables have each code once, and the numbers of codes in the place of rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "../kernels/tables.hpp"
#include "array.hpp"
#include "shared_codes.hpp"

namespace hamtarget {

// Fewer rows are scanned as fast as buckets are looked up.
inline constexpr std::size_t kMinTableRows = 2048;

// How a code is cut, and what is kept with it. The same for all rows of an index.
struct Layout {
    std::size_t n_bytes = 0;          // of a code
    std::size_t n_tables = 0;         // substrings; 0: every search scans
    std::size_t embedding_bytes = 0;  // of a row; 0: none
    // Each segment has the number of tables that suits its rows (table_plan.hpp) instead of n_tables.
    bool is_planned = false;
    std::size_t radius = 0;         // that a plan is made for
    std::size_t excerpt_bytes = 0;  // in the tables, where there is no plan (TablePlan)

    friend bool operator==(const Layout&, const Layout&) = default;
};

// Return the first bit of substring `index` of `count` (count itself: past the last). The longer ones come first.
// This is the same cut as hamtarget.codes.substring_bounds.
inline std::size_t substring_start(std::size_t n_bits, std::size_t count, std::size_t index) {
    return index * (n_bits / count) + std::min(index, n_bits % count);
}

// Return which bytes stand in a table of excerpts: they begin after the substring.
inline Excerpts excerpts_of(const KeyBits& key, std::size_t excerpt_bytes, std::size_t n_bytes) {
    const std::size_t after = (key.start() + key.width() + 7) / 8;
    return {nullptr, static_cast<std::uint32_t>(excerpt_bytes), static_cast<std::uint32_t>(after % n_bytes),
            after - key.start() / 8 + excerpt_bytes <= n_bytes};
}

// Return the rows in the bucket of a stored row, on average. A few of the buckets are read where there are more than
// `most_read`: 16 pieces of them, from all over the table.
inline double mean_bucket(const Table& table, std::size_t most_read = std::numeric_limits<std::size_t>::max()) {
    constexpr std::size_t kPieces = 16;
    const std::size_t n_buckets = table.n_offsets() - 1;
    const std::size_t step = n_buckets > most_read ? n_buckets / kPieces : n_buckets;
    const std::size_t piece = n_buckets > most_read ? most_read / kPieces : n_buckets;
    double squares = 0, rows = 0;
    for (std::size_t start = 0; start < n_buckets; start += step)
        for (std::size_t b = start; b < start + piece; ++b) {
            const auto size = static_cast<double>(table.bucket(BucketNumber{static_cast<std::uint32_t>(b)}).size());
            squares += size * size;
            rows += size;
        }
    return rows > 0 ? squares / rows : 0;
}

// Ids by row, in as little memory as they need.
class IdColumn {
  public:
    // Adding 32 bits to a base must not pass the largest id.
    static constexpr Id kMaxBase = std::numeric_limits<Id>::max() - 0xFFFFFFFF;

    IdColumn() = default;

    // The ids are base, base + 1, ...
    explicit IdColumn(Id base) : base_(base) {}
    // The ids are base + each of these.
    IdColumn(Id base, Array<const std::uint32_t> above) : base_(base), above_(std::move(above)) {}
    explicit IdColumn(Array<const Id> wide) : wide_(std::move(wide)) {}

    // Return a column of `id_at(row)` for rows 0 to n_rows - 1, which ascend.
    template <class IdAt>
    static IdColumn of(std::size_t n_rows, IdAt id_at) {
        if (n_rows == 0) return {};
        const Id base = id_at(0);
        // Without a sign: a range may be wider than int64.
        const std::uint64_t range = static_cast<std::uint64_t>(id_at(n_rows - 1)) - static_cast<std::uint64_t>(base);
        const bool narrow = base <= kMaxBase || n_rows == 1;
        if (narrow && range == n_rows - 1) return IdColumn(base);
        if (narrow && range <= 0xFFFFFFFFu) {
            Array<std::uint32_t> above(n_rows);
            for (std::size_t row = 0; row < n_rows; ++row) above[row] = static_cast<std::uint32_t>(id_at(row) - base);
            return {base, above};
        }
        Array<Id> wide(n_rows);
        for (std::size_t row = 0; row < n_rows; ++row) wide[row] = id_at(row);
        return IdColumn(Array<const Id>(wide));
    }

    // A row number of a damaged file may lie past the last row. It gets the id of the last.
    Id operator[](RowNumber row) const {
        if (!wide_.empty()) return wide_[std::min<std::size_t>(raw(row), wide_.size() - 1)];
        if (above_.empty()) return base_ + static_cast<Id>(raw(row));
        return base_ + static_cast<Id>(above_[std::min<std::size_t>(raw(row), above_.size() - 1)]);
    }

    bool is_consecutive() const { return wide_.empty() && above_.empty(); }
    HAMTARGET_INLINE void prefetch(RowNumber row) const {
        if (!wide_.empty())
            __builtin_prefetch(wide_.data() + raw(row));
        else
            __builtin_prefetch(above_.data() + raw(row));
    }

    Id base() const { return base_; }
    const Array<const std::uint32_t>& above() const { return above_; }
    const Array<const Id>& wide() const { return wide_; }
    std::size_t n_bytes() const { return above_.n_bytes() + wide_.n_bytes(); }

  private:
    Id base_ = 0;
    Array<const std::uint32_t> above_;
    Array<const Id> wide_;
};

// Where each row of a segment is in its first table: made when it is needed first, and kept.
class Places {
  public:
    // `each_row(place, found)` calls found(row) for the rows at a place.
    template <class EachRow>
    Array<const std::uint32_t> of(std::size_t n_rows, std::size_t n_places, EachRow each_row) {
        const std::lock_guard lock(mutex_);
        if (places_.empty()) {
            Array<std::uint32_t> places(n_rows);
            // A forged file may not have every row.
            std::memset(places.data(), 0, places.n_bytes());
            for (std::size_t place = 0; place < n_places; ++place)
                each_row(place, [&](RowNumber row) { places[raw(row)] = static_cast<std::uint32_t>(place); });
            places_ = places;
        }
        return places_;
    }

    std::size_t n_bytes() {
        const std::lock_guard lock(mutex_);
        return places_.n_bytes();
    }

  private:
    std::mutex mutex_;
    Array<const std::uint32_t> places_;
};

// Codes by row.
struct CodesByRow {
    const std::uint8_t* codes;
    std::size_t n_bytes;
    Array<const std::uint32_t> places;  // of rows; empty where places are rows

    const std::uint8_t* operator[](RowNumber row) const {
        return codes + std::size_t{places.empty() ? raw(row) : places[raw(row)]} * n_bytes;
    }
};

struct Segment {
    std::size_t n_rows = 0;
    std::size_t n_codes = 0;               // fewer than rows where rows share codes
    IdColumn ids;                          // by row, ascending, except in a delta
    SharedCodes shared;                    // only where there are tables
    Array<const std::uint8_t> codes;       // by place
    Array<const std::uint8_t> embeddings;  // by row
    std::vector<Table> tables;             // none: rows are scanned, and places are rows
    std::shared_ptr<const void> table_memory;  // what the tables point into
    // False for a file that was opened without verification, or that is mapped: another program may change it at any
    // time. Then nothing is known of the numbers in the arrays. Ids may not ascend; and every place and every row that
    // is read from the arrays is brought into range when it is used: by Table, SharedCodes, IdColumn, Part, and `embedding`.
    bool is_verified = true;
    std::shared_ptr<Places> places = std::make_shared<Places>();

    CodesByRow codes_by_row(std::size_t n_bytes) const {
        if (tables.empty()) return {codes.data(), n_bytes, {}};
        const auto each = [&](std::size_t place, auto found) { each_row_at(place, found); };
        return {codes.data(), n_bytes, places->of(n_rows, n_codes, each)};
    }

    const std::uint8_t* embedding(RowNumber row, std::size_t width) const {
        return embeddings.data() + std::min<std::size_t>(raw(row), n_rows - 1) * width;
    }

    // Return the number of the code at a place of `codes`: that of its row, unless rows share codes.
    RowNumber code_at(std::size_t place) const { return tables.empty() ? row_number(place) : tables[0].rows[place]; }

    // Call found(row) for each row of a code.
    template <class Found>
    void each_row(RowNumber code, Found found) const {
        if (shared.empty())
            found(std::min(code, row_number(n_rows - 1)));
        else
            shared.each_row(code, found);
    }
    // Call found(row) for each row whose code is at a place of `codes`.
    template <class Found>
    void each_row_at(std::size_t place, Found found) const {
        each_row(code_at(place), found);
    }

    std::size_t memory() const {
        // The codes are those of the first table.
        std::size_t sum = ids.n_bytes() + shared.n_bytes() + codes.n_bytes() + places->n_bytes() + embeddings.n_bytes();
        for (std::size_t t = 0; t < tables.size(); ++t) {
            sum += tables[t].n_offsets() * sizeof(std::uint32_t);
            sum += tables[t].has_excerpts() ? n_codes * tables[t].excerpts.entry_bytes()
                                            : n_codes * sizeof(RowNumber) + (t > 0 ? codes.n_bytes() : 0);
        }
        return sum;
    }
};

// Return the first row, from `row` on, whose id is not below `id`. Near rows are found in few steps (exponential
// search), so that a long ascending list of ids takes one pass.
inline std::size_t lower_row(const Segment& segment, Id id, std::size_t row) {
    std::size_t step = 1, low = row;
    while (low + step <= segment.n_rows && segment.ids[row_number(low + step - 1)] < id) low += step, step *= 2;
    std::size_t high = std::min(low + step - 1, segment.n_rows);
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (segment.ids[row_number(middle)] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Rows that somebody else owns.
struct RowsView {
    Codes codes{};
    const Id* ids = nullptr;
    const std::uint8_t* embeddings = nullptr;  // where the layout has some
};

}  // namespace hamtarget
