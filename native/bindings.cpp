// What Python sees of the native core. Types in, types out; no logic.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "index_file.hpp"
#include "kernel.hpp"
#include "multi_index.hpp"
#include "row_names.hpp"
#include "search.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace hamtarget;

namespace {

template <class T, std::size_t n_dims>
using Input = nb::ndarray<const T, nb::ndim<n_dims>, nb::c_contig, nb::device::cpu>;

template <class T, std::size_t n_dims = 1>
using Output = nb::ndarray<nb::numpy, T, nb::ndim<n_dims>>;

using Ids = Input<std::int64_t, 1>;
using Bytes = Input<std::uint8_t, 2>;

Codes codes_of(const Bytes& array) { return {array.data(), array.shape(0), array.shape(1)}; }

const Kernel& kernel_of(const std::optional<std::string>& name) { return name ? kernel_named(*name) : best_kernel(); }

// A numpy array that owns `values`: nothing is copied.
template <class Values>
auto array_of(Values&& values) {
    using T = std::remove_reference_t<decltype(values[0])>;
    auto* owned = new std::remove_reference_t<Values>(std::move(values));
    nb::capsule owner(owned,
                      [](void* pointer) noexcept { delete static_cast<std::remove_reference_t<Values>*>(pointer); });
    return Output<T>(owned->data(), {owned->size()}, owner);
}

std::vector<std::string> kernel_names() {
    std::vector<std::string> names;
    for (const auto& kernel : supported_kernels()) names.emplace_back(kernel.name);
    return names;
}

auto distances(const Input<std::uint8_t, 1>& query, const Bytes& codes, const std::optional<std::string>& kernel) {
    const auto& chosen = kernel_of(kernel);
    std::vector<Distance> result(codes.shape(0));
    {
        nb::gil_scoped_release release;
        chosen.distances(query.data(), codes_of(codes), result.data());
    }
    return array_of(std::move(result));
}

// Of the kernels alone, for their tests.
auto within(const Input<std::uint8_t, 1>& query, const Bytes& codes, std::size_t radius,
            const std::optional<std::string>& kernel) {
    const auto& chosen = kernel_of(kernel);
    const Codes all = codes_of(codes);
    std::vector<std::uint32_t> positions(kBlockRows + kKernelSlack), rows;
    std::vector<Distance> near(kBlockRows + kKernelSlack), distances;
    for (std::size_t start = 0; start < all.n_rows; start += kBlockRows) {
        const Codes block = all.slice(start, std::min(kBlockRows, all.n_rows - start));
        const std::size_t count =
            chosen.within(query.data(), block, static_cast<Distance>(radius), positions.data(), near.data());
        for (std::size_t i = 0; i < count; ++i) {
            rows.push_back(static_cast<std::uint32_t>(start + positions[i]));
            distances.push_back(near[i]);
        }
    }
    return std::make_tuple(array_of(std::move(rows)), array_of(std::move(distances)));
}

RowsView rows_of(const Ids& ids, const Bytes& codes, const std::optional<Bytes>& embeddings) {
    return {codes_of(codes), ids.data(), embeddings ? embeddings->data() : nullptr};
}

void add(MultiIndex& index, const Ids& ids, const Bytes& codes, const std::optional<Bytes>& embeddings) {
    const RowsView rows = rows_of(ids, codes, embeddings);
    nb::gil_scoped_release release;
    index.add(rows);
}

void erase(MultiIndex& index, const Ids& ids) {
    nb::gil_scoped_release release;
    index.erase(ids.data(), ids.size());
}

void replace(MultiIndex& index, const Ids& ids, const Bytes& codes, const std::optional<Bytes>& embeddings) {
    const RowsView rows = rows_of(ids, codes, embeddings);
    nb::gil_scoped_release release;
    index.replace(rows);
}

auto get(const MultiIndex& index, const Ids& ids) {
    std::vector<std::uint8_t> codes(ids.size() * index.layout().n_bytes);
    std::vector<std::uint8_t> embeddings(ids.size() * index.layout().embedding_bytes);
    {
        nb::gil_scoped_release release;
        index.get(ids.data(), ids.size(), codes.data(), embeddings.data());
    }
    return std::make_tuple(array_of(std::move(codes)), array_of(std::move(embeddings)));
}

// What is the same in every search. Holds on to the arrays that it points into.
struct Search {
    Bytes queries;
    std::optional<Ids> filter_ids;
    std::optional<Input<bool, 1>> filter_mask;
    std::optional<Bytes> embeddings;
    std::optional<Input<float, 2>> logits;
    Request request;

