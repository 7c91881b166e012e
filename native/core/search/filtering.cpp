#include "filtering.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "../live_rows.hpp"
#include "../segment_builder.hpp"

namespace hamtarget {

namespace {

using Bits = std::vector<std::uint64_t>;

// Call allow(row) for each row of a part that the filter allows.
template <class Allow>
void each_allowed(const Part& part, const Filter& filter, Work& work, Allow allow) {
    const Segment& segment = *part.segment;
    // Ids of a delta are in no order; those of a mask need not be looked for.
    if (part.delta || !filter.is_list()) {
        work.in_blocks(part.n_rows, [&](std::size_t first, std::size_t last) {
            for (std::size_t row = first; row < last; ++row)
                if (filter.allows(segment.ids[row_number(row)])) allow(row_number(row));
        });
        return;
    }
    const std::span<const Id> ids = filter.ids();
    if (part.n_rows == 0) return;
    // Neither has a list of ids that the segment has none of: begin with the first that it may have.
    const auto begin = std::lower_bound(ids.begin(), ids.end(), segment.ids[row_number(0)]);
    std::size_t row = 0;
    work.in_blocks(static_cast<std::size_t>(ids.end() - begin), [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last && row < part.n_rows; ++i) {
            const Id id = begin[static_cast<std::ptrdiff_t>(i)];
            row = lower_row(segment, id, row);
            if (row < part.n_rows && segment.ids[row_number(row)] == id) allow(row_number(row));
        }
    });
}

}  // namespace

Manifest refuse_others(const Manifest& manifest, const Filter& filter, Work& work) {
    Manifest result = manifest;
    for (Part& part : result.parts) {
        auto refused = std::make_shared<Bits>((part.n_rows + 63) / 64, ~std::uint64_t{0});
        std::size_t n_allowed = 0;
        each_allowed(part, filter, work, [&](RowNumber row) {
            if (part.is_deleted(row)) return;
            std::uint64_t& word = (*refused)[raw(row) / 64];
            const std::uint64_t bit = std::uint64_t{1} << raw(row) % 64;
            // Ids of a damaged file may name a row twice.
            n_allowed += (word & bit) != 0;
            word &= ~bit;
        });
        part.n_deleted = part.n_rows - n_allowed;
        part.deleted = std::move(refused);
    }
    return result;
}

Manifest gather_live(Layout layout, const Manifest& manifest, Work& work) {
    layout.n_tables = 0;
    layout.is_planned = false;
    const std::size_t n_live = manifest.n_live(), n_bytes = layout.n_bytes, width = layout.embedding_bytes;
    Array<std::uint8_t> codes(n_live * n_bytes), embeddings(n_live * width);
    Array<Id> ids(n_live);
    // A damaged file may not have every row.
    if (!manifest.is_verified()) {
        std::fill_n(codes.data(), codes.size(), std::uint8_t{0});
        std::fill_n(ids.data(), ids.size(), Id{0});
        std::fill_n(embeddings.data(), embeddings.size(), std::uint8_t{0});
    }
    std::size_t start = 0;
    for (const Part& part : manifest.parts) {
        if (part.n_live() == 0) continue;
        const Segment& segment = *part.segment;
        const LiveRows live(part);
        // By place, because codes lie so: rows are numbered in another order. In a damaged file, two places may have
        // the same row, and its number is still one of the part's.
        work.in_blocks(part.n_codes(), [&](std::size_t first, std::size_t last) {
            for (std::size_t place = first; place < last; ++place)
                segment.each_row_at(place, [&](RowNumber row) {
                    if (part.is_deleted(row)) return;
                    const std::size_t to = start + live.number(row);
                    std::memcpy(codes.data() + to * n_bytes, segment.codes.data() + place * n_bytes, n_bytes);
                    ids[to] = segment.ids[row];
                    if (width) std::memcpy(embeddings.data() + to * width, segment.embedding(row, width), width);
                });
        });
        start += part.n_live();
    }
    Manifest result;
    if (n_live)
        result.parts.push_back(new_part(layout, {{codes.data(), n_live, n_bytes}, ids.data(), embeddings.data()},
                                        id_order(ids.data(), n_live)));
    return result;
}

}  // namespace hamtarget
