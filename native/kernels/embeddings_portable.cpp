// Sums over embeddings by instructions that every CPU has.
#include "embedding_loops.hpp"

namespace hamtarget {

extern const EmbeddingKernel kPortableEmbeddings;
constinit const EmbeddingKernel kPortableEmbeddings = embedding_kernel_by_loops("portable");

}  // namespace hamtarget
