// Counts the memory that the program holds: every operator new passes here, and, by the linker's --wrap, malloc and
// mmap. Include this in one source file of a program that is linked with the options of CMakeLists.txt.
#pragma once

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

namespace hamtarget::tests {

class Memory {
  public:
    std::size_t now() const { return now_; }
    std::size_t most() const { return most_; }
    void forget_most() { most_ = now_.load(); }

    void* added(void* pointer) {
        if (pointer) add(malloc_usable_size(pointer));
        return pointer;
    }
    void removed(void* pointer) {
        if (pointer) now_ -= malloc_usable_size(pointer);
    }

    void mapped(void* pointer, std::size_t n_bytes) {
        const std::lock_guard lock(mutex_);
        const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
        for (Range& range : ranges_)
            if (range.begin == range.end) {
                range = {begin, begin + n_bytes};
                return add(n_bytes);
            }
        std::abort();
    }
    // Count a mapping that went away, or a part of one that was trimmed at an end.
    void unmapped(void* pointer, std::size_t n_bytes) {
        const std::lock_guard lock(mutex_);
        const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
        const std::uintptr_t end = begin + n_bytes;
        for (Range& range : ranges_) {
            const std::uintptr_t from = std::max(begin, range.begin), to = std::min(end, range.end);
            if (from >= to) continue;
            now_ -= to - from;
            if (from == range.begin) range.begin = to;
            else range.end = from;
        }
    }

  private:
    struct Range {
        std::uintptr_t begin, end;
    };

    void add(std::size_t n_bytes) {
        const std::size_t total = now_ += n_bytes;
        std::size_t seen = most_;
        while (seen < total && !most_.compare_exchange_weak(seen, total)) {
        }
    }

    std::atomic<std::size_t> now_ = 0, most_ = 0;
    std::mutex mutex_;
    Range ranges_[4096] = {};  // anonymous mappings; equal ends: a free place
};

inline constinit Memory memory;

}  // namespace hamtarget::tests

extern "C" {

void* __real_malloc(std::size_t);
void* __real_calloc(std::size_t, std::size_t);
void* __real_realloc(void*, std::size_t);
void* __real_aligned_alloc(std::size_t, std::size_t);
int __real_posix_memalign(void**, std::size_t, std::size_t);
void __real_free(void*);
void* __real_mmap(void*, std::size_t, int, int, int, off_t);
int __real_munmap(void*, std::size_t);

void* __wrap_malloc(std::size_t n) { return hamtarget::tests::memory.added(__real_malloc(n)); }
void* __wrap_calloc(std::size_t n, std::size_t size) { return hamtarget::tests::memory.added(__real_calloc(n, size)); }
void* __wrap_realloc(void* old, std::size_t n) {
    hamtarget::tests::memory.removed(old);
    return hamtarget::tests::memory.added(__real_realloc(old, n));
}
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t n) {
    return hamtarget::tests::memory.added(__real_aligned_alloc(alignment, n));
}
int __wrap_posix_memalign(void** pointer, std::size_t alignment, std::size_t n) {
    const int code = __real_posix_memalign(pointer, alignment, n);
    if (code == 0) hamtarget::tests::memory.added(*pointer);
    return code;
}
void __wrap_free(void* pointer) {
    hamtarget::tests::memory.removed(pointer);
    __real_free(pointer);
}
// Pages of a file are no allocation.
void* __wrap_mmap(void* at, std::size_t n, int protection, int flags, int file, off_t offset) {
    void* const pointer = __real_mmap(at, n, protection, flags, file, offset);
    if (pointer != MAP_FAILED && (flags & MAP_ANONYMOUS)) hamtarget::tests::memory.mapped(pointer, n);
    return pointer;
}
int __wrap_munmap(void* pointer, std::size_t n) {
    hamtarget::tests::memory.unmapped(pointer, n);
    return __real_munmap(pointer, n);
}

}  // extern "C"

// All forms are defined, because AddressSanitizer brings its own of each that is missing here.
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
    return __wrap_malloc(std::max<std::size_t>(n, 1));
}
void* operator new(std::size_t n, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    void* pointer = nullptr;
    const std::size_t at_least = std::max(static_cast<std::size_t>(alignment), sizeof(void*));
    return __wrap_posix_memalign(&pointer, at_least, std::max<std::size_t>(n, 1)) == 0 ? pointer : nullptr;
}
void* operator new(std::size_t n) {
    if (void* const pointer = operator new(n, std::nothrow)) return pointer;
    throw std::bad_alloc();
}
void* operator new(std::size_t n, std::align_val_t alignment) {
    if (void* const pointer = operator new(n, alignment, std::nothrow)) return pointer;
    throw std::bad_alloc();
}
void* operator new[](std::size_t n) { return operator new(n); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return operator new(n, std::nothrow); }
void* operator new[](std::size_t n, std::align_val_t alignment) { return operator new(n, alignment); }
void* operator new[](std::size_t n, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return operator new(n, alignment, std::nothrow);
}
void operator delete(void* pointer) noexcept { __wrap_free(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { __wrap_free(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { __wrap_free(pointer); }
void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept { __wrap_free(pointer); }
void operator delete[](void* pointer) noexcept { __wrap_free(pointer); }
void operator delete[](void* pointer, std::size_t) noexcept { __wrap_free(pointer); }
void operator delete[](void* pointer, std::align_val_t) noexcept { __wrap_free(pointer); }
void operator delete[](void* pointer, std::size_t, std::align_val_t) noexcept { __wrap_free(pointer); }
