#include "neighbors.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "../core/errors.hpp"
#include "../core/neighbors/neighbor_core.hpp"
#include "../core/neighbors/neighbor_search.hpp"
#include "arrays.hpp"

namespace hamtarget::bindings {

namespace {

using namespace nb::literals;

// Any array of one of the types that vectors have.
using Vectors = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu, nb::ndim<2>>;

constexpr std::array<const char*, 4> kRowTypes = {"int8", "uint8", "float16", "float32"};

template <class Enum, std::size_t n>
Enum named(const std::array<const char*, n>& names, const std::string& name, const char* what) {
    std::string all;
    for (std::size_t i = 0; i < n; ++i) {
        if (name == names[i]) return static_cast<Enum>(i);
        all += (i ? ", " : "") + std::string(names[i]);
    }
    throw InputError(std::string(what) + " is '" + name + "'; expected one of " + all);
}

template <class T, class From>
Array<const T> copied(const From& array) {
    Array<T> result(array.size());
    std::copy_n(array.data(), array.size(), result.data());
    return result;
}

// A numpy array that shares the elements.
template <class T>
auto shared(const Array<const T>& array) {
    auto* owned = new Array<const T>(array);
    nb::capsule owner(owned, [](void* pointer) noexcept { delete static_cast<Array<const T>*>(pointer); });
    return nb::ndarray<nb::numpy, const T, nb::ndim<1>>(owned->data(), {owned->size()}, owner);
}

template <class T>
auto matrix_of(std::vector<T>&& values, std::size_t n_rows, std::size_t n_columns) {
    auto* owned = new std::vector<T>(std::move(values));
    nb::capsule owner(owned, [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
    return Output<T, 2>(owned->data(), {n_rows, n_columns}, owner);
}

void expect_columns(std::size_t found, std::size_t expected, const char* what) {
    if (found != expected)
        throw InputError(std::string(what) + " have " + std::to_string(found) + " dimensions; expected " +
                         std::to_string(expected));
}

const NeighborKernel& neighbor_kernel_of(const std::optional<std::string>& name) {
    for (const NeighborKernel* kernel : supported_neighbor_kernels())
        if (!name || *name == kernel->name) return *kernel;
    throw InputError("kernel is '" + *name + "'; this CPU does not support it");
}

void construct(NeighborCore* self, std::size_t n_dims, const std::string& metric, const std::string& row_type,
               const Input<float, 2>& centres, const Input<float, 3>& codebooks,
               const std::optional<Input<float, 2>>& rotation, const std::optional<std::string>& kernel) {
    expect_columns(centres.shape(1), n_dims, "centres");
    if (codebooks.shape(1) != kPartEntries)
        throw InputError("the codebooks have " + std::to_string(codebooks.shape(1)) + " entries a part; expected 16");
    new (self) NeighborCore(n_dims, neighbor_metric(metric),
                            named<RowType>(kRowTypes, row_type, "row_type"), copied<float>(centres),
                            copied<float>(codebooks), codebooks.shape(2),
                            rotation ? copied<float>(*rotation) : Array<const float>(), neighbor_kernel_of(kernel));
}

void add(NeighborCore& core, const Input<std::int64_t, 1>& ids, const Vectors& vectors, std::size_t threads) {
    expect_columns(vectors.shape(1), core.shape().n_dims(), "vectors");
    if (ids.size() != vectors.shape(0))
        throw InputError("there are " + std::to_string(ids.size()) + " ids and " + std::to_string(vectors.shape(0)) +
                         " vectors; expected as many");
    NewVectors rows;
    if (vectors.dtype() == nb::dtype<float>())
        rows.floats = static_cast<const float*>(vectors.data());
    else if (vectors.dtype() == nb::dtype<std::uint8_t>())
        rows.uint8s = static_cast<const std::uint8_t*>(vectors.data());
    else if (vectors.dtype() == nb::dtype<std::int8_t>())
        rows.int8s = static_cast<const std::int8_t*>(vectors.data());
    else
        throw InputError("vectors are of another type; expected float32, uint8 or int8");
    nb::gil_scoped_release release;
    core.add(ids.data(), ids.size(), rows, threads);
}

std::size_t remove(NeighborCore& core, const Input<std::int64_t, 1>& ids) {
    nb::gil_scoped_release release;
    return core.remove(ids.data(), ids.size());
}

auto contains(NeighborCore& core, const Input<std::int64_t, 1>& ids) {
    std::vector<std::uint8_t> found(ids.size());
    {
        nb::gil_scoped_release release;
        core.contains(ids.data(), ids.size(), found.data());
    }
    return array_of(std::move(found));
}

auto get(NeighborCore& core, const Input<std::int64_t, 1>& ids) {
    std::vector<float> vectors(ids.size() * core.shape().n_dims());
    {
        nb::gil_scoped_release release;
        core.get(ids.data(), ids.size(), vectors.data());
    }
    return matrix_of(std::move(vectors), ids.size(), core.shape().n_dims());
}

auto found_by(const NeighborCore& core, const Input<float, 2>& queries, NeighborRequest request, std::size_t threads,
              const nb::object& limits) {
    expect_columns(queries.shape(1), core.shape().n_dims(), "queries");
    request.queries = queries.data();
    request.n_queries = queries.shape(0);
    if (!limits.is_none()) request.limits = nb::cast<Limits*>(limits);
    Neighbors found;
    {
        nb::gil_scoped_release release;
        found = search(core, request, threads);
    }
    return std::make_tuple(matrix_of(std::move(found.ids), request.n_queries, request.k),
                           matrix_of(std::move(found.distances), request.n_queries, request.k),
                           matrix_of(std::move(found.costs), request.n_queries, 2));
}

auto search_nearest(const NeighborCore& core, const Input<float, 2>& queries, std::size_t k, std::size_t budget,
                    std::size_t comparisons, std::size_t threads, const nb::object& limits) {
    NeighborRequest request;
    request.k = k;
    request.budget = budget;
    request.comparisons = comparisons;
    return found_by(core, queries, request, threads, limits);
}

auto search_cells(const NeighborCore& core, const Input<float, 2>& queries, const Input<std::int32_t, 2>& cells,
                  std::size_t k, std::size_t budget, std::size_t comparisons, std::size_t threads,
                  const nb::object& limits) {
    if (cells.shape(0) != queries.shape(0))
        throw InputError("there are cells for " + std::to_string(cells.shape(0)) + " queries; expected cells for " +
                         std::to_string(queries.shape(0)));
    NeighborRequest request;
    request.k = k;
    request.budget = budget;
    request.comparisons = comparisons;
    // No cell at all is not the same as no choice of cells.
    static const std::int32_t no_cell = -1;
    request.cells = cells.size() ? cells.data() : &no_cell;
    request.n_cells = cells.shape(1);
    return found_by(core, queries, request, threads, limits);
}

nb::dict state(NeighborCore& core) {
    std::shared_ptr<const Generation> rows;
    {
        nb::gil_scoped_release release;
        rows = core.compact();
    }
    const NeighborShape& shape = core.shape();
    nb::dict result;
    result["n_dims"] = shape.n_dims();
    result["metric"] = shape.metric.name;
    result["row_type"] = kRowTypes[static_cast<std::size_t>(shape.row_type)];
    result["part_dims"] = shape.sketcher.part_dims();
    result["centres"] = shared(shape.cells.centres());
    result["codebooks"] = shared(shape.sketcher.codebooks());
    result["rotation"] = shared(core.rotation());
    result["offsets"] = shared(rows->offsets);
    result["sketches"] = shared(rows->sketches);
    result["cell_biases"] = shared(rows->cell_biases);
    result["bias_step"] = rows->bias_step;
    result["vectors"] = shared(rows->vectors);
    result["scales"] = shared(rows->scales);
    result["ids"] = shared(rows->ids.small());
    result["large_ids"] = shared(rows->ids.large());
    return result;
}

template <class T>
Array<const T> array_in(const nb::dict& state, const char* key) {
    Input<T, 1> array;
    if (!state.contains(key) || !nb::try_cast(state[key], array, false))
        throw InputError(std::string("the saved index has no proper array '") + key + "'");
    return copied<T>(array);
}

template <class T>
T value_in(const nb::dict& state, const char* key) {
    T value{};
    if (!state.contains(key) || !nb::try_cast(state[key], value))
        throw InputError(std::string("the saved index has no proper value '") + key + "'");
    return value;
}

std::unique_ptr<NeighborCore> from_state(const nb::dict& state, const std::optional<std::string>& kernel) {
    auto core = std::make_unique<NeighborCore>(
        value_in<std::size_t>(state, "n_dims"),
        neighbor_metric(value_in<std::string>(state, "metric")),
        named<RowType>(kRowTypes, value_in<std::string>(state, "row_type"), "row_type"),
        array_in<float>(state, "centres"), array_in<float>(state, "codebooks"),
        value_in<std::size_t>(state, "part_dims"), array_in<float>(state, "rotation"), neighbor_kernel_of(kernel));
    Generation rows;
    rows.offsets = array_in<std::uint32_t>(state, "offsets");
    rows.sketches = array_in<std::uint8_t>(state, "sketches");
    rows.cell_biases = array_in<float>(state, "cell_biases");
    rows.bias_step = value_in<float>(state, "bias_step");
    rows.vectors = array_in<std::uint8_t>(state, "vectors");
    rows.scales = array_in<float>(state, "scales");
    rows.ids = IdArray(array_in<std::uint32_t>(state, "ids"), array_in<std::int64_t>(state, "large_ids"));
    rows.n_rows = rows.ids.size();
    nb::gil_scoped_release release;
    core->reset(std::move(rows));
    return core;
}

nb::dict bytes(const NeighborCore& core) {
    const auto parts = core.parts();
    std::size_t sketches = 0, vectors = 0, ids = 0, others = core.rotation().n_bytes();
    for (const NeighborPart& part : *parts) {
        sketches += part.rows->sketches.n_bytes();
        vectors += part.rows->vectors.n_bytes() + part.rows->scales.n_bytes();
        ids += part.rows->ids.n_bytes();
        others += part.rows->offsets.n_bytes() + part.rows->blocks.n_bytes() + part.rows->cell_biases.n_bytes();
        if (part.by_id) ids += part.by_id->n_bytes();
        if (part.deleted.marks) others += part.deleted.marks->size() * sizeof(std::uint64_t);
    }
    nb::dict result;
    result["sketches"] = sketches;
    result["vectors"] = vectors;
    result["ids"] = ids;
    result["cells"] = others + core.shape().cells.n_bytes() + core.shape().sketcher.n_bytes();
    return result;
}

auto find_nearest_centres(const Input<float, 2>& rows, const Input<float, 2>& centres, std::size_t threads) {
    expect_columns(rows.shape(1), centres.shape(1), "rows");
    std::vector<std::int32_t> nearest(rows.shape(0));
    std::vector<float> squares(rows.shape(0));
    {
        nb::gil_scoped_release release;
        nearest_centres(*supported_neighbor_kernels().front(), rows.data(), rows.shape(0), centres.data(),
                        centres.shape(0), centres.shape(1), threads, nearest.data(), squares.data());
    }
    return std::make_tuple(array_of(std::move(nearest)), array_of(std::move(squares)));
}

std::vector<std::string> neighbor_kernel_names() {
    std::vector<std::string> names;
    for (const NeighborKernel* kernel : supported_neighbor_kernels()) names.emplace_back(kernel->name);
    return names;
}

}  // namespace

void bind_neighbors(nb::module_& module) {
    module.def("neighbor_kernels", &neighbor_kernel_names,
               "Return the names of the kernels of NeighborCore that this CPU can run; the first is in use.");
    module.def("nearest_centres", &find_nearest_centres, "rows"_a.noconvert(), "centres"_a.noconvert(), "threads"_a = 1,
               "Return the nearest centre of each row, and the square of the Euclidean distance.");

    nb::class_<NeighborCore>(module, "NeighborCore",
                             "Vectors in cells, found by visiting the nearest cells of a query.")
        .def("__init__", &construct, "n_dims"_a, "metric"_a, "row_type"_a, "centres"_a.noconvert(),
             "codebooks"_a.noconvert(), "rotation"_a = nb::none(), "kernel"_a = nb::none())
        .def("add", &add, "ids"_a.noconvert(), "vectors"_a.noconvert(), nb::kw_only(), "threads"_a = 1)
        .def("remove", &remove, "ids"_a.noconvert(), "Remove the ids that are there, and return their number.")
        .def("contains", &contains, "ids"_a.noconvert(), "Return 1 for each id that is there, and 0 for the others.")
        .def("get", &get, "ids"_a.noconvert(), "Return the vectors of ids as they are kept, (ids, dims).")
        .def(
            "ids", [](const NeighborCore& core) { return array_of(core.ids()); }, "Return all ids, ascending.")
        .def("compact", [](NeighborCore& core) { (void)core.compact(); }, nb::call_guard<nb::gil_scoped_release>())
        .def("search", &search_nearest, "queries"_a.noconvert(), "k"_a, "budget"_a, "comparisons"_a, "threads"_a = 1,
             "limits"_a = nb::none(),
             "Return ids and distances, (queries, k), and the numbers of candidates and comparisons, (queries, 2).")
        .def("search_cells", &search_cells, "queries"_a.noconvert(), "cells"_a.noconvert(), "k"_a, "budget"_a,
             "comparisons"_a, "threads"_a = 1, "limits"_a = nb::none(),
             "Search the cells given for each query, best first; negative numbers stand for no cell.")
        .def("state", &state, "Return everything as arrays. The arrays of the rows are shared, and read-only.")
        .def_static("from_state", &from_state, "state"_a, "kernel"_a = nb::none(),
                    "Return the index that state() told of. Anything that does not fit is an InputError.")
        .def("bytes", &bytes, "Return the bytes of each part of the index.")
        .def("__len__", &NeighborCore::size)
        .def_prop_ro("n_generations", [](const NeighborCore& core) { return core.parts()->size(); })
        .def_prop_ro("n_cells", [](const NeighborCore& core) { return core.shape().cells.size(); })
        .def_prop_ro("n_dims", [](const NeighborCore& core) { return core.shape().n_dims(); });
}

}  // namespace hamtarget::bindings
