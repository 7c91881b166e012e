// Large blocks of memory, of which a few are kept to be used again.
//
// A heavy batch has over 100 MB of results. The operating system clears fresh memory page by page, which takes a
// seventh of the time of the search. Memory that held a result before need not be cleared. This
// matters most to threads that live for one batch: what the C library gives them is always fresh.
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace hamtarget {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Allocate memory, to be freed by std::free. Random reads of a large block miss the address cache (TLB) on small pages:
// huge pages are worth 1.8x.
inline void* allocate(std::size_t n_bytes) {
    void* memory = nullptr;
    if (n_bytes < kHugePage) {
        memory = std::malloc(n_bytes);
    } else {
        // The end of a block gets small pages: a last huge page would be half empty on average.
        memory = std::aligned_alloc(kHugePage, (n_bytes + kHugePage - 1) & ~(kHugePage - 1));
#if defined(__linux__)
        if (memory) madvise(memory, n_bytes & ~(kHugePage - 1), MADV_HUGEPAGE);
#endif
    }
    if (!memory) throw std::bad_alloc();
    return memory;
}

// Keeps blocks that are given back, at most kMostBytes of them in the whole process. The operating system may take
// their pages when it runs out of memory.
class BufferPool {
  public:
    static constexpr std::size_t kMostBytes = std::size_t{256} << 20;
    // Smaller blocks are not kept.
    static constexpr std::size_t kFewestBytes = std::size_t{64} << 10;

    static BufferPool& shared() {
        // Never destroyed: results may outlive everything else.
        static auto* const pool = new BufferPool;
        return *pool;
    }

    // Return a block of at least `n_bytes`, and set `n_bytes` to its size.
    void* take(std::size_t& n_bytes) {
        if (n_bytes >= kFewestBytes) {
            // Do not wait for the lock: a process may be forked while another thread holds it.
            const std::unique_lock lock(mutex_, std::try_to_lock);
            if (!lock) return allocate(n_bytes);
            std::size_t best = count_;
            for (std::size_t i = 0; i < count_; ++i)
                if (blocks_[i].n_bytes >= n_bytes && blocks_[i].n_bytes / 4 <= n_bytes &&
                    (best == count_ || blocks_[i].n_bytes < blocks_[best].n_bytes))
                    best = i;
            if (best < count_) {
                n_bytes = blocks_[best].n_bytes;
                return remove(best);
            }
        }
        return allocate(n_bytes);
    }

    void give(void* memory, std::size_t n_bytes) noexcept {
#if defined(__linux__) && defined(MADV_FREE)
        if (n_bytes >= kFewestBytes && n_bytes <= kMostBytes) {
            if (n_bytes >= kHugePage) madvise(memory, n_bytes & ~(kHugePage - 1), MADV_FREE);
            if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) {
                // The oldest go first.
                while (count_ == blocks_.size() || held_ + n_bytes > kMostBytes) std::free(remove(0));
                blocks_[count_++] = {memory, n_bytes};
                held_ += n_bytes;
                return;
            }
        }
#endif
        std::free(memory);
    }

    std::size_t held() {
        const std::lock_guard lock(mutex_);
        return held_;
    }

    void clear() {
        const std::lock_guard lock(mutex_);
        while (count_) std::free(remove(0));
    }

  private:
    struct Kept {
        void* memory;
        std::size_t n_bytes;
    };

    void* remove(std::size_t index) noexcept {
        const Kept block = blocks_[index];
        held_ -= block.n_bytes;
        --count_;
        for (std::size_t i = index; i < count_; ++i) blocks_[i] = blocks_[i + 1];
        return block.memory;
    }

    std::mutex mutex_;
    std::size_t count_ = 0;
    std::size_t held_ = 0;
    std::array<Kept, 32> blocks_{};
};

}  // namespace hamtarget
