// An index that changes: rows are added and deleted by one writer at a time while others search.
//
// New rows go to a delta, which is scanned. A full delta becomes a segment with tables. Segments are merged so that
// each is several times larger than the next: a few segments, each row rebuilt a few times. A writer never changes
// what a published manifest holds; a search holds on to the manifest it began with.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernel.hpp"
#include "manifest.hpp"
#include "rerank.hpp"

namespace hamtarget {

class MultiIndex {
  public:
    MultiIndex(Layout layout, std::size_t radius, EmbeddingKind embedding, const Kernel& kernel)
        : layout_(layout),
          radius_(radius),
          embedding_(embedding),
          kernel_(&kernel),
          manifest_(std::make_shared<const Manifest>()) {
        layout_.embedding_bytes = embedding.row_bytes();
    }

    const Layout& layout() const { return layout_; }
    // What a search without a radius of its own looks within.
    std::size_t radius() const { return radius_; }
    const EmbeddingKind& embedding() const { return embedding_; }
    const Kernel& kernel() const { return *kernel_; }

    // What there is now. It stays as it is while the caller holds it.
    std::shared_ptr<const Manifest> manifest() const {
        const std::lock_guard lock(manifest_mutex_);
        return manifest_;
    }

    // All of the rows, or none where this throws (InputError, std::bad_alloc).
    void add(const RowsView& rows) {
        const std::lock_guard writing(write_mutex_);
        const IdList list(rows.ids, rows.codes.n_rows);
        Manifest next = *manifest();
        refuse_present(next, list);
        append(next, rows, list);
        publish(std::move(next));
    }

    void erase(const std::int64_t* ids, std::size_t count) {
        const std::lock_guard writing(write_mutex_);
        Manifest next = *manifest();
        erase_from(next, IdList(ids, count));
        publish(std::move(next));
    }

    // Other codes and embeddings for ids that are there; a search sees either the old rows or the new ones.
    void replace(const RowsView& rows) {
        const std::lock_guard writing(write_mutex_);
        const IdList list(rows.ids, rows.codes.n_rows);
        Manifest next = *manifest();
        erase_from(next, list);
        append(next, rows, list);
        publish(std::move(next));
    }

    // Everything in one segment, without what was deleted.
    void compact() {
        const std::lock_guard writing(write_mutex_);
        const auto now = manifest();
        if (now->parts.size() == 1 && !now->parts[0].delta && now->parts[0].n_deleted == 0) return;
        Manifest next;
        if (now->n_live()) next.parts.push_back(merged_part(layout_, now->parts));
        publish(std::move(next));
    }

    // Takes the place of everything that is there.
    void reset(Manifest manifest) {
        const std::lock_guard writing(write_mutex_);
        publish(std::move(manifest));
    }

    bool contains(std::int64_t id) const {
        const auto now = manifest();
        const IdList list(&id, 1);
        bool there = false;
        for (const Part& part : now->parts) match_ids(part, list, [&](std::size_t, std::size_t) { there = true; });
        return there;
    }

    // Codes, and embeddings where there are some, in the order of the ids.
    void get(const std::int64_t* ids, std::size_t count, std::uint8_t* codes, std::uint8_t* embeddings) const {
        const auto now = manifest();
        // An id may be asked for twice: look each one up once, then copy.
        std::vector<std::int64_t> unique(ids, ids + count);
        std::sort(unique.begin(), unique.end());
        unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
        const IdList list(unique.data(), unique.size());
        // Part and row of each; a part that has none of them need not know where its codes are.
        std::vector<std::pair<const Part*, std::size_t>> found(unique.size());
        std::vector<CodesByRow> codes_of(now->parts.size());
        for (std::size_t p = 0; p < now->parts.size(); ++p) {
            const Part& part = now->parts[p];
            bool any = false;
            match_ids(part, list, [&](std::size_t place, std::size_t row) { found[place] = {&part, row}, any = true; });
            if (any) codes_of[p] = part.segment->codes_by_row(layout_.n_bytes);
        }
        const std::size_t width = layout_.embedding_bytes;
        for (std::size_t i = 0; i < count; ++i) {
            const auto [part, row] = found[list.find(ids[i])];
            if (!part) throw unknown_id(ids[i]);
            const CodesByRow& by_row = codes_of[static_cast<std::size_t>(part - now->parts.data())];
            std::memcpy(codes + i * layout_.n_bytes, by_row[row], layout_.n_bytes);
            if (width) std::memcpy(embeddings + i * width, part->segment->embeddings.data() + row * width, width);
        }
    }

