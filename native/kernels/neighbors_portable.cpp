// Reading cells by instructions that every CPU has.
#include "neighbor_loops.hpp"

namespace hamtarget {

extern const NeighborKernel kPortableNeighbors;
constinit const NeighborKernel kPortableNeighbors = neighbor_kernel_by_loops("portable");

}  // namespace hamtarget
