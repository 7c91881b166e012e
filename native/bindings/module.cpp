// What Python sees of the native core. This file converts types and releases the GIL; it holds no logic.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../core/errors.hpp"
#include "../core/multi_index.hpp"
#include "../core/pdq_reduction.hpp"
#include "../core/search/rows_within.hpp"
#include "../core/search/search.hpp"
#include "../core/table_plan.hpp"
#include "../file/index_file.hpp"
#include "../kernels/code_kernel.hpp"
#include "arrays.hpp"
#include "hit_tuples.hpp"
#include "neighbors.hpp"
#include "row_names.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace hamtarget;
using namespace hamtarget::bindings;

namespace {

const CodeKernel& kernel_of(const std::optional<std::string>& name) {
    return name ? kernel_named(*name) : best_kernel();
}

std::vector<std::string> kernel_names() {
    std::vector<std::string> names;
    for (const CodeKernel* kernel : supported_kernels()) names.emplace_back(kernel->name);
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

auto reduce_for_pdq(const Input<std::uint8_t, 3>& pixels) {
    std::vector<float> result(kPdqSide * kPdqSide);
    {
        nb::gil_scoped_release release;
        const PdqPicture reduced = pdq_reduction(pixels.data(), pixels.shape(0), pixels.shape(1));
        std::copy(reduced.begin(), reduced.end(), result.begin());
    }
    return array_of(std::move(result));
}

auto within(const Input<std::uint8_t, 1>& query, const Bytes& codes, std::size_t radius,
            const std::optional<std::string>& kernel) {
    const auto& chosen = kernel_of(kernel);
    RowsWithin found;
    {
        nb::gil_scoped_release release;
        found = rows_within(chosen, query.data(), codes_of(codes), static_cast<Distance>(radius));
    }
    return std::make_tuple(array_of(std::move(found.rows)), array_of(std::move(found.distances)));
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

// A request, and the arrays that it points into.
struct Search {
    Bytes queries;
    std::optional<Ids> filter_ids;
    std::optional<Input<bool, 1>> filter_mask;
    std::optional<Bytes> embeddings;
    std::optional<Input<float, 2>> logits;
    nb::object limits;
    Request request;

    Search(Bytes queries_, std::size_t radius, std::optional<std::size_t> limit, std::optional<Ids> filter_ids_,
           std::optional<Input<bool, 1>> filter_mask_, std::size_t rerank, std::optional<Bytes> embeddings_,
           std::optional<Input<float, 2>> logits_, std::size_t budget, std::optional<std::size_t> comparisons,
           nb::object limits_)
        : queries(std::move(queries_)),
          filter_ids(std::move(filter_ids_)),
          filter_mask(std::move(filter_mask_)),
          embeddings(std::move(embeddings_)),
          logits(std::move(logits_)),
          limits(std::move(limits_)) {
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
        if (!limits.is_none()) request.limits = nb::cast<Limits*>(limits);
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

// Return the hits of one query, and its costs. If the name of a hit is not known, return None in the place of the hits,
// and count nothing with the limits: the caller looks names up and searches again.
std::tuple<nb::object, std::int64_t, std::int64_t, std::int64_t> search_one(const MultiIndex& index,
                                                                            const Search& search,
                                                                            nb::type_object hits_type,
                                                                            nb::type_object hit_type,
                                                                            const RowNames* names) {
    const Hits found = hits_of(index, search, 1);
    const bool reranks = search.request.rerank > 0;
    nb::object hits = tuples_of(found, reranks, hits_type, hit_type, names);
    if (!hits.is_valid()) {
        hits = nb::none();
        const auto n_found = reranks ? static_cast<std::uint64_t>(found.costs[2]) : found.ids.size();
        if (search.request.limits)
            search.request.limits->give_back(static_cast<std::uint64_t>(found.costs[1]), n_found);
    }
    return {std::move(hits), found.costs[0], found.costs[1], found.costs[2]};
}

// The bytes of a Python object, while this lives; null if it has none or they do not lie in one piece.
class BytesOf {
  public:
    explicit BytesOf(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) {
            PyErr_Clear();
            view_.obj = nullptr;
        }
    }
    ~BytesOf() { PyBuffer_Release(&view_); }
    BytesOf(const BytesOf&) = delete;
    BytesOf& operator=(const BytesOf&) = delete;

    // Return `count` elements of uint8 in one dimension; null if this is something else.
    const std::uint8_t* codes(std::size_t count) const {
        const bool fits = view_.obj && view_.ndim == 1 && view_.format && view_.format[0] == 'B' &&
                          view_.format[1] == 0 && static_cast<std::size_t>(view_.len) == count;
        return fits ? static_cast<const std::uint8_t*>(view_.buf) : nullptr;
    }

    // Return the elements of bool in one dimension, of any number; null if this is something else.
    const bool* mask() const {
        const bool fits = view_.obj && view_.ndim == 1 && view_.format && view_.format[0] == '?' && view_.format[1] == 0;
        return fits ? static_cast<const bool*>(view_.buf) : nullptr;
    }
    std::size_t size() const { return static_cast<std::size_t>(view_.len); }

  private:
    Py_buffer view_{};
};

// Return a number that Python gives: nothing if it is no plain int from 0 up.
std::optional<std::size_t> plain_number(nb::handle number) {
    if (!PyLong_CheckExact(number.ptr())) return std::nullopt;
    const Py_ssize_t value = PyLong_AsSsize_t(number.ptr());
    if (value == -1 && PyErr_Occurred()) PyErr_Clear();
    if (value < 0) return std::nullopt;
    return static_cast<std::size_t>(value);
}

// Return the hits of a search for one code: within a radius (the index's own for None) or the nearest, and with a limit
// and a mask of ids if there are some. Return None if an argument is not exactly what it should be, or if the name of a hit is
// not known: the caller then looks at all of them more closely. Checking takes longer than the search.
nb::object search_code(const MultiIndex& index, nb::handle code, nb::handle radius, nb::handle limit, bool is_nearest,
                       nb::type_object hits_type, nb::type_object hit_type, const RowNames* names, nb::handle mask) {
    const std::size_t n_bytes = index.layout().n_bytes;
    Request request;
    if (is_nearest) {
        request.radius = static_cast<Distance>(8 * n_bytes);
    } else if (!radius.is_none()) {
        const auto within = plain_number(radius);
        if (!within || *within >= 8 * n_bytes) return nb::none();
        request.radius = static_cast<Distance>(*within);
    } else if (index.layout().n_tables) {
        request.radius = static_cast<Distance>(index.radius());
    } else {
        return nb::none();
    }
    if (!limit.is_none()) {
        const auto most = plain_number(limit);
        if (!most || *most == 0) return nb::none();
        request.limit = *most;
    }
    const BytesOf bytes(code);
    const std::uint8_t* query = bytes.codes(n_bytes);
    if (!query) return nb::none();
    request.queries = {query, 1, n_bytes};
    std::optional<BytesOf> allowed;
    if (!mask.is_none()) {
        allowed.emplace(mask);
        if (!allowed->mask()) return nb::none();
        request.filter.emplace(allowed->mask(), allowed->size());
    }
    Hits found;
    {
        nb::gil_scoped_release release;
        found = hamtarget::search(index, request, 1);
    }
    nb::object hits = tuples_of(found, false, hits_type, hit_type, names);
    return hits.is_valid() ? hits : nb::none();
}

void save(const MultiIndex& index, const std::string& path) {
    nb::gil_scoped_release release;
    save_index(index, path);
}

std::unique_ptr<MultiIndex> open_file(const std::string& path, bool mapped, bool verify) {
    const auto access = mapped ? SnapshotFile::Access::map : SnapshotFile::Access::read;
    const auto check = verify ? SnapshotFile::Check::all : SnapshotFile::Check::bounds;
    nb::gil_scoped_release release;
    return open_index(path, access, check, best_kernel());
}

using PartNumbers = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>;

// Return the rows, tables, bytes of an excerpt and stored codes of each part, the largest first.
std::vector<PartNumbers> parts_of(const MultiIndex& index) {
    std::vector<PartNumbers> parts;
    for (const Part& part : index.manifest()->parts) {
        const auto& tables = part.segment->tables;
        parts.emplace_back(part.n_rows, tables.size(), tables.empty() ? 0 : tables.back().excerpts.n_bytes,
                           part.n_codes());
    }
    std::sort(parts.rbegin(), parts.rend());
    return parts;
}

using ChoiceNumbers = std::tuple<std::size_t, std::vector<std::size_t>, std::vector<std::size_t>, std::size_t,
                                 std::uint64_t, double, std::size_t, double, double>;

ChoiceNumbers numbers_of(TableChoice choice) {
    return {choice.plan.n_tables, std::move(choice.lengths), std::move(choice.flips), choice.plan.excerpt_bytes,
            choice.buckets,       choice.candidates,         choice.row_bytes,        choice.memory,
            choice.nanoseconds};
}

// Turn errors of the core into those of hamtarget.errors.
void translate(const std::exception_ptr& error, void*) {
    const auto raise = [](const char* name, const char* text) {
        PyErr_SetString(nb::module_::import_("hamtarget.errors").attr(name).ptr(), text);
    };
    try {
        std::rethrow_exception(error);
    } catch (const InputError& failure) {
        raise("InputError", failure.what());
    } catch (const LimitReached& failure) {
        const nb::object kind = nb::module_::import_("hamtarget.errors").attr("LimitError");
        PyErr_SetObject(kind.ptr(), kind(failure.what(), "limit"_a = failure.limit).ptr());
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
    module.doc() = "The native core. Private: hamtarget.search checks arguments, this module does not.";
    nb::register_exception_translator(translate);

    module.def("kernels", &kernel_names, "Return the names of the kernels that this CPU can run; the first is in use.");
    module.def("distances", &distances, "query"_a.noconvert(), "codes"_a.noconvert(), "kernel"_a = nb::none(),
               "Return the Hamming distances of one query, (bytes,), to all codes, (rows, bytes).");

    module.def("pdq_reduction", &reduce_for_pdq, "pixels"_a.noconvert(),
               "Return a picture, (height, width, 3), as the 64 * 64 numbers of which PDQ makes its hash.");
    module.def("within", &within, "query"_a.noconvert(), "codes"_a.noconvert(), "radius"_a, "kernel"_a = nb::none(),
               "Return the rows within `radius` of one query, and their distances, in the order of the rows.");

    nb::class_<SearchCosts>(module, "SearchCosts", "Costs of a search in nanoseconds, as they are or to be fitted.")
        .def(nb::init<>())
        .def_rw("cache_bytes", &SearchCosts::cache_bytes)
        .def_rw("bucket", &SearchCosts::bucket)
        .def_rw("far_bucket", &SearchCosts::far_bucket)
        .def_rw("entry", &SearchCosts::entry)
        .def_rw("entry_byte", &SearchCosts::entry_byte)
        .def_rw("far_byte", &SearchCosts::far_byte)
        .def_rw("noticed_bytes", &SearchCosts::noticed_bytes)
        .def_rw("fetched_code", &SearchCosts::fetched_code)
        .def_rw("fetched_share", &SearchCosts::fetched_share);
    module.def(
        "planned_tables",
        [](std::size_t n_bytes, std::size_t radius, std::size_t n_rows) {
            return planned_tables(n_bytes, radius, n_rows).n_tables;
        },
        "n_bytes"_a, "radius"_a, "n_rows"_a, "Return the number of tables that a piece of so many rows gets.");
    module.def(
        "table_choice",
        [](std::size_t n_bytes, std::size_t radius, std::size_t n_rows, std::size_t n_tables, bool is_planned,
           const SearchCosts& costs) {
            return numbers_of(table_choice(n_bytes, radius, n_rows, n_tables, is_planned, costs));
        },
        "n_bytes"_a, "radius"_a, "n_rows"_a, "n_tables"_a, "is_planned"_a = true, "costs"_a = kSearchCosts,
        "Return the numbers of a TableChoice: tables, lengths, flips, bytes of an excerpt, buckets, candidates, bytes of a "
        "row, bytes of the index, nanoseconds.");
    module.def(
        "table_choices",
        [](std::size_t n_bytes, std::size_t radius, std::size_t n_rows) {
            std::vector<ChoiceNumbers> choices;
            for (TableChoice& choice : table_choices(n_bytes, radius, n_rows))
                choices.push_back(numbers_of(std::move(choice)));
            return choices;
        },
        "n_bytes"_a, "radius"_a, "n_rows"_a, "Return the same for each number of tables that a piece may get.");
    module.def("directory_bits", &directory_bits, "n_rows"_a, "Return the bits of a bucket number for so many rows.");
    module.def("scan_cost", &scan_cost, "n_rows"_a, "n_bytes"_a, "Return the nanoseconds that reading all rows takes.");

    nb::class_<Search>(module, "Search", "A request, and the arrays that it points into.")
        .def(nb::init<Bytes, std::size_t, std::optional<std::size_t>, std::optional<Ids>, std::optional<Input<bool, 1>>,
                      std::size_t, std::optional<Bytes>, std::optional<Input<float, 2>>, std::size_t,
                      std::optional<std::size_t>, nb::object>(),
             "queries"_a.noconvert(), "radius"_a, "limit"_a = nb::none(), "filter_ids"_a = nb::none(),
             "filter_mask"_a = nb::none(), "rerank"_a = 0, "embeddings"_a = nb::none(), "logits"_a = nb::none(),
             "budget"_a = 0, "comparisons"_a = nb::none(), "limits"_a = nb::none())
        .def_prop_ro("reranks", [](const Search& search) { return search.request.rerank > 0; });

    nb::class_<Limits>(module, "Limits", "Bounds on the work of one request.")
        .def(nb::init<double, std::uint64_t, std::uint64_t, std::uint64_t>(), "seconds"_a, "rows"_a, "hits"_a,
             "bytes"_a)
        .def_prop_ro("bounds_rows", &Limits::bounds_rows)
        .def("cancel", &Limits::cancel)
        .def("check", &Limits::check)
        .def(
            "without_hits",
            [](Limits& limits, std::optional<std::uint64_t> hits) {
                return std::make_unique<Limits>(&limits, hits.value_or(Limits::kUnlimited));
            },
            "hits"_a = nb::none(), nb::keep_alive<0, 1>(),
            "Return the same limits but for hits: for searches whose hits are not those of the request.")
        .def("give_back_rows", &Limits::give_back_rows, "Forget the rows taken by a search that is done again.")
        .def("take", &Limits::take, nb::kw_only(), "rows"_a = 0, "hits"_a = 0, "bytes"_a = 0)
        .def_prop_ro("seconds_left", &Limits::seconds_left)
        .def_prop_ro("is_cancelled", &Limits::is_cancelled);

    nb::enum_<Element>(module, "Element")
        .value("float32", Element::kFloat32)
        .value("float16", Element::kFloat16)
        .value("int8", Element::kInt8);
    nb::enum_<Metric>(module, "Metric")
        .value("l2", Metric::kEuclidean)
        .value("cosine", Metric::kCosine)
        .value("dot", Metric::kDot);

    bind_neighbors(module);

    nb::class_<RowNames>(module, "RowNames", "Ids of rows whose numbers are not their ids.")
        .def(nb::init<std::int64_t>(), "first_named"_a)
        .def("add", &RowNames::add, "ids"_a, "Remember ids by row; what is known stays.")
        .def("__len__", &RowNames::size)
        .def(
            "are_known",
            [](const RowNames& names, const Ids& rows) {
                std::vector<std::uint8_t> known(rows.size());
                for (std::size_t i = 0; i < known.size(); ++i) known[i] = names.knows(rows.data()[i]);
                return array_of(std::move(known));
            },
            "rows"_a.noconvert(), "Return 1 for each row whose id is known, 0 for others.")
        .def(
            "of",
            [](const RowNames& names, const Ids& rows) -> nb::object {
                const auto ids = names.of(rows.data(), rows.size());
                if (ids.size() != rows.size()) return nb::none();
                nb::list result;
                for (const nb::object& id : ids) result.append(id);
                return result;
            },
            "rows"_a.noconvert(), "Return the ids of rows as a list; None if one of them is not known.");

    nb::class_<MultiIndex>(module, "MultiIndex", "Rows and the tables that find them; without tables, a linear scan.")
        .def(
            "__init__",
            [](MultiIndex* self, std::size_t n_bytes, std::size_t n_tables, std::size_t radius, std::size_t n_dims,
               Element element, Metric metric, const std::optional<std::string>& kernel, bool is_planned,
               std::size_t excerpt_bytes) {
                new (self) MultiIndex({n_bytes, n_tables, 0, is_planned, radius, excerpt_bytes}, radius,
                                      {n_dims, element, metric}, kernel_of(kernel));
            },
            "n_bytes"_a, "n_tables"_a, "radius"_a, "n_dims"_a = 0, "element"_a = Element::kFloat32,
            "metric"_a = Metric::kEuclidean, "kernel"_a = nb::none(), "is_planned"_a = false, "excerpt_bytes"_a = 0)
        .def("add", &add, "ids"_a.noconvert(), "codes"_a.noconvert(), "embeddings"_a = nb::none())
        .def("delete", &erase, "ids"_a.noconvert())
        .def("replace", &replace, "ids"_a.noconvert(), "codes"_a.noconvert(), "embeddings"_a = nb::none())
        .def("get", &get, "ids"_a.noconvert(), "Return codes and embeddings, as bytes one after another.")
        .def(
            "ids", [](const MultiIndex& index) { return array_of(index.ids()); }, "Return all ids, ascending.")
        .def("compact", &MultiIndex::compact, nb::call_guard<nb::gil_scoped_release>())
        .def("settle", &MultiIndex::settle, nb::call_guard<nb::gil_scoped_release>(), "Wait until no merge is due.")
        .def("search", &search_batch, "search"_a, "n_threads"_a,
             "Return offsets, ids, distances, embedding distances, and three costs for each query.")
        .def("search_one", &search_one, "search"_a, "hits_type"_a, "hit_type"_a, "names"_a = nb::none(),
             "Return the hits of one query, as a tuple of tuples of the types given, or None, and its costs.")
        .def("search_code", &search_code, "code"_a.none(), "radius"_a.none(), "limit"_a.none(), "is_nearest"_a,
             "hits_type"_a, "hit_type"_a, "names"_a = nb::none(), "mask"_a.none() = nb::none(),
             "Return the hits of one code; None if an argument is not exactly what it should be, or a name not known.")
        .def("save", &save, "path"_a)
        .def_static("open", &open_file, "path"_a, "mapped"_a, "verify"_a = true,
                    "Open the index in a file. Without `verify`, checksums and row numbers are not checked.")
        .def("__contains__", &MultiIndex::contains, "id"_a)
        .def("__len__", [](const MultiIndex& index) { return index.manifest()->n_live(); })
        .def_prop_ro("n_parts", [](const MultiIndex& index) { return index.manifest()->parts.size(); })
        .def_prop_ro("memory", [](const MultiIndex& index) { return index.manifest()->memory(); })
        .def_prop_ro("n_bytes", [](const MultiIndex& index) { return index.layout().n_bytes; })
        .def_prop_ro("n_tables", [](const MultiIndex& index) { return index.layout().n_tables; })
        .def_prop_ro("is_planned", [](const MultiIndex& index) { return index.layout().is_planned; })
        .def_prop_ro("parts", &parts_of, "Rows, tables, bytes of an excerpt and stored codes of each part, the largest first.")
        .def_prop_ro("radius", &MultiIndex::radius)
        .def_prop_ro("n_dims", [](const MultiIndex& index) { return index.embedding().n_dims; })
        .def_prop_ro("element", [](const MultiIndex& index) { return index.embedding().element; })
        .def_prop_ro("metric", [](const MultiIndex& index) { return index.embedding().metric; });
}
