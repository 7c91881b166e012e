// Sums over the elements of embeddings, by the instructions of one kind of CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hamtarget {

// Most rows that are compared in one call. The last steps of an int8 sum serve several rows at once.
inline constexpr std::size_t kBatchRows = 16;

struct EmbeddingKernel {
    // Sums of a query and each of up to kBatchRows rows.
    using Sums8 = void (*)(const std::int8_t* query, const std::int8_t* const* rows, std::size_t n_rows, std::size_t n,
                           std::int32_t* sums);

    const char* name;
    float (*dot)(const float*, const float*, std::size_t);
    float (*squares)(const float*, const float*, std::size_t);  // of differences
    void (*widen)(const std::uint16_t*, float*, std::size_t);   // float16 to float32
    Sums8 dots8;                                                // products
    Sums8 squares8;                                             // of differences
    Sums8 own8;                                                 // products of each row with itself; no query
};

// Return the kernels that this CPU can run, fastest first. The last one runs everywhere.
std::span<const EmbeddingKernel* const> supported_embedding_kernels();

}  // namespace hamtarget
