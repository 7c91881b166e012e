// Ids that are Python objects, most of them strings, of rows that an index knows by number.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "../kernels/codes.hpp"

namespace hamtarget::bindings {

namespace nb = nanobind;

// Holds the memory of a numpy array of objects. (nanobind's arrays hold numbers only.)
class ObjectArray {
  public:
    explicit ObjectArray(nb::handle array) {
        if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_ND | PyBUF_FORMAT) != 0) nb::raise_python_error();
        if (view_.ndim != 1 || std::strcmp(view_.format, "O") != 0) {
            PyBuffer_Release(&view_);
            throw nb::type_error("expected an array of objects with one dimension");
        }
    }
    ~ObjectArray() { PyBuffer_Release(&view_); }
    ObjectArray(const ObjectArray&) = delete;
    ObjectArray& operator=(const ObjectArray&) = delete;

    std::size_t size() const { return static_cast<std::size_t>(view_.shape[0]); }
    PyObject* operator[](std::size_t place) const { return static_cast<PyObject* const*>(view_.buf)[place]; }

  private:
    Py_buffer view_;
};

// Rows below `first_named` are their own ids. An array holds the known ids of other rows, which are consecutive.
// Use this only while holding the GIL.
class RowNames {
  public:
    using Known = nb::ndarray<const bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

    explicit RowNames(Id first_named) : first_named_(first_named) {}

    // Take ids[i] as the id of row first + i from now on, if it is not None and is_known[i] is true. Both arrays may
    // still be written to, `is_known` after `ids`.
    void hold(Id first, nb::handle ids, Known is_known) {
        auto fresh = std::make_unique<ObjectArray>(ids);
        if (is_known.size() != fresh->size()) throw nb::value_error("ids and is_known differ in length");
        // What was held before is freed at the end, when this is consistent again.
        first_ = first;
        std::swap(is_known_, is_known);
        std::swap(ids_, fresh);
    }

    // Tell whether the ids of all of the rows are known.
    bool know(const Id* rows, std::size_t n_rows) const {
        const std::size_t n_ids = size();
        const bool* known = n_ids ? is_known_.data() : nullptr;
        for (std::size_t i = 0; i < n_rows; ++i) {
            if (rows[i] < first_named_) continue;
            const std::size_t place = place_of(rows[i]);
            if (place >= n_ids || !known[place]) return false;
        }
        return true;
    }

    // Fetch ids from memory: each lies somewhere else, and waiting for one after another would take longer than the
    // search. Return false if some row lies outside of the array. (GCC drops a call that only prefetches and returns
    // nothing.)
    bool fetch(const Id* rows, std::size_t n_rows) const {
        const std::size_t n_ids = size();
        for (std::size_t i = 0; i < n_rows; ++i) {
            if (rows[i] < first_named_) continue;
            const std::size_t place = place_of(rows[i]);
            if (place >= n_ids) return false;
            __builtin_prefetch((*ids_)[place], 1);
        }
        return true;
    }

    // Return the row's id, or an invalid object if it is not known.
    nb::object id_of(Id row) const {
        if (row < first_named_) return nb::cast(row);
        const std::size_t place = place_of(row);
        PyObject* id = place < size() ? (*ids_)[place] : nullptr;
        return id == Py_None ? nb::object() : nb::borrow(id);
    }

  private:
    std::size_t size() const { return ids_ ? ids_->size() : 0; }
    // A row before the first gets a place past the last.
    std::size_t place_of(Id row) const {
        return static_cast<std::size_t>(row) - static_cast<std::size_t>(first_);
    }

    Id first_named_;
    Id first_ = 0;
    std::unique_ptr<ObjectArray> ids_;
    Known is_known_;
};

}  // namespace hamtarget::bindings
