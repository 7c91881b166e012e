// Which kernels the CPU at hand can run.
#include <stdexcept>
#include <string>
#include <vector>

#include "code_kernel.hpp"
#include "embedding_kernel.hpp"
#include "neighbor_kernel.hpp"

namespace hamtarget {

// One in each source file of this folder.
extern const CodeKernel kPortableCodes, kPopcntCodes, kAvx2Codes, kAvx512Codes, kNeonCodes;
extern const EmbeddingKernel kPortableEmbeddings, kAvx2Embeddings, kAvx512Embeddings, kVnniEmbeddings;
extern const NeighborKernel kPortableNeighbors, kAvx2Neighbors, kVbmiNeighbors;

namespace {

#if defined(__x86_64__) && !defined(HAMTARGET_PORTABLE)

// Each of these names every flag that the source file is compiled with.
bool has_popcnt() { return __builtin_cpu_supports("popcnt"); }

// Every CPU with AVX2 and FMA has F16C, which not every compiler can ask for.
bool has_avx2() { return has_popcnt() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

bool has_avx512_popcnt() {
    return has_avx512() && __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512vbmi");
}

bool has_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

bool has_vnni_vbmi() { return has_vnni() && __builtin_cpu_supports("avx512vbmi"); }

#endif

}  // namespace

std::span<const CodeKernel* const> supported_kernels() {
    static const std::vector<const CodeKernel*> supported = [] {
        std::vector<const CodeKernel*> found;
#if defined(__x86_64__) && !defined(HAMTARGET_PORTABLE)
        if (has_avx512_popcnt()) found.push_back(&kAvx512Codes);
        if (has_avx2()) found.push_back(&kAvx2Codes);
        if (has_popcnt()) found.push_back(&kPopcntCodes);
#elif defined(__aarch64__) && !defined(HAMTARGET_PORTABLE)
        found.push_back(&kNeonCodes);
#endif
        found.push_back(&kPortableCodes);
        return found;
    }();
    return supported;
}

const CodeKernel& best_kernel() { return *supported_kernels().front(); }

const CodeKernel& kernel_named(std::string_view name) {
    for (const CodeKernel* kernel : supported_kernels())
        if (kernel->name == name) return *kernel;
    throw std::invalid_argument("kernel is '" + std::string(name) + "'; this CPU does not support it");
}

std::span<const EmbeddingKernel* const> supported_embedding_kernels() {
    static const std::vector<const EmbeddingKernel*> supported = [] {
        std::vector<const EmbeddingKernel*> found;
#if defined(__x86_64__) && !defined(HAMTARGET_PORTABLE)
        if (has_vnni()) found.push_back(&kVnniEmbeddings);
        if (has_avx512()) found.push_back(&kAvx512Embeddings);
        if (has_avx2()) found.push_back(&kAvx2Embeddings);
#endif
        found.push_back(&kPortableEmbeddings);
        return found;
    }();
    return supported;
}

std::span<const NeighborKernel* const> supported_neighbor_kernels() {
    static const std::vector<const NeighborKernel*> supported = [] {
        std::vector<const NeighborKernel*> found;
#if defined(__x86_64__) && !defined(HAMTARGET_PORTABLE)
        if (has_vnni_vbmi()) found.push_back(&kVbmiNeighbors);
        if (has_avx2()) found.push_back(&kAvx2Neighbors);
#endif
        found.push_back(&kPortableNeighbors);
        return found;
    }();
    return supported;
}

}  // namespace hamtarget
