// Segments: rows that no longer change, and the tables that find them by substring.
//
// Rows are numbered by their place in the first table, so that this table needs no row numbers and its codes are at
// the same time the codes by row. Within a bucket ids ascend: hits of a bucket come out in order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "array.hpp"
#include "code.hpp"

namespace hamtarget {

// Fewer rows are scanned as fast as buckets are looked up.
inline constexpr std::size_t kMinTableRows = 2048;
inline constexpr std::size_t kMaxKeyBits = 28;

// How a code is cut, and what is kept with it. The same for all rows of an index.
struct Layout {
    std::size_t n_bytes = 0;            // of a code
    std::size_t n_tables = 0;           // substrings; 0: every search scans
    std::size_t embedding_bytes = 0;    // of a row; 0: none

    friend bool operator==(const Layout&, const Layout&) = default;
};

// The bits of a code that number its bucket: up to 32 in a row, within one substring.
class KeyBits {
  public:
    KeyBits() = default;

    KeyBits(std::size_t start, std::size_t length, std::size_t n_bytes)
        : length_(static_cast<std::uint32_t>(length)), read_(static_cast<std::uint32_t>(std::min<std::size_t>(8, n_bytes))) {
        // The 8 bytes read must not reach past the code.
        offset_ = static_cast<std::uint32_t>(std::min(start / 8, n_bytes - read_));
        shift_ = static_cast<std::uint32_t>(start - 8 * offset_);
        mask_ = static_cast<std::uint32_t>((std::uint64_t{1} << length) - 1);
    }

    std::uint32_t of(const std::uint8_t* code) const {
        std::uint64_t word = 0;
        if (read_ == 8)
            std::memcpy(&word, code + offset_, 8);
        else
            std::memcpy(&word, code, read_);
        return static_cast<std::uint32_t>(word >> shift_) & mask_;
    }

    std::uint32_t length() const { return length_; }
    std::size_t start() const { return 8 * offset_ + shift_; }

  private:
    std::uint32_t offset_ = 0;
    std::uint32_t shift_ = 0;
    std::uint32_t mask_ = 0;
    std::uint32_t length_ = 0;
    std::uint32_t read_ = 0;
};

// First bit of substring `index` of `count` (count itself: past the last); the longer ones come first.
// The same cut as hamtarget.codes.substring_bounds.
inline std::size_t substring_start(std::size_t n_bits, std::size_t count, std::size_t index) {
    return index * (n_bits / count) + std::min(index, n_bits % count);
}

// Bits of a bucket number for so many rows: about four rows a bucket fill half a cache line.
inline std::size_t directory_bits(std::size_t n_rows) {
    const auto bits = static_cast<std::size_t>(std::bit_width(n_rows));
    return std::clamp<std::size_t>(bits, 4, kMaxKeyBits + 2) - 2;
}

inline KeyBits key_bits(const Layout& layout, std::size_t table, std::size_t n_rows) {
    const std::size_t n_bits = 8 * layout.n_bytes;
    const std::size_t start = substring_start(n_bits, layout.n_tables, table);
    const std::size_t stop = substring_start(n_bits, layout.n_tables, table + 1);
    return {start, std::min(stop - start, directory_bits(n_rows)), layout.n_bytes};
}

// Buckets by the bits of one substring: bucket b holds places offsets[b] to offsets[b + 1].
struct Table {
    KeyBits key;
    Array<const std::uint32_t> offsets;
    Array<const std::uint8_t> codes;   // in place order
    Array<const std::uint32_t> rows;   // in place order; empty where places are rows
    double mean_bucket = 0;            // rows in the bucket of a stored row, on average
};

inline double mean_bucket(const Array<const std::uint32_t>& offsets) {
    double squares = 0;
    const std::size_t last = offsets.size() - 1;
    for (std::size_t b = 0; b < last; ++b) {
        const double size = offsets[b + 1] - offsets[b];
        squares += size * size;
    }
    return offsets[last] ? squares / offsets[last] : 0;
}

struct Segment {
    std::size_t n_rows = 0;
    Array<const std::uint8_t> codes;       // by row
    Array<const std::int64_t> ids;         // by row
    Array<const std::uint32_t> by_id;      // rows in the order of their ids; empty where ids ascend by row
    Array<const std::uint8_t> embeddings;  // by row
    std::vector<Table> tables;
    bool unsorted = false;                 // rows in the order in which they came: a delta

    std::size_t row_at(std::size_t rank) const { return by_id.empty() ? rank : by_id[rank]; }
    std::int64_t id_at(std::size_t rank) const { return ids[row_at(rank)]; }

    std::size_t memory() const {
        std::size_t sum = ids.n_bytes() + by_id.n_bytes() + embeddings.n_bytes();
        // The first table's codes are the codes by row.
        if (tables.empty()) sum += codes.n_bytes();
        for (const Table& table : tables) sum += table.offsets.n_bytes() + table.codes.n_bytes() + table.rows.n_bytes();
        return sum;
    }
};

// Rows that somebody else owns.
struct RowsView {
    Codes codes{};
    const std::int64_t* ids = nullptr;
    const std::uint8_t* embeddings = nullptr;  // where the layout has some
};

// The numbers 0 to count - 1 in the order of the ids, or nothing where ids ascend as they are.
inline std::vector<std::uint32_t> id_order(const std::int64_t* ids, std::size_t count) {
    if (std::is_sorted(ids, ids + count)) return {};
    std::vector<std::uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](std::uint32_t left, std::uint32_t right) { return ids[left] < ids[right]; });
    return order;
}

