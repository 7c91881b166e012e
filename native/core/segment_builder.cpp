#include "segment_builder.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

namespace hamtarget {

namespace {

// Return the bits of a bucket number for so many rows: about four rows a bucket fill half a cache line.
std::size_t directory_bits(std::size_t n_rows) {
    const auto bits = static_cast<std::size_t>(std::bit_width(n_rows));
    return std::clamp<std::size_t>(bits, 4, kMaxKeyBits + 2) - 2;
}

KeyBits key_bits(const Layout& layout, std::size_t table, std::size_t n_rows) {
    const std::size_t n_bits = 8 * layout.n_bytes;
    const std::size_t start = substring_start(n_bits, layout.n_tables, table);
    const std::size_t stop = substring_start(n_bits, layout.n_tables, table + 1);
    return {start, stop, std::min(stop - start, directory_bits(n_rows)), layout.n_bytes};
}

// A length that the compiler knows is copied by one instruction.
HAMTARGET_INLINE void copy_code(std::uint8_t* to, const std::uint8_t* from, std::size_t n_bytes) {
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

// Build one table by counting: first where each bucket starts, then every row to its place.
Table build_table(const InOrder& rows, const KeyBits& key, Block& block) {
    const std::size_t n_rows = rows.source.codes.n_rows, n_bytes = rows.source.codes.n_bytes;
    const std::size_t n_buckets = std::size_t{1} << key.length();
    const auto offsets = block.cut<std::uint32_t>(n_buckets + 1);
    std::memset(offsets.data(), 0, offsets.n_bytes());
    for (std::size_t i = 0; i < n_rows; ++i) ++offsets[raw(key.bucket_of(rows.source.codes.row(i)))];
    std::uint32_t sum = 0;
    for (std::size_t b = 0; b <= n_buckets; ++b) sum += std::exchange(offsets[b], sum);

    const auto codes = block.cut<std::uint8_t>(n_rows * n_bytes);
    const auto numbers = block.cut<RowNumber>(n_rows);
    for (std::size_t row = 0; row < n_rows; ++row) {
        const std::uint8_t* code = rows.code(row);
        const std::size_t place = offsets[raw(key.bucket_of(code))]++;
        copy_code(codes.data() + place * n_bytes, code, n_bytes);
        numbers[place] = row_number(row);
    }
    // Each offset has moved to the end of its bucket, which is the start of the next.
    std::memmove(offsets.data() + 1, offsets.data(), n_buckets * sizeof offsets[0]);
    offsets[0] = 0;
    Table table{key, offsets.data(), codes.data(), numbers.data(), static_cast<std::uint32_t>(n_rows)};
    table.mean_bucket = mean_bucket(table);
    return table;
}

}  // namespace

std::vector<std::uint32_t> id_order(const Id* ids, std::size_t count) {
    if (std::is_sorted(ids, ids + count)) return {};
    std::vector<std::uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(),
              [&](std::uint32_t left, std::uint32_t right) { return ids[left] < ids[right]; });
    return order;
}

Segment build_segment(const Layout& layout, const RowsView& source, const std::vector<std::uint32_t>& order) {
    const InOrder rows{source, order};
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
        for (std::size_t row = 0; row < n_rows; ++row) copy_code(codes.data() + row * n_bytes, rows.code(row), n_bytes);
        segment.codes = codes;
        return segment;
    }
    std::size_t n_needed = 0;
    for (std::size_t t = 0; t < layout.n_tables; ++t)
        n_needed += Block::n_bytes_for<std::uint32_t>((std::size_t{1} << key_bits(layout, t, n_rows).length()) + 1) +
                    Block::n_bytes_for<std::uint8_t>(n_rows * n_bytes) + Block::n_bytes_for<RowNumber>(n_rows);
    Block block(n_needed);
    for (std::size_t t = 0; t < layout.n_tables; ++t)
        segment.tables.push_back(build_table(rows, key_bits(layout, t, n_rows), block));
    segment.table_memory = block.owner();
    segment.codes = Array<const std::uint8_t>(block.owner(), segment.tables[0].codes, n_rows * n_bytes);
    return segment;
}

}  // namespace hamtarget
