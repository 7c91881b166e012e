// Segments: rows that no longer change, and the tables that find them by substring.
//
// Rows are numbered in the order of their ids. So consecutive ids need no memory, hits are sorted by their row numbers,
// and within a bucket rows ascend: hits of a bucket come out in order. Codes are not stored by row: the first table
// has them all, and where is worked out when somebody asks for codes by row, which no search does.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
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
    std::size_t n_bytes = 0;          // of a code
    std::size_t n_tables = 0;         // substrings; 0: every search scans
    std::size_t embedding_bytes = 0;  // of a row; 0: none

    friend bool operator==(const Layout&, const Layout&) = default;
};

// Bucket numbers of one table: up to 28 bits made of one substring.
//
// A substring longer than a bucket number is folded: bit i of it counts for bit i % length. So equal substrings have
// equal numbers, flipping a bit of one flips a bit of the other, and a search that reads every number within f flips
// misses no substring within f flips. Folding spreads skewed codes better than leaving bits out.
class KeyBits {
  public:
    KeyBits() = default;

    // Bits `start` to `stop - 1` of a code; of a very long substring, only the first 2 * length count.
    KeyBits(std::size_t start, std::size_t stop, std::size_t length, std::size_t n_bytes)
        : start_(start),
          width_(std::min(stop - start, 2 * length)),
          length_(length),
          n_read_(std::min<std::size_t>(8, n_bytes)),
          // The 8 bytes read must not reach past the code.
          offset_(std::min(start / 8, n_bytes - n_read_)),
          shift_(start - 8 * offset_),
          mask_((std::uint64_t{1} << width_) - 1),
          bits_(mask_ << start % 64),
          bits_of_next_(start % 64 ? mask_ >> (64 - start % 64) : 0) {}

    HAMTARGET_INLINE std::uint64_t substring_of(const std::uint8_t* code) const {
        std::uint64_t word = 0;
        if (n_read_ == 8)
            std::memcpy(&word, code + offset_, 8);
        else
            std::memcpy(&word, code, n_read_);
        return word >> shift_ & mask_;
    }

    // The bucket number.
    HAMTARGET_INLINE std::uint32_t of(const std::uint8_t* code) const {
        const std::uint64_t substring = substring_of(code);
        return static_cast<std::uint32_t>((substring ^ substring >> length_) & ((std::uint64_t{1} << length_) - 1));
    }

    // The substring, as far as it counts, lies in this 64-bit word of a code and the next one: in these bits.
    std::size_t word() const { return start_ / 64; }
    std::uint64_t bits() const { return bits_; }
    std::uint64_t bits_of_next() const { return bits_of_next_; }

    std::size_t start() const { return start_; }
    std::size_t width() const { return width_; }
    std::size_t length() const { return length_; }  // of a bucket number

  private:
    std::size_t start_ = 0, width_ = 0, length_ = 0, n_read_ = 0, offset_ = 0, shift_ = 0;
    std::uint64_t mask_ = 0, bits_ = 0, bits_of_next_ = 0;
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
    return {start, stop, std::min(stop - start, directory_bits(n_rows)), layout.n_bytes};
}

// Buckets by the bits of one substring: bucket b holds places offsets[b] to offsets[b + 1].
struct Table {
    KeyBits key;
    Array<const std::uint32_t> offsets;
    Array<const std::uint8_t> codes;  // in place order
    Array<const std::uint32_t> rows;  // in place order
    double mean_bucket = 0;           // rows in the bucket of a stored row, on average
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

// Ids by row, in as little memory as they need.
class IdColumn {
  public:
    // What is added to a base, at most 32 bits, must not pass the largest id.
    static constexpr std::int64_t kMaxBase = std::numeric_limits<std::int64_t>::max() - 0xFFFFFFFF;

    IdColumn() = default;

    // base, base + 1, ...
    explicit IdColumn(std::int64_t base) : base_(base) {}
    // base + each of these.
    IdColumn(std::int64_t base, Array<const std::uint32_t> above) : base_(base), above_(std::move(above)) {}
    explicit IdColumn(Array<const std::int64_t> wide) : wide_(std::move(wide)) {}

