#include "multi_index.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
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

MultiIndex::MultiIndex(Layout layout, std::size_t radius, EmbeddingKind embedding, const CodeKernel& kernel,
                       MergePolicy policy)
    : layout_(layout),
      radius_(radius),
      embedding_(embedding),
      kernel_(&kernel),
      policy_(policy),
      manifest_(std::make_shared<const Manifest>()) {
    layout_.embedding_bytes = embedding.row_bytes();
}

void MultiIndex::add(const RowsView& rows) {
    const Writing writing = start_writing();
    const IdList list(rows.ids, rows.codes.n_rows);
    Manifest next = *manifest();
    refuse_present(next, list);
    append(next, rows, list);
    publish(std::move(next));
    start_merging();
}

void MultiIndex::erase(const Id* ids, std::size_t count) {
    const Writing writing = start_writing();
    Manifest next = *manifest();
    erase_from(next, IdList(ids, count));
    publish(std::move(next));
    start_merging();
}

void MultiIndex::replace(const RowsView& rows) {
    const Writing writing = start_writing();
    const IdList list(rows.ids, rows.codes.n_rows);
    Manifest next = *manifest();
    erase_from(next, list);
    append(next, rows, list);
    publish(std::move(next));
    start_merging();
}

void MultiIndex::compact() {
    Writing writing(write_mutex_);
    wait_for_thread(writing);
    const auto now = manifest();
    if (now->parts.size() == 1 && !now->parts[0].delta && now->parts[0].n_deleted == 0) return;
    Manifest next;
    if (now->n_live()) next.parts.push_back(merged_part(layout_, now->parts));
    publish(std::move(next));
}

void MultiIndex::settle() {
    Writing writing(write_mutex_);
    wait_for_thread(writing);
}

