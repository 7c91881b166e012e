// What Python sees of the native core. Types in, types out; no logic.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "code.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T, std::size_t n_dims>
using Input = nb::ndarray<const T, nb::ndim<n_dims>, nb::c_contig, nb::device::cpu>;

template <class T>
using Output = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

hamtarget::Codes codes_of(const Input<std::uint8_t, 2>& array) {
    return {array.data(), array.shape(0), array.shape(1)};
}

const hamtarget::Kernel& kernel_of(const std::optional<std::string>& name) {
    return name ? hamtarget::kernel_named(*name) : hamtarget::best_kernel();
}

// A numpy array that owns `values`: nothing is copied.
template <class T>
Output<T> array_of(std::vector<T>&& values) {
    auto* owned = new std::vector<T>(std::move(values));
    nb::capsule owner(owned, [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
    return Output<T>(owned->data(), {owned->size()}, owner);
}

std::vector<std::string> kernels() {
    std::vector<std::string> names;
    for (const auto& kernel : hamtarget::supported_kernels()) names.emplace_back(kernel.name);
    return names;
}

Output<hamtarget::Distance> distances(const Input<std::uint8_t, 1>& query, const Input<std::uint8_t, 2>& codes,
                                      const std::optional<std::string>& kernel) {
    const auto& chosen = kernel_of(kernel);
    std::vector<hamtarget::Distance> result(codes.shape(0));
    {
        nb::gil_scoped_release release;
        chosen.distances(query.data(), codes_of(codes), result.data());
    }
    return array_of(std::move(result));
}

std::tuple<Output<std::int64_t>, Output<std::int64_t>, Output<hamtarget::Distance>> scan(
    const Input<std::uint8_t, 2>& queries, const Input<std::uint8_t, 2>& codes, const Input<std::int64_t, 1>& ids,
    hamtarget::Distance radius, std::size_t limit, const std::optional<std::string>& kernel) {
    const auto& chosen = kernel_of(kernel);
    hamtarget::Hits hits;
    {
        nb::gil_scoped_release release;
        hits = hamtarget::scan(chosen, codes_of(queries), codes_of(codes), ids.data(), radius, limit);
    }
    return {array_of(std::move(hits.offsets)), array_of(std::move(hits.ids)), array_of(std::move(hits.distances))};
}

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "The native core. Private: arguments are checked by hamtarget.search, not here.";
    module.def("kernels", &kernels, "Names of the kernels that this CPU can run; the first is the one in use.");
    module.def("distances", &distances, "query"_a.noconvert(), "codes"_a.noconvert(), "kernel"_a = nb::none(),
               "Hamming distance of one query, (bytes,), to every code, (rows, bytes).");
    module.def("scan", &scan, "queries"_a.noconvert(), "codes"_a.noconvert(), "ids"_a.noconvert(), "radius"_a,
               "limit"_a, "kernel"_a = nb::none(),
               "Offsets, ids and distances of each query's first `limit` codes within `radius`, by (distance, id).");
}