    // `id_at(row)` for rows 0 to n_rows - 1, ascending.
    template <class IdAt>
    static IdColumn of(std::size_t n_rows, IdAt id_at) {
        if (n_rows == 0) return {};
        const std::int64_t base = id_at(0);
        // Without a sign: a range may be wider than int64.
        const std::uint64_t range = static_cast<std::uint64_t>(id_at(n_rows - 1)) - static_cast<std::uint64_t>(base);
        const bool narrow = base <= kMaxBase || n_rows == 1;
        if (narrow && range == n_rows - 1) return IdColumn(base);
        if (narrow && range <= 0xFFFFFFFFu) {
            Array<std::uint32_t> above(n_rows);
            for (std::size_t row = 0; row < n_rows; ++row) above[row] = static_cast<std::uint32_t>(id_at(row) - base);
            return {base, above};
        }
        Array<std::int64_t> wide(n_rows);
        for (std::size_t row = 0; row < n_rows; ++row) wide[row] = id_at(row);
        return IdColumn(Array<const std::int64_t>(wide));
    }

    std::int64_t operator[](std::size_t row) const {
        if (!wide_.empty()) return wide_[row];
        return base_ + static_cast<std::int64_t>(above_.empty() ? row : above_[row]);
    }

    bool is_consecutive() const { return wide_.empty() && above_.empty(); }
    HAMTARGET_INLINE void prefetch(std::size_t row) const {
        if (!wide_.empty())
            __builtin_prefetch(wide_.data() + row);
        else
            __builtin_prefetch(above_.data() + row);
    }

    std::int64_t base() const { return base_; }
    const Array<const std::uint32_t>& above() const { return above_; }
    const Array<const std::int64_t>& wide() const { return wide_; }
    std::size_t n_bytes() const { return above_.n_bytes() + wide_.n_bytes(); }

