// An index that changes: one writer at a time adds and deletes rows while others search.
//
// New rows go to a delta, which is scanned. A full delta becomes a segment with tables. Segments are merged: small ones by
// the writer, large ones by a thread, while the writer goes on (merge_policy.hpp). Nobody changes what a published
// manifest holds; a search holds on to the manifest it began with.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "../kernels/code_kernel.hpp"
#include "background.hpp"
#include "embedding.hpp"
#include "manifest.hpp"
#include "merge_policy.hpp"

namespace hamtarget {

class IdList;

class MultiIndex {
  public:
    MultiIndex(Layout layout, std::size_t radius, EmbeddingKind embedding, const CodeKernel& kernel,
               MergePolicy policy = {});

    const Layout& layout() const { return layout_; }
    // Return the radius of searches that name none.
    std::size_t radius() const { return radius_; }
    const EmbeddingKind& embedding() const { return embedding_; }
    const CodeKernel& kernel() const { return *kernel_; }

    // Return what there is now. It stays as it is while the caller holds it.
    std::shared_ptr<const Manifest> manifest() const {
        const std::lock_guard lock(manifest_mutex_);
        return manifest_;
    }

    // Each change applies to all of its rows, or to none if it throws (InputError, std::bad_alloc).
    void add(const RowsView& rows);
    void erase(const Id* ids, std::size_t count);
    // Give ids that are present other codes and embeddings. A search sees either the old rows or the new ones.
    void replace(const RowsView& rows);
    // Put everything into one segment, without the deleted rows.
    void compact();
    // Wait until no merge is due. What searches find stays the same.
    void settle();
    // Put a manifest in the place of everything that is there.
    void reset(Manifest manifest);

    bool contains(Id id) const;
    // Copy codes, and embeddings if there are some, in the order of the ids. Throws InputError for an unknown id.
    void get(const Id* ids, std::size_t count, std::uint8_t* codes, std::uint8_t* embeddings) const;
    // Return all ids, ascending.
    std::vector<Id> ids() const;

  private:
    // All of these but `merge_all` are for whoever holds write_mutex_.
    using Writing = std::unique_lock<std::mutex>;
    using Clock = std::chrono::steady_clock;

    // Begin a change: wait for room if parts are very many.
    Writing start_writing();
    // Wait for the thread that merges.
    void wait_for_thread(Writing& writing);
    void erase_from(Manifest& manifest, const IdList& list) const;
    void drop_deleted(Manifest& manifest) const;
    void append(Manifest& manifest, const RowsView& rows, const IdList& list) const;
    Part new_delta() const;
    void write_delta(Part& part, const RowsView& rows) const;
    void publish(Manifest next);
    void renew_filter(Manifest& manifest) const;

    bool is_merging(const Part& part) const;
    // Return the first part after those that the thread merges.
    std::size_t first_free(const Manifest& manifest) const;
    // Start the thread if a merge is due. A change has been published before, so this throws nothing.
    void start_merging() noexcept;
    // Return what should be merged now, and remember it in merging_.
    std::vector<Part> choose_merge();
    // Publish what the thread has made of merging_ since `start` (null: there was no memory), and return what it should
    // merge next.
    std::vector<Part> take_merged(std::optional<Part> merged, Clock::time_point start) noexcept;
    // Merge until nothing is due. This is what the thread does.
    static void merge_all(MultiIndex* index, const Background::Life& life, Layout layout, std::vector<Part> parts);

    Layout layout_;
    std::size_t radius_;
    EmbeddingKind embedding_;
    const CodeKernel* kernel_;
    MergePolicy policy_;
    std::mutex write_mutex_;
    mutable std::mutex manifest_mutex_;
    std::shared_ptr<const Manifest> manifest_;

    std::vector<Part> merging_;  // what the thread merges; empty: there is no thread
    std::condition_variable merged_;
    // When the thread has rested from its last merge into the first part.
    Clock::time_point rested_{};
    // After a merge that failed for want of memory: try again when there are so many rows.
    std::size_t retry_rows_ = 0;
    Background background_;  // destroyed first: its thread uses all the others
};

}  // namespace hamtarget
