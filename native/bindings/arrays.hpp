// numpy arrays that come in and go out.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "../kernels/codes.hpp"

namespace hamtarget::bindings {

namespace nb = nanobind;

template <class T, std::size_t n_dims>
using Input = nb::ndarray<const T, nb::ndim<n_dims>, nb::c_contig, nb::device::cpu>;

template <class T, std::size_t n_dims = 1>
using Output = nb::ndarray<nb::numpy, T, nb::ndim<n_dims>>;

using Ids = Input<Id, 1>;
using Bytes = Input<std::uint8_t, 2>;

inline Codes codes_of(const Bytes& array) { return {array.data(), array.shape(0), array.shape(1)}; }

// Return a numpy array that owns `values`, without copying them.
template <class Values>
auto array_of(Values&& values) {
    using T = std::remove_reference_t<decltype(values[0])>;
    auto* owned = new std::remove_reference_t<Values>(std::move(values));
    nb::capsule owner(owned,
                      [](void* pointer) noexcept { delete static_cast<std::remove_reference_t<Values>*>(pointer); });
    return Output<T>(owned->data(), {owned->size()}, owner);
}

}  // namespace hamtarget::bindings
