#include "multi_index.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "errors.hpp"
#include "segment_builder.hpp"

namespace hamtarget {

// A caller's ids in ascending order. Throws InputError if one of them is there twice.
class IdList {
  public:
    IdList(const Id* ids, std::size_t count) : ids_(ids), count_(count), order_(id_order(ids, count)) {
        for (std::size_t rank = 1; rank < count; ++rank)
            if (at(rank) == at(rank - 1))
                throw InputError("ids hold " + std::to_string(at(rank)) + " more than once; expected each id once");
    }

    std::size_t size() const { return count_; }
    // Return where the id of a rank is in the caller's array.
    std::size_t place(std::size_t rank) const { return order_.empty() ? rank : order_[rank]; }
    Id at(std::size_t rank) const { return ids_[place(rank)]; }
    Id given(std::size_t place) const { return ids_[place]; }
    const std::vector<std::uint32_t>& order() const { return order_; }

    // Return the rank of `id`, or size() if it is not in the list.
    std::size_t find(Id id) const {
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
    const Id* ids_;
    std::size_t count_;
    std::vector<std::uint32_t> order_;
};

namespace {

// A segment is merged with those that follow unless it is this many times larger.
constexpr std::size_t kMergeRatio = 3;

// Call found(place in the list, row) for each live row of the part whose id is in the list.
template <class Found>
void match_ids(const Part& part, const IdList& list, Found found) {
    const Segment& segment = *part.segment;
    if (list.size() == 0 || part.n_rows == 0) return;
    if (part.delta) {
        for (std::size_t i = 0; i < part.n_rows; ++i) {
            const RowNumber row = row_number(i);
            if (part.is_deleted(row)) continue;
            const std::size_t rank = list.find(segment.ids[row]);
            if (rank < list.size()) found(list.place(rank), row);
        }
        return;
    }
    // New ids are often larger than all that are present.
    if (list.at(0) > segment.ids[row_number(part.n_rows - 1)]) return;
    std::size_t at = 0;
    for (std::size_t rank = 0; rank < list.size() && at < part.n_rows; ++rank) {
        at = lower_row(segment, list.at(rank), at);
        const RowNumber row = row_number(at);
        if (at < part.n_rows && segment.ids[row] == list.at(rank) && !part.is_deleted(row))
            found(list.place(rank), row);
    }
}

InputError unknown_id(Id id) {
    return InputError("id " + std::to_string(id) + " is not in this index; expected ids that were added");
}

void refuse_present(const Manifest& manifest, const IdList& list) {
    std::size_t count = 0, first = list.size();
    for (const Part& part : manifest.parts)
        match_ids(part, list, [&](std::size_t place, RowNumber) { ++count, first = std::min(first, place); });
    if (count)
        throw InputError("id " + std::to_string(list.given(first)) + " is in this index already (" +
                         std::to_string(count) + " of " + std::to_string(list.size()) + " ids are); expected new ids");
}

std::size_t words_for(const Part& part) {
    const std::size_t rows = part.delta ? kMinTableRows : part.n_rows;
    return (rows + 63) / 64;
}

}  // namespace

MultiIndex::MultiIndex(Layout layout, std::size_t radius, EmbeddingKind embedding, const CodeKernel& kernel)
    : layout_(layout),
      radius_(radius),
      embedding_(embedding),
      kernel_(&kernel),
      manifest_(std::make_shared<const Manifest>()) {
    layout_.embedding_bytes = embedding.row_bytes();
}

void MultiIndex::add(const RowsView& rows) {
    const std::lock_guard writing(write_mutex_);
    const IdList list(rows.ids, rows.codes.n_rows);
    Manifest next = *manifest();
    refuse_present(next, list);
    append(next, rows, list);
    publish(std::move(next));
}

void MultiIndex::erase(const Id* ids, std::size_t count) {
    const std::lock_guard writing(write_mutex_);
    Manifest next = *manifest();
    erase_from(next, IdList(ids, count));
    publish(std::move(next));
}

void MultiIndex::replace(const RowsView& rows) {
    const std::lock_guard writing(write_mutex_);
    const IdList list(rows.ids, rows.codes.n_rows);
    Manifest next = *manifest();
    erase_from(next, list);
    append(next, rows, list);
    publish(std::move(next));
}

void MultiIndex::compact() {
    const std::lock_guard writing(write_mutex_);
    const auto now = manifest();
    if (now->parts.size() == 1 && !now->parts[0].delta && now->parts[0].n_deleted == 0) return;
    Manifest next;
    if (now->n_live()) next.parts.push_back(merged_part(layout_, now->parts));
    publish(std::move(next));
}

void MultiIndex::reset(Manifest manifest) {
    const std::lock_guard writing(write_mutex_);
    publish(std::move(manifest));
}

bool MultiIndex::contains(Id id) const {
    const auto now = manifest();
    const IdList list(&id, 1);
    bool there = false;
    for (const Part& part : now->parts) match_ids(part, list, [&](std::size_t, RowNumber) { there = true; });
    return there;
}

void MultiIndex::get(const Id* ids, std::size_t count, std::uint8_t* codes, std::uint8_t* embeddings) const {
    const auto now = manifest();
    // An id may be asked for twice: look each one up once, then copy.
    std::vector<Id> unique(ids, ids + count);
    std::sort(unique.begin(), unique.end());
    unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
    const IdList list(unique.data(), unique.size());
    // Part and row of each. A part that has none of them need not know where its codes are.
    std::vector<std::pair<const Part*, RowNumber>> found(unique.size());
    std::vector<CodesByRow> codes_of(now->parts.size());
    for (std::size_t p = 0; p < now->parts.size(); ++p) {
        const Part& part = now->parts[p];
        bool any = false;
        match_ids(part, list, [&](std::size_t place, RowNumber row) { found[place] = {&part, row}, any = true; });
        if (any) codes_of[p] = part.segment->codes_by_row(layout_.n_bytes);
    }
    const std::size_t width = layout_.embedding_bytes;
    for (std::size_t i = 0; i < count; ++i) {
        const auto [part, row] = found[list.find(ids[i])];
        if (!part) throw unknown_id(ids[i]);
        const CodesByRow& by_row = codes_of[static_cast<std::size_t>(part - now->parts.data())];
        std::memcpy(codes + i * layout_.n_bytes, by_row[row], layout_.n_bytes);
        if (width) std::memcpy(embeddings + i * width, part->segment->embeddings.data() + raw(row) * width, width);
    }
}

std::vector<Id> MultiIndex::ids() const {
    const auto now = manifest();
    std::vector<Id> result;
    result.reserve(now->n_live());
    for (const Part& part : now->parts)
        for (std::size_t i = 0; i < part.n_rows; ++i)
            if (!part.is_deleted(row_number(i))) result.push_back(part.segment->ids[row_number(i)]);
    std::sort(result.begin(), result.end());
    return result;
}

void MultiIndex::erase_from(Manifest& manifest, const IdList& list) const {
    std::vector<bool> known(list.size());
    for (Part& part : manifest.parts) {
        std::shared_ptr<std::vector<std::uint64_t>> deleted;
        match_ids(part, list, [&](std::size_t place, RowNumber row) {
            // Searches that go on keep the bits they began with.
            if (!deleted)
                deleted = part.deleted ? std::make_shared<std::vector<std::uint64_t>>(*part.deleted)
                                       : std::make_shared<std::vector<std::uint64_t>>(words_for(part));
            (*deleted)[raw(row) / 64] |= std::uint64_t{1} << (raw(row) % 64);
            ++part.n_deleted;
            known[place] = true;
        });
        if (deleted) part.deleted = std::move(deleted);
    }
    for (std::size_t place = 0; place < list.size(); ++place)
        if (!known[place]) throw unknown_id(list.given(place));
    drop_deleted(manifest);
}

// Rebuild a segment of which more than half is deleted: then deleting costs constant time a row.
void MultiIndex::drop_deleted(Manifest& manifest) const {
    std::erase_if(manifest.parts, [](const Part& part) { return part.n_live() == 0; });
    for (Part& part : manifest.parts)
        if (!part.delta && part.n_deleted > part.n_live()) part = merged_part(layout_, {part});
}

void MultiIndex::append(Manifest& manifest, const RowsView& rows, const IdList& list) const {
    const std::size_t count = rows.codes.n_rows;
    if (count == 0) return;
    std::vector<Part>& parts = manifest.parts;
    const bool has_delta = !parts.empty() && parts.back().delta;
    const std::size_t used = has_delta ? parts.back().n_rows : 0;
    if (used + count <= kMinTableRows) {
        if (!has_delta) parts.push_back(new_delta());
        write_delta(parts.back(), rows);
        return;
    }
    std::vector<Part> merged;
    std::size_t total = count;
    while (!parts.empty() && (parts.back().delta || parts.back().n_live() < kMergeRatio * total)) {
        total += parts.back().n_live();
        merged.insert(merged.begin(), std::move(parts.back()));
        parts.pop_back();
    }
    parts.push_back(merged.empty() ? new_part(layout_, rows, list.order()) : merged_part(layout_, merged, rows));
}

Part MultiIndex::new_delta() const {
    const Delta delta{Array<std::uint8_t>(kMinTableRows * layout_.n_bytes), Array<Id>(kMinTableRows),
                      Array<std::uint8_t>(kMinTableRows * layout_.embedding_bytes)};
    Segment segment;
    segment.n_rows = kMinTableRows;
    segment.codes = delta.codes;
    segment.ids = IdColumn(Array<const Id>(delta.ids));
    segment.embeddings = delta.embeddings;
    return {std::make_shared<const Segment>(std::move(segment)), 0, 0, nullptr, std::make_shared<const Delta>(delta)};
}

// Write past the rows that any published manifest counts.
void MultiIndex::write_delta(Part& part, const RowsView& rows) const {
    const std::size_t count = rows.codes.n_rows, width = layout_.embedding_bytes;
    const Delta& delta = *part.delta;
    std::memcpy(delta.codes.data() + part.n_rows * layout_.n_bytes, rows.codes.bytes, count * layout_.n_bytes);
    std::memcpy(delta.ids.data() + part.n_rows, rows.ids, count * sizeof *rows.ids);
    if (width) std::memcpy(delta.embeddings.data() + part.n_rows * width, rows.embeddings, count * width);
    part.n_rows += count;
}

void MultiIndex::publish(Manifest next) {
    auto shared = std::make_shared<const Manifest>(std::move(next));
    const std::lock_guard lock(manifest_mutex_);
    manifest_.swap(shared);
}

}  // namespace hamtarget