namespace building {

// A constant size lets the compiler copy a code in one instruction.
inline void copy_code(std::uint8_t* to, const std::uint8_t* from, std::size_t n_bytes) {
    switch (n_bytes) {
        case 8: std::memcpy(to, from, 8); return;
        case 16: std::memcpy(to, from, 16); return;
        case 32: std::memcpy(to, from, 32); return;
        default: std::memcpy(to, from, n_bytes);
    }
}

// Offsets of the buckets, one more than there are.
inline Array<std::uint32_t> count_buckets(Codes codes, const KeyBits& key) {
    const std::size_t n_buckets = std::size_t{1} << key.length();
    Array<std::uint32_t> offsets(n_buckets + 1);
    std::memset(offsets.data(), 0, offsets.n_bytes());
    for (std::size_t i = 0; i < codes.n_rows; ++i) ++offsets[key.of(codes.row(i))];
    std::uint32_t sum = 0;
    for (std::size_t b = 0; b <= n_buckets; ++b) sum += std::exchange(offsets[b], sum);
    return offsets;
}

// Calls place(rank, place) for each row in the order of ids with its place in the table, then restores the offsets.
template <class Place>
void distribute(Codes codes, const std::vector<std::uint32_t>& order, const KeyBits& key, Array<std::uint32_t>& offsets,
                Place place) {
    for (std::size_t rank = 0; rank < codes.n_rows; ++rank) {
        const std::size_t from = order.empty() ? rank : order[rank];
        place(rank, from, offsets[key.of(codes.row(from))]++);
    }
    // Each offset has moved to the end of its bucket, which is the start of the next.
    std::memmove(offsets.data() + 1, offsets.data(), (offsets.size() - 1) * sizeof offsets[0]);
    offsets[0] = 0;
}

}  // namespace building

// A segment of these rows, whose ids are all different; `order` is that of their ids.
inline Segment build_segment(const Layout& layout, const RowsView& source, const std::vector<std::uint32_t>& order) {
    using namespace building;
    const std::size_t n_rows = source.codes.n_rows, n_bytes = layout.n_bytes, width = layout.embedding_bytes;
    Array<std::uint8_t> codes(n_rows * n_bytes), embeddings(n_rows * width);
    Array<std::int64_t> ids(n_rows);
    const auto copy_row = [&](std::size_t from, std::size_t row) {
        copy_code(codes.data() + row * n_bytes, source.codes.row(from), n_bytes);
        ids[row] = source.ids[from];
        if (width) std::memcpy(embeddings.data() + row * width, source.embeddings + from * width, width);
    };
    Segment segment;
    segment.n_rows = n_rows;
    Array<std::uint32_t> by_id;
    if (layout.n_tables == 0 || n_rows < kMinTableRows) {
        for (std::size_t rank = 0; rank < n_rows; ++rank) copy_row(order.empty() ? rank : order[rank], rank);
    } else {
        by_id = Array<std::uint32_t>(n_rows);
        for (std::size_t t = 0; t < layout.n_tables; ++t) {
            Table table;
            table.key = key_bits(layout, t, n_rows);
            auto offsets = count_buckets(source.codes, table.key);
            if (t == 0) {
                distribute(source.codes, order, table.key, offsets,
                           [&](std::size_t rank, std::size_t from, std::uint32_t place) {
                               copy_row(from, place);
                               by_id[rank] = place;
                           });
                table.codes = codes;
            } else {
                Array<std::uint8_t> copies(n_rows * n_bytes);
                Array<std::uint32_t> rows(n_rows);
                distribute(source.codes, order, table.key, offsets,
                           [&](std::size_t rank, std::size_t from, std::uint32_t place) {
                               copy_code(copies.data() + std::size_t{place} * n_bytes, source.codes.row(from), n_bytes);
                               rows[place] = by_id[rank];
                           });
                table.codes = copies;
                table.rows = rows;
            }
            table.offsets = offsets;
            table.mean_bucket = mean_bucket(table.offsets);
            segment.tables.push_back(std::move(table));
        }
    }
    segment.codes = codes;
    segment.ids = ids;
    segment.by_id = by_id;
    segment.embeddings = embeddings;
    return segment;
}

// First rank, from `rank` on, whose id is not below `id`. Near ranks are found in few steps (exponential search), so
// that a long ascending list of ids takes one pass.
inline std::size_t lower_rank(const Segment& segment, std::int64_t id, std::size_t rank) {
    std::size_t step = 1, low = rank;
    while (low + step <= segment.n_rows && segment.id_at(low + step - 1) < id) low += step, step *= 2;
    std::size_t high = std::min(low + step - 1, segment.n_rows);
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (segment.id_at(middle) < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

}  // namespace hamtarget
