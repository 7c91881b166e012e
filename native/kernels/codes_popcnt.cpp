// Work on codes by the POPCNT instruction of x86 CPUs since 2008.
#include "code_loops.hpp"

namespace hamtarget {

namespace {

void popcnt_distances(const std::uint8_t* query, Codes rows, Distance* result) {
    word_distances(query, rows, result);
}

}  // namespace

extern const CodeKernel kPopcntCodes;
constinit const CodeKernel kPopcntCodes = code_kernel_by_distances<popcnt_distances>("popcnt");

}  // namespace hamtarget
