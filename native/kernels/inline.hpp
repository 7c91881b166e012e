// How code may be shared between translation units that are compiled for different CPUs.
//
// Each source file in this folder is compiled with the flags of its own instruction set (CMakeLists.txt), and the
// fastest one is chosen at run time (choose.cpp). That makes ordinary inline functions dangerous. If `std::min` or a
// member function of a shared class is not inlined, every object file holds a weak copy of it, and the linker keeps
// one of them: perhaps the one with AVX-512 instructions, which an older CPU then meets in the middle of `add`.
//
// So what these source files define or include is one of:
//   - functions marked HAMTARGET_INLINE, which are always inlined and leave no copy behind, at any level of
//     optimisation;
//   - functions in an unnamed namespace (code_loops.hpp, embedding_loops.hpp), which every object file keeps for
//     itself;
//   - one table of function pointers, whose name is different in each file.
// They use no function of the standard library that is a template. `native/tests/check_objects.sh` holds them to it:
// the objects of this folder have no weak symbols, and all other objects have no instructions beyond the baseline.
#pragma once

#include <cstddef>

#define HAMTARGET_INLINE [[gnu::always_inline]] inline

namespace hamtarget {

// Return the smaller number, as std::min does, always inlined.
template <class T>
HAMTARGET_INLINE constexpr T smaller(T left, T right) {
    return right < left ? right : left;
}

// Bytes of a long piece of memory that are fetched before it is read. The CPU fetches the rest while it reads.
inline constexpr std::size_t kPrefetchedBytes = 768;

// Fetches the beginning of memory that will be read soon.
// GCC 12 drops the call of a function that only prefetches, so this must be inlined.
HAMTARGET_INLINE void prefetch_bytes(const void* from, std::size_t n_bytes) {
    constexpr std::size_t kLine = 64;
    // The cache need not keep it: later queries read something else. This is worth 7% of a light search.
    constexpr int kOnce = 0;
    const char* begin = static_cast<const char*>(from);
    const char* end = begin + smaller(n_bytes, kPrefetchedBytes);
    for (const char* at = begin; at < end; at += kLine) __builtin_prefetch(at, 0, kOnce);
    __builtin_prefetch(end - 1, 0, kOnce);
}

}  // namespace hamtarget