    Search(Bytes queries_, std::size_t radius, std::optional<std::size_t> limit, std::optional<Ids> filter_ids_,
           std::optional<Input<bool, 1>> filter_mask_, std::size_t rerank, std::optional<Bytes> embeddings_,
           std::optional<Input<float, 2>> logits_, std::size_t budget, std::optional<std::size_t> comparisons)
        : queries(std::move(queries_)),
          filter_ids(std::move(filter_ids_)),
          filter_mask(std::move(filter_mask_)),
          embeddings(std::move(embeddings_)),
          logits(std::move(logits_)) {
        request.queries = codes_of(queries);
        request.radius = static_cast<Distance>(radius);
        request.limit = limit.value_or(kNoLimit);
        request.rerank = rerank;
        request.budget = budget;
        request.comparisons = comparisons.value_or(kNoLimit);
        if (filter_ids) request.filter.emplace(filter_ids->data(), filter_ids->size());
        if (filter_mask) request.filter.emplace(filter_mask->data(), filter_mask->size());
        if (embeddings) request.embeddings = embeddings->data();
        if (logits) request.logits = logits->data();
    }
};

Hits hits_of(const MultiIndex& index, const Search& search, std::size_t n_threads) {
    nb::gil_scoped_release release;
    return hamtarget::search(index, search.request, n_threads);
}

auto search_batch(const MultiIndex& index, const Search& search, std::size_t n_threads) {
    Hits hits = hits_of(index, search, n_threads);
    return std::make_tuple(array_of(std::move(hits.offsets)), array_of(std::move(hits.ids)),
                           array_of(std::move(hits.distances)), array_of(std::move(hits.embedding_distances)),
                           array_of(std::move(hits.costs)));
}

// An object of `type`, a kind of tuple, whose items are to be set. Calling the type would take longer than the search.
nb::object new_tuple(nb::handle type, std::size_t size) {
    auto* python_type = reinterpret_cast<PyTypeObject*>(type.ptr());
    PyObject* object = python_type->tp_alloc(python_type, static_cast<Py_ssize_t>(size));
    if (!object) nb::raise_python_error();
    return nb::steal(object);
}

template <class T>
void set_item(nb::handle tuple, std::size_t index, T value) {
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(index), nb::cast(value).release().ptr());
}

// Hits of one query as a `hits_type` of `hit_type` (kinds of tuple, of any number of items and of 3), with names in place
// of row numbers; nothing, if one of the names is not known.
nb::object tuples_of(const Hits& found, bool reranks, nb::handle hits_type, nb::handle hit_type,
                     const RowNames* names) {
    if (names && !names->fetch(found.ids.data(), found.ids.size())) return {};
    nb::object hits = new_tuple(hits_type, found.ids.size());
    for (std::size_t i = 0; i < found.ids.size(); ++i) {
        nb::object hit = new_tuple(hit_type, 3);
        set_item(hit, 1, found.distances[i]);
        set_item(hit, 2, reranks ? nb::cast(found.embedding_distances[i]) : nb::none());
        set_item(hits, i, std::move(hit));
    }
    // Last: names are on their way meanwhile.
    for (std::size_t i = 0; i < found.ids.size(); ++i) {
        nb::object id = names ? names->id_of(found.ids[i]) : nb::cast(found.ids[i]);
        if (!id.is_valid()) return {};
        set_item(PyTuple_GET_ITEM(hits.ptr(), static_cast<Py_ssize_t>(i)), 0, std::move(id));
    }
    return hits;
}

// One query: its hits and its costs. Where a name is not known, the hits are a plain tuple, and all have row numbers.
std::tuple<nb::object, std::int64_t, std::int64_t, std::int64_t> search_one(const MultiIndex& index,
                                                                            const Search& search,
                                                                            nb::type_object hits_type,
                                                                            nb::type_object hit_type,
                                                                            const RowNames* names) {
    const Hits found = hits_of(index, search, 1);
    const bool reranks = search.request.rerank > 0;
    nb::object hits = tuples_of(found, reranks, hits_type, hit_type, names);
    if (!hits.is_valid()) {
        hits = tuples_of(found, reranks, reinterpret_cast<PyObject*>(&PyTuple_Type), hit_type, nullptr);
    }
    return {std::move(hits), found.costs[0], found.costs[1], found.costs[2]};
}

void save(const MultiIndex& index, const std::string& path) {
    nb::gil_scoped_release release;
    save_index(index, path);
}

std::unique_ptr<MultiIndex> open_file(const std::string& path, bool mapped) {
    nb::gil_scoped_release release;
    return open_index(path, mapped, best_kernel());
}