    // All ids, ascending.
    std::vector<std::int64_t> ids() const {
        const auto now = manifest();
        std::vector<std::int64_t> result;
        result.reserve(now->n_live());
        for (const Part& part : now->parts)
            for (std::size_t row = 0; row < part.n_rows; ++row)
                if (!part.is_deleted(row)) result.push_back(part.segment->ids[row]);
        std::sort(result.begin(), result.end());
        return result;
    }

  private:
    // A segment is merged with what follows unless it is this many times larger.
    static constexpr std::size_t kMergeRatio = 3;

    static InputError unknown_id(std::int64_t id) {
        return InputError("id " + std::to_string(id) + " is not in this index; expected ids that were added");
    }

    static void refuse_present(const Manifest& manifest, const IdList& list) {
        std::size_t count = 0, first = list.size();
        for (const Part& part : manifest.parts)
            match_ids(part, list, [&](std::size_t place, std::size_t) { ++count, first = std::min(first, place); });
        if (count)
            throw InputError("id " + std::to_string(list.given(first)) + " is in this index already (" +
                             std::to_string(count) + " of " + std::to_string(list.size()) +
                             " ids are); expected new ids");
    }

    void erase_from(Manifest& manifest, const IdList& list) const {
        std::vector<bool> known(list.size());
        for (Part& part : manifest.parts) {
            std::shared_ptr<std::vector<std::uint64_t>> deleted;
            match_ids(part, list, [&](std::size_t place, std::size_t row) {
                // Searches that go on keep the bits they began with.
                if (!deleted)
                    deleted = part.deleted ? std::make_shared<std::vector<std::uint64_t>>(*part.deleted)
                                           : std::make_shared<std::vector<std::uint64_t>>(words_for(part));
                (*deleted)[row / 64] |= std::uint64_t{1} << (row % 64);
                ++part.n_deleted;
                known[place] = true;
            });
            if (deleted) part.deleted = std::move(deleted);
        }
        for (std::size_t place = 0; place < list.size(); ++place)
            if (!known[place]) throw unknown_id(list.given(place));
        drop_deleted(manifest);
    }

    static std::size_t words_for(const Part& part) {
        const std::size_t rows = part.delta ? kMinTableRows : part.n_rows;
        return (rows + 63) / 64;
    }

    // A segment of which more than half is deleted is rebuilt: deleting costs constant time a row.
    void drop_deleted(Manifest& manifest) const {
        std::erase_if(manifest.parts, [](const Part& part) { return part.n_live() == 0; });
        for (Part& part : manifest.parts)
            if (!part.delta && part.n_deleted > part.n_live()) part = merged_part(layout_, {part});
    }

    void append(Manifest& manifest, const RowsView& rows, const IdList& list) const {
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

    Part new_delta() const {
        const Delta delta{Array<std::uint8_t>(kMinTableRows * layout_.n_bytes), Array<std::int64_t>(kMinTableRows),
                          Array<std::uint8_t>(kMinTableRows * layout_.embedding_bytes)};
        Segment segment;
        segment.n_rows = kMinTableRows;
        segment.codes = delta.codes;
        segment.ids = IdColumn(Array<const std::int64_t>(delta.ids));
        segment.embeddings = delta.embeddings;
        return {std::make_shared<const Segment>(std::move(segment)), 0, 0, nullptr,
                std::make_shared<const Delta>(delta)};
    }

    // Writes past the rows that any published manifest counts.
    void write_delta(Part& part, const RowsView& rows) const {
        const std::size_t count = rows.codes.n_rows, width = layout_.embedding_bytes;
        const Delta& delta = *part.delta;
        std::memcpy(delta.codes.data() + part.n_rows * layout_.n_bytes, rows.codes.bytes, count * layout_.n_bytes);
        std::memcpy(delta.ids.data() + part.n_rows, rows.ids, count * sizeof *rows.ids);
        if (width) std::memcpy(delta.embeddings.data() + part.n_rows * width, rows.embeddings, count * width);
        part.n_rows += count;
    }

    void publish(Manifest next) {
        auto shared = std::make_shared<const Manifest>(std::move(next));
        const std::lock_guard lock(manifest_mutex_);
        manifest_.swap(shared);
    }

    Layout layout_;
    std::size_t radius_;
    EmbeddingKind embedding_;
    const Kernel* kernel_;
    std::mutex write_mutex_;
    mutable std::mutex manifest_mutex_;
    std::shared_ptr<const Manifest> manifest_;
};

}  // namespace hamtarget
