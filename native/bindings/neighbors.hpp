// What Python sees of indexes of vectors.
#pragma once

#include <nanobind/nanobind.h>

namespace hamtarget::bindings {

void bind_neighbors(nanobind::module_& module);

}  // namespace hamtarget::bindings
