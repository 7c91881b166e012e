// Sums over embeddings by AVX2, FMA and F16C, which x86 CPUs have since 2013.
#include "embedding_loops.hpp"

#if defined(__x86_64__)

namespace hamtarget {

extern const EmbeddingKernel kAvx2Embeddings;
constinit const EmbeddingKernel kAvx2Embeddings = embedding_kernel_by_loops("avx2");

}  // namespace hamtarget

#endif
