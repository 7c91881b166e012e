// Sums over embeddings by AVX-512: x86 servers since 2017.
#include "embedding_loops.hpp"

#if defined(__x86_64__)

namespace hamtarget {

extern const EmbeddingKernel kAvx512Embeddings;
constinit const EmbeddingKernel kAvx512Embeddings = embedding_kernel_by_loops("avx512");

}  // namespace hamtarget

#endif