  private:
    std::int64_t base_ = 0;
    Array<const std::uint32_t> above_;
    Array<const std::int64_t> wide_;
};

// Where each row of a segment is in its first table: made when it is needed first, and kept.
class Places {
  public:
    // `rows`: of the first table.
    Array<const std::uint32_t> of(const Array<const std::uint32_t>& rows) {
        const std::lock_guard lock(mutex_);
        if (places_.empty()) {
            Array<std::uint32_t> places(rows.size());
            // A forged file may not have every row.
            std::memset(places.data(), 0, places.n_bytes());
            for (std::size_t place = 0; place < rows.size(); ++place)
                places[rows[place]] = static_cast<std::uint32_t>(place);
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

// Codes by row: where they are.
struct CodesByRow {
    const std::uint8_t* codes;
    std::size_t n_bytes;
    Array<const std::uint32_t> places;  // of rows; empty where places are rows

    const std::uint8_t* operator[](std::size_t row) const {
        return codes + (places.empty() ? row : places[row]) * n_bytes;
    }
};

struct Segment {
    std::size_t n_rows = 0;
    IdColumn ids;                          // by row, ascending, except in a delta
    Array<const std::uint8_t> codes;       // by place
    Array<const std::uint8_t> embeddings;  // by row
    std::vector<Table> tables;             // none: rows are scanned, and places are rows
    std::shared_ptr<Places> places = std::make_shared<Places>();

    CodesByRow codes_by_row(std::size_t n_bytes) const {
        return {codes.data(), n_bytes, tables.empty() ? Array<const std::uint32_t>() : places->of(tables[0].rows)};
    }

    std::size_t memory() const {
        // The codes are those of the first table.
        std::size_t sum = ids.n_bytes() + codes.n_bytes() + places->n_bytes() + embeddings.n_bytes();
        for (const Table& table : tables) sum += table.offsets.n_bytes() + table.codes.n_bytes() + table.rows.n_bytes();
        return tables.empty() ? sum : sum - codes.n_bytes();
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
    std::sort(order.begin(), order.end(),
              [&](std::uint32_t left, std::uint32_t right) { return ids[left] < ids[right]; });
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

// Rows of the source in the order of their ids.
struct InOrder {
    const RowsView& source;
    const std::vector<std::uint32_t>& order;

    std::size_t from(std::size_t row) const { return order.empty() ? row : order[row]; }
    const std::uint8_t* code(std::size_t row) const { return source.codes.row(from(row)); }
};

// One table, by counting: where each bucket starts, then every row to its place.
inline Table build_table(const InOrder& rows, const KeyBits& key, Block& block) {
    const std::size_t n_rows = rows.source.codes.n_rows, n_bytes = rows.source.codes.n_bytes;
    const std::size_t n_buckets = std::size_t{1} << key.length();
    const auto offsets = block.cut<std::uint32_t>(n_buckets + 1);
    std::memset(offsets.data(), 0, offsets.n_bytes());
    for (std::size_t i = 0; i < n_rows; ++i) ++offsets[key.of(rows.source.codes.row(i))];
    std::uint32_t sum = 0;
    for (std::size_t b = 0; b <= n_buckets; ++b) sum += std::exchange(offsets[b], sum);

    const auto codes = block.cut<std::uint8_t>(n_rows * n_bytes);
    const auto numbers = block.cut<std::uint32_t>(n_rows);
    for (std::size_t row = 0; row < n_rows; ++row) {
        const std::uint8_t* code = rows.code(row);
        const std::size_t place = offsets[key.of(code)]++;
        copy_code(codes.data() + place * n_bytes, code, n_bytes);
        numbers[place] = static_cast<std::uint32_t>(row);
    }
    // Each offset has moved to the end of its bucket, which is the start of the next.
    std::memmove(offsets.data() + 1, offsets.data(), n_buckets * sizeof offsets[0]);
    offsets[0] = 0;
    return {key, offsets, codes, numbers, mean_bucket(offsets)};
}

}  // namespace building

// A segment of these rows, whose ids are all different; `order` is that of their ids.
inline Segment build_segment(const Layout& layout, const RowsView& source, const std::vector<std::uint32_t>& order) {
    const building::InOrder rows{source, order};
    const std::size_t n_rows = source.codes.n_rows, n_bytes = layout.n_bytes, width = layout.embedding_bytes;
    Segment segment;
    segment.n_rows = n_rows;
    segment.ids = IdColumn::of(n_rows, [&](std::size_t row) { return source.ids[rows.from(row)]; });
    if (width) {
        Array<std::uint8_t> embeddings(n_rows * width);
        for (std::size_t row = 0; row < n_rows; ++row)
            std::memcpy(embeddings.data() + row * width, source.embeddings + rows.from(row) * width, width);
        segment.embeddings = embeddings;
    }
    if (layout.n_tables == 0 || n_rows < kMinTableRows) {
        Array<std::uint8_t> codes(n_rows * n_bytes);
        for (std::size_t row = 0; row < n_rows; ++row)
            building::copy_code(codes.data() + row * n_bytes, rows.code(row), n_bytes);
        segment.codes = codes;
        return segment;
    }
    std::size_t n_needed = 0;
    for (std::size_t t = 0; t < layout.n_tables; ++t)
        n_needed += Block::n_bytes_for<std::uint32_t>((std::size_t{1} << key_bits(layout, t, n_rows).length()) + 1) +
                    Block::n_bytes_for<std::uint8_t>(n_rows * n_bytes) + Block::n_bytes_for<std::uint32_t>(n_rows);
    Block block(n_needed);
    for (std::size_t t = 0; t < layout.n_tables; ++t)
        segment.tables.push_back(building::build_table(rows, key_bits(layout, t, n_rows), block));
    segment.codes = segment.tables[0].codes;
    return segment;
}

// First row, from `row` on, whose id is not below `id`. Near rows are found in few steps (exponential search), so that
// a long ascending list of ids takes one pass.
inline std::size_t lower_row(const Segment& segment, std::int64_t id, std::size_t row) {
    std::size_t step = 1, low = row;
    while (low + step <= segment.n_rows && segment.ids[low + step - 1] < id) low += step, step *= 2;
    std::size_t high = std::min(low + step - 1, segment.n_rows);
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (segment.ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

}  // namespace hamtarget