// Errors of the core become those of hamtarget.errors.
void translate(const std::exception_ptr& error, void*) {
    const auto raise = [](const char* name, const char* text) {
        PyErr_SetString(nb::module_::import_("hamtarget.errors").attr(name).ptr(), text);
    };
    try {
        std::rethrow_exception(error);
    } catch (const InputError& failure) {
        raise("InputError", failure.what());
    } catch (const CorruptFile& failure) {
        raise("CorruptFileError", failure.what());
    } catch (const UnsupportedFile& failure) {
        raise("UnsupportedFileError", failure.what());
    } catch (const FileFailure& failure) {
        // Python picks the subclass by the number: FileNotFoundError, PermissionError.
        PyErr_SetObject(PyExc_OSError, nb::make_tuple(failure.code, failure.what()).ptr());
    }
}

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "The native core. Private: arguments are checked by hamtarget.search, not here.";
    nb::register_exception_translator(translate);

    module.def("kernels", &kernel_names, "Names of the kernels that this CPU can run; the first is the one in use.");
    module.def("distances", &distances, "query"_a.noconvert(), "codes"_a.noconvert(), "kernel"_a = nb::none(),
               "Hamming distance of one query, (bytes,), to every code, (rows, bytes).");

    module.def("within", &within, "query"_a.noconvert(), "codes"_a.noconvert(), "radius"_a, "kernel"_a = nb::none(),
               "Rows of the codes within `radius` of one query, and their distances, in the order of the rows.");

    nb::class_<Search>(module, "Search", "What to look for.")
        .def(nb::init<Bytes, std::size_t, std::optional<std::size_t>, std::optional<Ids>, std::optional<Input<bool, 1>>,
                      std::size_t, std::optional<Bytes>, std::optional<Input<float, 2>>, std::size_t,
                      std::optional<std::size_t>>(),
             "queries"_a.noconvert(), "radius"_a, "limit"_a = nb::none(), "filter_ids"_a = nb::none(),
             "filter_mask"_a = nb::none(), "rerank"_a = 0, "embeddings"_a = nb::none(), "logits"_a = nb::none(),
             "budget"_a = 0, "comparisons"_a = nb::none())
        .def_prop_ro("reranks", [](const Search& search) { return search.request.rerank > 0; });

    nb::enum_<Element>(module, "Element")
        .value("float32", Element::kFloat32)
        .value("float16", Element::kFloat16)
        .value("int8", Element::kInt8);
    nb::enum_<Metric>(module, "Metric")
        .value("l2", Metric::kEuclidean)
        .value("cosine", Metric::kCosine)
        .value("dot", Metric::kDot);

    nb::class_<RowNames>(module, "RowNames", "Ids of rows that are not their own.")
        .def(nb::init<std::int64_t>(), "first_named"_a)
        .def("hold", &RowNames::hold, "first"_a, "ids"_a, "is_known"_a.noconvert())
        .def(
            "know", [](const RowNames& names, const Ids& rows) { return names.know(rows.data(), rows.size()); },
            "rows"_a.noconvert(), "Whether the ids of all of the rows are known.");

    nb::class_<MultiIndex>(module, "MultiIndex", "Rows and the tables that find them; without tables, a linear scan.")
        .def(
            "__init__",
            [](MultiIndex* self, std::size_t n_bytes, std::size_t n_tables, std::size_t radius, std::size_t n_dims,
               Element element, Metric metric, const std::optional<std::string>& kernel) {
                new (self) MultiIndex({n_bytes, n_tables, 0}, radius, {n_dims, element, metric}, kernel_of(kernel));
            },
            "n_bytes"_a, "n_tables"_a, "radius"_a, "n_dims"_a = 0, "element"_a = Element::kFloat32,
            "metric"_a = Metric::kEuclidean, "kernel"_a = nb::none())
        .def("add", &add, "ids"_a.noconvert(), "codes"_a.noconvert(), "embeddings"_a = nb::none())
        .def("delete", &erase, "ids"_a.noconvert())
        .def("replace", &replace, "ids"_a.noconvert(), "codes"_a.noconvert(), "embeddings"_a = nb::none())
        .def("get", &get, "ids"_a.noconvert(), "Codes and embeddings, as bytes one after another.")
        .def(
            "ids", [](const MultiIndex& index) { return array_of(index.ids()); }, "All ids, ascending.")
        .def("compact", &MultiIndex::compact, nb::call_guard<nb::gil_scoped_release>())
        .def("search", &search_batch, "search"_a, "n_threads"_a,
             "Offsets, ids, distances, embedding distances, and three costs for each query.")
        .def("search_one", &search_one, "search"_a, "hits_type"_a, "hit_type"_a, "names"_a = nb::none(),
             "Hits of one query, as a tuple of tuples of the types given, and its costs.")
        .def("save", &save, "path"_a)
        .def_static("open", &open_file, "path"_a, "mapped"_a)
        .def("__contains__", &MultiIndex::contains, "id"_a)
        .def("__len__", [](const MultiIndex& index) { return index.manifest()->n_live(); })
        .def_prop_ro("n_parts", [](const MultiIndex& index) { return index.manifest()->parts.size(); })
        .def_prop_ro("memory", [](const MultiIndex& index) { return index.manifest()->memory(); })
        .def_prop_ro("n_bytes", [](const MultiIndex& index) { return index.layout().n_bytes; })
        .def_prop_ro("n_tables", [](const MultiIndex& index) { return index.layout().n_tables; })
        .def_prop_ro("radius", &MultiIndex::radius)
        .def_prop_ro("n_dims", [](const MultiIndex& index) { return index.embedding().n_dims; })
        .def_prop_ro("element", [](const MultiIndex& index) { return index.embedding().element; })
        .def_prop_ro("metric", [](const MultiIndex& index) { return index.embedding().metric; });
}
