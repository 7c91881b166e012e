// Filters as manifests: what a filter refuses counts as deleted, or is left out.
#pragma once

#include "../limits.hpp"
#include "../manifest.hpp"
#include "request.hpp"

namespace hamtarget {

// Return the manifest with every row that the filter refuses deleted. Then a search tests one bit for a row, however
// long the list of ids is.
Manifest refuse_others(const Manifest& manifest, const Filter& filter, Work& work);

// Return a manifest of the live rows alone, copied into one part without tables. Then a search reads nothing that it
// must refuse. `layout` says how many bytes of codes and embeddings are copied.
Manifest gather_live(Layout layout, const Manifest& manifest, Work& work);

}  // namespace hamtarget
