#include "segment_builder.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "code_sharing.hpp"
#include "table_plan.hpp"

namespace hamtarget {

namespace {

KeyBits key_bits(std::size_t n_bytes, std::size_t n_tables, std::size_t table, std::size_t n_rows) {
    const std::size_t start = substring_start(8 * n_bytes, n_tables, table);
    const std::size_t stop = substring_start(8 * n_bytes, n_tables, table + 1);
    return {start, stop, std::min(stop - start, directory_bits(n_rows)), n_bytes};
}

TablePlan plan_of(const Layout& layout, std::size_t n_rows) {
    return layout.is_planned ? planned_tables(layout.n_bytes, layout.radius, n_rows)
                             : TablePlan{layout.n_tables, layout.excerpt_bytes};
}

std::size_t radius_of(const Layout& layout) { return layout.is_planned ? layout.radius : layout.n_tables - 1; }

// Tell whether storing each of `n_codes` codes once takes less memory, and is worth the trouble.
bool is_worth_sharing(const Layout& layout, std::size_t n_rows, std::size_t n_codes) {
    const TablePlan plan = plan_of(layout, n_codes);
    const std::size_t whole = layout.n_bytes + sizeof(RowNumber);
    const std::size_t other = plan.excerpt_bytes ? plan.excerpt_bytes + sizeof(std::uint32_t) : whole;
    const std::size_t saved = (n_rows - n_codes) * (whole + (plan.n_tables - 1) * other);
    return static_cast<double>(n_codes) <= kMostDifferent * static_cast<double>(n_rows) &&
           saved > (n_rows + n_codes) * sizeof(std::uint32_t);
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

    std::size_t size() const { return order.empty() ? source.codes.n_rows : order.size(); }
    std::size_t from(std::size_t row) const { return order.empty() ? row : order[row]; }
    const std::uint8_t* code(std::size_t row) const { return source.codes.row(from(row)); }
};

// Give every row its place in a table by counting: first where each bucket starts, then write(row, code, place) for each
// row in turn. Return the offsets.
template <class CodeOf, class Write>
const std::uint32_t* place_rows(const KeyBits& key, std::size_t n_rows, CodeOf code_of, Write write, Block& block) {
    const std::size_t n_buckets = std::size_t{1} << key.length();
    const auto offsets = block.cut<std::uint32_t>(n_buckets + 1);
    std::memset(offsets.data(), 0, offsets.n_bytes());
    for (std::size_t row = 0; row < n_rows; ++row) ++offsets[raw(key.bucket_of(code_of(row)))];
    std::uint32_t sum = 0;
    for (std::size_t b = 0; b <= n_buckets; ++b) sum += std::exchange(offsets[b], sum);
    for (std::size_t row = 0; row < n_rows; ++row) {
        const std::uint8_t* code = code_of(row);
        write(row, code, std::size_t{offsets[raw(key.bucket_of(code))]++});
    }
    // Each offset has moved to the end of its bucket, which is the start of the next.
    std::memmove(offsets.data() + 1, offsets.data(), n_buckets * sizeof offsets[0]);
    offsets[0] = 0;
    return offsets.data();
}

// Build a table of whole codes, whose numbers are these; none: those of the rows.
Table build_table(const InOrder& rows, std::span<const RowNumber> numbers_of, const KeyBits& key, Block& block) {
    const std::size_t n_rows = rows.size(), n_bytes = rows.source.codes.n_bytes;
    const auto codes = block.cut<std::uint8_t>(n_rows * n_bytes);
    const auto numbers = block.cut<RowNumber>(n_rows);
    const auto write = [&](std::size_t row, const std::uint8_t* code, std::size_t place) {
        copy_code(codes.data() + place * n_bytes, code, n_bytes);
        numbers[place] = numbers_of.empty() ? row_number(row) : numbers_of[row];
    };
    const auto code_of = [&](std::size_t row) { return rows.code(row); };
    const std::uint32_t* offsets = place_rows(key, n_rows, code_of, write, block);
    Table table{.key = key,
                .offsets = offsets,
                .codes = codes.data(),
                .rows = numbers.data(),
                .n_rows = static_cast<std::uint32_t>(n_rows)};
    table.mean_bucket = mean_bucket(table);
    return table;
}

// Build a table of excerpts, from the first table, which has whole codes.
Table build_excerpts(const Table& first, const KeyBits& key, std::size_t excerpt_bytes, std::size_t n_bytes,
                     Block& block) {
    Table table = first;
    table.key = key;
    Excerpts excerpts = excerpts_of(key, excerpt_bytes, n_bytes);
    const std::size_t size = excerpts.entry_bytes();
    const auto entries = block.cut<std::uint8_t>(table.n_rows * size);
    const auto write = [&](std::size_t place, const std::uint8_t* code, std::size_t to) {
        excerpts.copy(code, n_bytes, entries.data() + to * size);
        const auto number = static_cast<std::uint32_t>(place);
        std::memcpy(entries.data() + to * size + excerpt_bytes, &number, sizeof number);
    };
    const auto code_of = [&](std::size_t place) { return first.codes + place * n_bytes; };
    table.offsets = place_rows(key, table.n_rows, code_of, write, block);
    excerpts.entries = entries.data();
    table.excerpts = excerpts;
    table.mean_bucket = mean_bucket(table);
    return table;
}

// Build the tables of a segment. Where rows share codes, `rows` are those with different codes, whose numbers these are.
void build_tables(const Layout& layout, const InOrder& rows, std::span<const RowNumber> numbers, Segment& segment) {
    const std::size_t n_rows = rows.size(), n_bytes = layout.n_bytes;
    const TablePlan plan = plan_of(layout, n_rows);
    const auto key = [&](std::size_t t) { return key_bits(n_bytes, plan.n_tables, t, n_rows); };
    const auto has_excerpts = [&](std::size_t t) { return t > 0 && plan.excerpt_bytes > 0; };
    std::size_t n_needed = 0;
    for (std::size_t t = 0; t < plan.n_tables; ++t) {
        n_needed += Block::n_bytes_for<std::uint32_t>((std::size_t{1} << key(t).length()) + 1);
        n_needed += has_excerpts(t)
                        ? Block::n_bytes_for<std::uint8_t>(n_rows * (plan.excerpt_bytes + sizeof(std::uint32_t)))
                        : Block::n_bytes_for<std::uint8_t>(n_rows * n_bytes) + Block::n_bytes_for<RowNumber>(n_rows);
    }
    Block block(n_needed);
    for (std::size_t t = 0; t < plan.n_tables; ++t)
        segment.tables.push_back(
            has_excerpts(t) ? build_excerpts(segment.tables[0], key(t), plan.excerpt_bytes, n_bytes, block)
                            : build_table(rows, numbers, key(t), block));
    segment.table_memory = block.owner();
    segment.codes = Array<const std::uint8_t>(block.owner(), segment.tables[0].codes, n_rows * n_bytes);
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
    segment.n_rows = segment.n_codes = n_rows;
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
    // Embeddings are for probing, whose budget bounds the rows that are compared.
    if (width == 0 && n_rows <= kMostSharingRows && repeats(source.codes) &&
        rows_near(source.codes, radius_of(layout)) <= kMostRowsFound) {
        CodeSharing sharing = share_codes(n_rows, n_bytes, [&](std::size_t row) { return rows.code(row); });
        if (is_worth_sharing(layout, n_rows, sharing.numbers.size())) {
            segment.shared = std::move(sharing.shared);
            segment.n_codes = sharing.numbers.size();
            for (std::uint32_t& row : sharing.first_rows) row = static_cast<std::uint32_t>(rows.from(row));
            build_tables(layout, InOrder{source, sharing.first_rows}, sharing.numbers, segment);
            return segment;
        }
    }
    build_tables(layout, rows, {}, segment);
    return segment;
}

}  // namespace hamtarget
