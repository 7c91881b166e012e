// Hits of one query as Python tuples.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "../core/hits.hpp"
#include "row_names.hpp"

namespace hamtarget::bindings {

// Make an object of `type`, a kind of tuple, whose items are still to be set. Calling the type would take longer than
// the search.
inline nb::object new_tuple(nb::handle type, std::size_t size) {
    auto* python_type = reinterpret_cast<PyTypeObject*>(type.ptr());
    PyObject* object = python_type->tp_alloc(python_type, static_cast<Py_ssize_t>(size));
    if (!object) nb::raise_python_error();
#if PY_VERSION_HEX >= 0x030E0000
    // Since Python 3.14, tuples keep their hash. tp_alloc fills memory with zeros, and 0 would count as a hash; -1 says
    // that it is not known yet. tuple.__new__ does the same.
    reinterpret_cast<PyTupleObject*>(object)->ob_hash = -1;
#endif
    return nb::steal(object);
}

template <class T>
void set_item(nb::handle tuple, std::size_t index, T value) {
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(index), nb::cast(value).release().ptr());
}

// Return the hits of one query as a `hits_type` of `hit_type` (kinds of tuple, of any number of items and of 3), with
// names in place of row numbers. Return an invalid object if one of the names is not known.
inline nb::object tuples_of(const Hits& found, bool reranks, nb::handle hits_type, nb::handle hit_type,
                            const RowNames* names) {
    std::vector<nb::object> ids;
    if (names) {
        ids = names->of(found.ids.data(), found.ids.size());
        if (ids.size() != found.ids.size()) return {};
    }
    nb::object hits = new_tuple(hits_type, found.ids.size());
    for (std::size_t i = 0; i < found.ids.size(); ++i) {
        nb::object hit = new_tuple(hit_type, 3);
        set_item(hit, 0, names ? std::move(ids[i]) : nb::object(nb::cast(found.ids[i])));
        set_item(hit, 1, found.distances[i]);
        set_item(hit, 2, reranks ? nb::cast(found.embedding_distances[i]) : nb::none());
        set_item(hits, i, std::move(hit));
    }
    return hits;
}

}  // namespace hamtarget::bindings
