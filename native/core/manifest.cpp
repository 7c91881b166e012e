#include "manifest.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "errors.hpp"
#include "live_rows.hpp"
#include "segment_builder.hpp"

namespace hamtarget {

namespace {

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
        const std::size_t n_bytes = layout_.n_bytes, width = layout_.embedding_bytes;
        const LiveRows live(part);
        // A damaged file may not have every row.
        if (!segment.is_verified) std::memset(codes_.data() + filled_ * n_bytes, 0, part.n_live() * n_bytes);
        // Codes by place, because they lie so. (Segment::codes_by_row would lock: a child that is forked meanwhile would
        // find it locked for ever.)
        for (std::size_t place = 0; place < part.n_codes(); ++place)
            segment.each_row_at(place, [&](RowNumber row) {
                if (part.is_deleted(row)) return;
                std::memcpy(codes_.data() + (filled_ + live.number(row)) * n_bytes,
                            segment.codes.data() + place * n_bytes, n_bytes);
            });
        for (std::size_t i = 0; i < part.n_rows; ++i) {
            const RowNumber row = row_number(i);
            if (part.is_deleted(row)) continue;
            ids_[filled_] = segment.ids[row];
            if (width) std::memcpy(embeddings_.data() + filled_ * width, segment.embedding(row, width), width);
            ++filled_;
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
    Array<Id> ids_;
    Array<std::uint8_t> embeddings_;
};

// Call found(row) for each row that is deleted now and was not before.
template <class Found>
void each_newly_deleted(const Part& before, const Part& now, Found found) {
    if (now.deleted == before.deleted) return;
    for (std::size_t word = 0; word < now.deleted->size(); ++word) {
        std::uint64_t bits = (*now.deleted)[word] & ~(before.deleted ? (*before.deleted)[word] : 0);
        for (; bits; bits &= bits - 1) found(row_number(64 * word + static_cast<std::size_t>(std::countr_zero(bits))));
    }
}

}  // namespace

Part new_part(const Layout& layout, const RowsView& rows, const std::vector<std::uint32_t>& order) {
    if (rows.codes.n_rows > 0xFFFFFFFEu) throw InputError("more than 4,294,967,294 rows in one index; split it");
    return {std::make_shared<const Segment>(build_segment(layout, rows, order)), rows.codes.n_rows, 0, nullptr,
            nullptr};
}

Part merged_part(const Layout& layout, const std::vector<Part>& parts, const RowsView& more) {
    std::size_t n_rows = more.codes.n_rows;
    for (const Part& part : parts) n_rows += part.n_live();
    GatheredRows gathered(layout, n_rows);
    for (const Part& part : parts) gathered.append(part);
    gathered.append(more);
    return new_part(layout, gathered.view(), id_order(gathered.view().ids, n_rows));
}

void put_in_place(Manifest& manifest, const std::vector<Part>& sources, Part merged) {
    const auto is_first = [&](const Part& part) { return part.segment == sources[0].segment; };
    const auto first = std::find_if(manifest.parts.begin(), manifest.parts.end(), is_first);
    const Segment& segment = *merged.segment;
    auto deleted = std::make_shared<std::vector<std::uint64_t>>((segment.n_rows + 63) / 64);
    for (std::size_t i = 0; i < sources.size(); ++i) {
        std::size_t at = 0;
        each_newly_deleted(sources[i], first[static_cast<std::ptrdiff_t>(i)], [&](RowNumber row) {
            const Id id = sources[i].segment->ids[row];
            at = lower_row(segment, id, at);
            if (at == segment.n_rows || segment.ids[row_number(at)] != id) return;
            std::uint64_t& word = (*deleted)[at / 64];
            const std::uint64_t bit = std::uint64_t{1} << at % 64;
            // Ids of a damaged file may name a row twice.
            merged.n_deleted += (word & bit) == 0;
            word |= bit;
        });
    }
    if (merged.n_deleted) merged.deleted = std::move(deleted);
    const auto rest = manifest.parts.erase(first, first + static_cast<std::ptrdiff_t>(sources.size()));
    if (merged.n_live()) manifest.parts.insert(rest, std::move(merged));
}

}  // namespace hamtarget
