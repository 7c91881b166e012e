// An index that changes: one writer at a time adds and deletes rows while others search.
//
// New rows go to a delta, which is scanned. A full delta becomes a segment with tables. Segments are merged so that
// each is several times larger than the next: there are a few segments, and each row is rebuilt a few times. A writer
// never changes what a published manifest holds; a search holds on to the manifest it began with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "../kernels/code_kernel.hpp"
#include "embedding.hpp"
#include "manifest.hpp"

namespace hamtarget {

class IdList;

class MultiIndex {
  public:
    MultiIndex(Layout layout, std::size_t radius, EmbeddingKind embedding, const CodeKernel& kernel);

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
    // Put a manifest in the place of everything that is there.
    void reset(Manifest manifest);

    bool contains(Id id) const;
    // Copy codes, and embeddings if there are some, in the order of the ids. Throws InputError for an unknown id.
    void get(const Id* ids, std::size_t count, std::uint8_t* codes, std::uint8_t* embeddings) const;
    // Return all ids, ascending.
    std::vector<Id> ids() const;

  private:
    void erase_from(Manifest& manifest, const IdList& list) const;
    void drop_deleted(Manifest& manifest) const;
    void append(Manifest& manifest, const RowsView& rows, const IdList& list) const;
    Part new_delta() const;
    void write_delta(Part& part, const RowsView& rows) const;
    void publish(Manifest next);

    Layout layout_;
    std::size_t radius_;
    EmbeddingKind embedding_;
    const CodeKernel* kernel_;
    std::mutex write_mutex_;
    mutable std::mutex manifest_mutex_;
    std::shared_ptr<const Manifest> manifest_;
};

}  // namespace hamtarget
