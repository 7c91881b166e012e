// What a search sees: segments and which of their rows are deleted. Never changes once it is published.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "segment.hpp"

namespace hamtarget {

// The caller gave something that cannot be done; the text says what was found and what was expected.
struct InputError : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

// Where the writer puts new rows: the arrays of a segment that has room for kMinTableRows.
struct Delta {
    Array<std::uint8_t> codes;
    Array<std::int64_t> ids;
    Array<std::uint8_t> embeddings;
};

// A segment, and how much of it counts.
struct Part {
    std::shared_ptr<const Segment> segment;
    std::size_t n_rows = 0;  // a delta may have more: they came later
    std::size_t n_deleted = 0;
    std::shared_ptr<const std::vector<std::uint64_t>> deleted;  // one bit a row; nothing where none is deleted
    std::shared_ptr<const Delta> delta;                         // where more rows can be added

    bool is_deleted(std::size_t row) const { return deleted && ((*deleted)[row / 64] >> (row % 64) & 1); }
    std::size_t n_live() const { return n_rows - n_deleted; }
};

struct Manifest {
    std::vector<Part> parts;  // the delta, if there is one, comes last

    std::size_t n_live() const {
        std::size_t sum = 0;
        for (const Part& part : parts) sum += part.n_live();
        return sum;
    }
    std::size_t memory() const {
        std::size_t sum = 0;
        for (const Part& part : parts) sum += part.segment->memory() + (part.deleted ? part.deleted->size() * 8 : 0);
        return sum;
    }
};

// A caller's ids, each of which is there once, in ascending order.
class IdList {
  public:
    IdList(const std::int64_t* ids, std::size_t count) : ids_(ids), count_(count), order_(id_order(ids, count)) {
        for (std::size_t rank = 1; rank < count; ++rank)
            if (at(rank) == at(rank - 1))
                throw InputError("ids hold " + std::to_string(at(rank)) + " more than once; expected each id once");
    }

    std::size_t size() const { return count_; }
    std::size_t place(std::size_t rank) const { return order_.empty() ? rank : order_[rank]; }
    std::int64_t at(std::size_t rank) const { return ids_[place(rank)]; }
    std::int64_t given(std::size_t place) const { return ids_[place]; }
    const std::vector<std::uint32_t>& order() const { return order_; }

    // Rank of `id`, or size() where it is not in the list.
    std::size_t find(std::int64_t id) const {
        std::size_t low = 0, high = count_;
        while (low < high) {
            const std::size_t middle = (low + high) / 2;
            if (at(middle) < id)
                low = middle + 1;
            else
                high = middle;
        }
        return low < count_ && at(low) == id ? low : count_;
    }

  private:
    const std::int64_t* ids_;
    std::size_t count_;
    std::vector<std::uint32_t> order_;
};

// Calls found(place in the list, row) for each live row of the part whose id is in the list.
template <class Found>
void match_ids(const Part& part, const IdList& list, Found found) {
    const Segment& segment = *part.segment;
    if (list.size() == 0 || part.n_rows == 0) return;
    if (part.delta) {
        for (std::size_t row = 0; row < part.n_rows; ++row) {
            if (part.is_deleted(row)) continue;
            const std::size_t rank = list.find(segment.ids[row]);
            if (rank < list.size()) found(list.place(rank), row);
        }
        return;
    }
    // Ids that were given in ascending order lie past everything that is there.
    if (list.at(0) > segment.ids[part.n_rows - 1]) return;
    std::size_t row = 0;
    for (std::size_t rank = 0; rank < list.size() && row < part.n_rows; ++rank) {
        row = lower_row(segment, list.at(rank), row);
        if (row < part.n_rows && segment.ids[row] == list.at(rank) && !part.is_deleted(row))
            found(list.place(rank), row);
    }
}

// Live rows of several parts, copied one after another.
class GatheredRows {
  public:
    GatheredRows(const Layout& layout, std::size_t n_rows)
        : layout_(layout),
          codes_(n_rows * layout.n_bytes),
          ids_(n_rows),
          embeddings_(n_rows * layout.embedding_bytes) {}

    void append(const Part& part) {
        const Segment& segment = *part.segment;
        const CodesByRow codes = segment.codes_by_row(layout_.n_bytes);
        for (std::size_t row = 0; row < part.n_rows; ++row) {
            if (part.is_deleted(row)) continue;
            const std::int64_t id = segment.ids[row];
            append({{codes[row], 1, layout_.n_bytes},
                    &id,
                    segment.embeddings.data() + row * layout_.embedding_bytes});
        }
    }

    void append(const RowsView& rows) {
        const std::size_t count = rows.codes.n_rows, width = layout_.embedding_bytes;
        if (count == 0) return;
        std::memcpy(codes_.data() + filled_ * layout_.n_bytes, rows.codes.bytes, count * layout_.n_bytes);
        std::memcpy(ids_.data() + filled_, rows.ids, count * sizeof *rows.ids);
        if (width) std::memcpy(embeddings_.data() + filled_ * width, rows.embeddings, count * width);
        filled_ += count;
    }

    RowsView view() const { return {{codes_.data(), filled_, layout_.n_bytes}, ids_.data(), embeddings_.data()}; }

  private:
    Layout layout_;
    std::size_t filled_ = 0;
    Array<std::uint8_t> codes_;
    Array<std::int64_t> ids_;
    Array<std::uint8_t> embeddings_;
};

// Hits name the part that they come from in 16 bits; merging keeps parts far fewer.
inline constexpr std::size_t kMaxParts = 1000;

inline Part new_part(const Layout& layout, const RowsView& rows, const std::vector<std::uint32_t>& order) {
    if (rows.codes.n_rows > 0xFFFFFFFEu) throw InputError("more than 4,294,967,294 rows in one index; split it");
    return {std::make_shared<const Segment>(build_segment(layout, rows, order)), rows.codes.n_rows, 0, nullptr,
            nullptr};
}

// One part of all live rows of these.
inline Part merged_part(const Layout& layout, const std::vector<Part>& parts, const RowsView& more = {}) {
    std::size_t n_rows = more.codes.n_rows;
    for (const Part& part : parts) n_rows += part.n_live();
    GatheredRows gathered(layout, n_rows);
    for (const Part& part : parts) gathered.append(part);
    gathered.append(more);
    return new_part(layout, gathered.view(), id_order(gathered.view().ids, n_rows));
}

}  // namespace hamtarget
