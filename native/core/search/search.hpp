// Searches of an index, in one thread or several.
#pragma once

#include <cstddef>

#include "../hits.hpp"
#include "../multi_index.hpp"
#include "request.hpp"

namespace hamtarget {

// Find the hits of every query of a request, in at most `n_threads` threads.
Hits search(const MultiIndex& index, const Request& request, std::size_t n_threads);

}  // namespace hamtarget
