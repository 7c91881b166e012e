// What a search sees: segments, and which of their rows are deleted. A manifest never changes once it is published.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "segment.hpp"
#include "young_filter.hpp"

namespace hamtarget {

// Where the writer puts new rows: the arrays of a segment that has room for kMinTableRows.
struct Delta {
    Array<std::uint8_t> codes;
    Array<Id> ids;
    Array<std::uint8_t> embeddings;
    std::shared_ptr<YoungFilter> filter;  // has every row; null: every query scans the rows
};

// A segment, and how much of it counts.
struct Part {
    std::shared_ptr<const Segment> segment;
    std::size_t n_rows = 0;  // a delta may have more: they came later
    std::size_t n_deleted = 0;
    std::shared_ptr<const std::vector<std::uint64_t>> deleted;  // one bit a row; null where no row is deleted
    std::shared_ptr<const Delta> delta;                         // where more rows can be added

    // A row past the last, which a damaged file may name, is deleted.
    bool is_deleted(RowNumber row) const {
        if (!deleted) return false;
        const std::size_t word = raw(row) / 64;
        return word >= deleted->size() || ((*deleted)[word] >> (raw(row) % 64) & 1);
    }
    std::size_t n_live() const { return n_rows - n_deleted; }
    // Count the places of codes.
    std::size_t n_codes() const { return segment->shared.empty() ? n_rows : segment->n_codes; }
};

struct Manifest {
    std::vector<Part> parts;  // the delta, if there is one, comes last
    // Has every row of the parts after the first. Null: every query looks into them.
    std::shared_ptr<YoungFilter> young;

    // Count the rows that are read, deleted ones included.
    std::size_t n_rows() const {
        std::size_t sum = 0;
        for (const Part& part : parts) sum += part.n_rows;
        return sum;
    }
    std::size_t n_live() const {
        std::size_t sum = 0;
        for (const Part& part : parts) sum += part.n_live();
        return sum;
    }
    std::size_t memory() const {
        std::size_t sum = 0;
        for (const Part& part : parts) sum += part.segment->memory() + (part.deleted ? part.deleted->size() * 8 : 0);
        return sum + (young ? young->memory() : 0);
    }
    bool is_verified() const {
        for (const Part& part : parts)
            if (!part.segment->is_verified) return false;
        return true;
    }
};

// Hits name the part that they come from in 16 bits; merging keeps parts far fewer.
inline constexpr std::size_t kMaxParts = 1000;

// Build a part of these rows. `order` is that of their ids.
Part new_part(const Layout& layout, const RowsView& rows, const std::vector<std::uint32_t>& order);

// Build one part of all live rows of these parts, and of more rows.
Part merged_part(const Layout& layout, const std::vector<Part>& parts, const RowsView& more = {});

// Put `merged` in the place of the parts that it was made of, which are in the manifest one after another. Rows of them
// that have been deleted since are deleted in it.
void put_in_place(Manifest& manifest, const std::vector<Part>& sources, Part merged);

}  // namespace hamtarget