void MultiIndex::reset(Manifest manifest) {
    Writing writing(write_mutex_);
    wait_for_thread(writing);
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

// Rebuild a small segment of which more than half is deleted: then deleting costs constant time a row. Large ones are left
// to the thread.
void MultiIndex::drop_deleted(Manifest& manifest) const {
    std::erase_if(manifest.parts, [&](const Part& part) { return part.n_live() == 0 && !is_merging(part); });
    for (Part& part : manifest.parts)
        if (!part.delta && part.n_deleted > part.n_live() && part.n_live() <= policy_.writer_rows && !is_merging(part))
            part = merged_part(layout_, {part});
}

void MultiIndex::append(Manifest& manifest, const RowsView& rows, const IdList& list) const {
    const std::size_t count = rows.codes.n_rows;
    if (count == 0) return;
    if (manifest.young) manifest.young->add(rows.codes);
    std::vector<Part>& parts = manifest.parts;
    const bool has_delta = !parts.empty() && parts.back().delta;
    const std::size_t used = has_delta ? parts.back().n_rows : 0;
    if (used + count <= kMinTableRows) {
        if (!has_delta) parts.push_back(new_delta());
        write_delta(parts.back(), rows);
        return;
    }
    const std::size_t first = first_free(manifest);
    std::vector<Part> merged;
    std::size_t total = count;
    // Searches look into each of the parts that have come while the thread was busy.
    const bool many = !merging_.empty() && parts.size() >= first + policy_.many_parts;
    const std::size_t most = many ? kManyTimes * policy_.writer_rows : policy_.writer_rows;
    const auto takes = [&](const Part& part) {
        const std::size_t live = part.n_live();
        return part.delta || ((many || live < kMergeRatio * total) && live + total <= most);
    };
    while (parts.size() > first && takes(parts.back())) {
        total += parts.back().n_live();
        merged.insert(merged.begin(), std::move(parts.back()));
        parts.pop_back();
    }
    parts.push_back(merged.empty() ? new_part(layout_, rows, list.order()) : merged_part(layout_, merged, rows));
}

Part MultiIndex::new_delta() const {
    const Delta delta{Array<std::uint8_t>(kMinTableRows * layout_.n_bytes), Array<Id>(kMinTableRows),
                      Array<std::uint8_t>(kMinTableRows * layout_.embedding_bytes),
                      YoungFilter::make(layout_.n_bytes, radius_, kMinTableRows)};
    Segment segment;
    segment.n_rows = segment.n_codes = kMinTableRows;
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
    if (delta.filter) delta.filter->add(rows.codes);
    part.n_rows += count;
}

void MultiIndex::publish(Manifest next) {
    renew_filter(next);
    auto shared = std::make_shared<const Manifest>(std::move(next));
    const std::lock_guard lock(manifest_mutex_);
    manifest_.swap(shared);
}

// Make a filter for the young parts where there is none, or where it is full.
void MultiIndex::renew_filter(Manifest& manifest) const {
    const auto& parts = manifest.parts;
    if (parts.size() < 2 || parts[0].segment->tables.empty()) {
        manifest.young.reset();
        return;
    }
    if (manifest.young && !manifest.young->is_full()) return;
    const std::size_t young = manifest.n_rows() - parts[0].n_rows;
    // Twice as many as are merged into the first part: more come while that merge goes on.
    const std::size_t capacity = std::max(2 * (parts[0].n_rows / policy_.young_share + kMinTableRows), 2 * young);
    manifest.young = YoungFilter::make(layout_.n_bytes, radius_, capacity);
    if (!manifest.young) return;
    for (std::size_t p = 1; p < parts.size(); ++p)
        manifest.young->add({parts[p].segment->codes.data(), parts[p].n_codes(), layout_.n_bytes});
}

MultiIndex::Writing MultiIndex::start_writing() {
    Writing writing(write_mutex_);
    if (manifest()->parts.size() >= policy_.most_parts) {
        wait_for_thread(writing);
        // The thread had no memory, or could not be started.
        if (const auto now = manifest(); now->parts.size() >= policy_.most_parts) {
            Manifest next;
            next.parts.push_back(merged_part(layout_, now->parts));
            publish(std::move(next));
        }
    }
    return writing;
}

void MultiIndex::wait_for_thread(Writing& writing) {
    if (background_.was_left_behind()) merging_.clear();
    merged_.wait(writing, [&] { return merging_.empty(); });
}

bool MultiIndex::is_merging(const Part& part) const {
    return std::any_of(merging_.begin(), merging_.end(), [&](const Part& one) { return one.segment == part.segment; });
}

std::size_t MultiIndex::first_free(const Manifest& manifest) const {
    std::size_t first = 0;
    for (std::size_t p = 0; p < manifest.parts.size(); ++p)
        if (is_merging(manifest.parts[p])) first = p + 1;
    return first;
}

void MultiIndex::start_merging() noexcept {
    if (background_.was_left_behind()) merging_.clear();
    if (!merging_.empty()) return;
    try {
        std::vector<Part> parts = choose_merge();
        if (parts.empty()) return;
        const auto work = [this, layout = layout_, parts = std::move(parts)](const Background::Life& life) mutable {
            merge_all(this, life, layout, std::move(parts));
        };
        if (background_.start(work)) return;
    } catch (const std::bad_alloc&) {
    }
    merging_.clear();
}

std::vector<Part> MultiIndex::choose_merge() {
    merging_.clear();
    const auto now = manifest();
    const PartRange due = due_merge(*now, policy_, Clock::now() >= rested_);
    if (due.empty() || now->n_rows() < retry_rows_) return {};
    const auto begin = now->parts.begin();
    merging_.assign(begin + static_cast<std::ptrdiff_t>(due.first), begin + static_cast<std::ptrdiff_t>(due.last));
    return merging_;
}

std::vector<Part> MultiIndex::take_merged(std::optional<Part> merged, Clock::time_point start) noexcept {
    try {
        if (merged) {
            Manifest next = *manifest();
            if (next.parts[0].segment == merging_[0].segment) {
                next.young.reset();
                const Clock::time_point now = Clock::now();
                rested_ = now + static_cast<Clock::rep>(policy_.rest) * (now - start);
            }
            put_in_place(next, merging_, std::move(*merged));
            publish(std::move(next));
            retry_rows_ = 0;
            std::vector<Part> parts = choose_merge();
            if (parts.empty()) merged_.notify_all();
            return parts;
        }
    } catch (const std::bad_alloc&) {
    }
    // The parts stay as they are, and searches are slower. More rows may need as much memory: wait for a few.
    retry_rows_ = manifest()->n_rows() / 64 * 65 + kMinTableRows;
    merging_.clear();
    merged_.notify_all();
    return {};
}

void MultiIndex::merge_all(MultiIndex* index, const Background::Life& life, Layout layout, std::vector<Part> parts) {
    while (!parts.empty()) {
        const Clock::time_point start = Clock::now();
        std::optional<Part> merged;
        try {
            merged = merged_part(layout, parts);
        } catch (const std::exception&) {
            // There is no memory, or there are too many rows for one part.
        }
        std::vector<Part> following;
        {
            const Background::Publishing publishing(life, [&]() -> std::mutex& { return index->write_mutex_; });
            if (!publishing) return;
            following = index->take_merged(std::move(merged), start);
        }
        // Only now are the old parts freed, which takes long: nobody waits for it.
        parts = std::move(following);
    }
}

}  // namespace hamtarget
