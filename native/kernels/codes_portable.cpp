// Work on codes by instructions that every CPU has.
#include "code_loops.hpp"

namespace hamtarget {

namespace {

void portable_distances(const std::uint8_t* query, Codes rows, Distance* result) {
    word_distances(query, rows, result);
}

}  // namespace

extern const CodeKernel kPortableCodes;
constinit const CodeKernel kPortableCodes = code_kernel_by_distances<portable_distances>("portable");

}  // namespace hamtarget
