// Ids that are Python objects, most of them strings, of rows that an index knows by number.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "../kernels/codes.hpp"

namespace hamtarget::bindings {

namespace nb = nanobind;

// Rows below `first_named` are their own ids. Of the others, those that are known stand in pages: rows that were added
// one after another share one, and rows that are gone for long take no room. Use this only while holding the GIL.
class RowNames {
  public:
    explicit RowNames(Id first_named) : first_named_(first_named) {}
    RowNames(const RowNames&) = delete;
    RowNames& operator=(const RowNames&) = delete;

    // Remember ids by row. What is known stays.
    void add(const nb::dict& ids) {
        for (const auto& [key, id] : ids) {
            const Id row = nb::cast<Id>(key);
            if (row < first_named_) throw nb::value_error("a row below the first named one has no other id");
            auto& page = pages_[page_of(row)];
            if (!page) page = std::make_unique<Page>();
            nb::object& place = (*page)[place_of(row)];
            if (place.is_valid()) continue;
            place = nb::borrow(id);
            ++size_;
        }
    }

    // Count the ids that are remembered.
    std::size_t size() const { return size_; }

    bool knows(Id row) const { return row < first_named_ || find(row); }

    // Return the ids of rows; empty if one of them is not known.
    std::vector<nb::object> of(const Id* rows, std::size_t n_rows) const {
        std::vector<nb::object> ids(n_rows);
        std::vector<PyObject*> found(n_rows);
        // Each id lies somewhere else in memory. Waiting for one after another would take longer than the search.
        for (std::size_t i = 0; i < n_rows; ++i) {
            if (rows[i] < first_named_) continue;
            found[i] = find(rows[i]);
            if (!found[i]) return {};
            __builtin_prefetch(found[i], 1);
        }
        for (std::size_t i = 0; i < n_rows; ++i) ids[i] = found[i] ? nb::borrow(found[i]) : nb::cast(rows[i]);
        return ids;
    }

  private:
    static constexpr std::uint64_t kPageRows = 1024;
    using Page = std::array<nb::object, kPageRows>;

    std::uint64_t number_of(Id row) const {
        return static_cast<std::uint64_t>(row) - static_cast<std::uint64_t>(first_named_);
    }
    std::uint64_t page_of(Id row) const { return number_of(row) / kPageRows; }
    std::size_t place_of(Id row) const { return static_cast<std::size_t>(number_of(row) % kPageRows); }

    // Return the row's id, or null if it is not known.
    PyObject* find(Id row) const {
        const auto page = pages_.find(page_of(row));
        return page == pages_.end() ? nullptr : (*page->second)[place_of(row)].ptr();
    }

    Id first_named_;
    std::size_t size_ = 0;
    std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
};

}  // namespace hamtarget::bindings
