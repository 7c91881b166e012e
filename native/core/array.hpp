// Large plain arrays: some are shared once they are written, some grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "buffers.hpp"

namespace hamtarget {

// `size` elements that live as long as any copy of the array. Copies share the elements, which are not initialised.
// An Array<const T> may also be a view of memory that something else owns, such as a mapped file.
template <class T>
class Array {
    static_assert(std::is_trivially_copyable_v<T>);

  public:
    Array() = default;

    explicit Array(std::size_t size) : size_(size) {
        if (size == 0) return;
        void* memory = allocate(size * sizeof(T));
        owner_ = std::shared_ptr<void>(memory, std::free);
        data_ = static_cast<T*>(memory);
    }

    Array(std::shared_ptr<const void> owner, T* data, std::size_t size)
        : owner_(std::move(owner)), data_(data), size_(size) {}

    // Make an array read-only.
    template <class U>
        requires(std::is_same_v<const U, T> && !std::is_const_v<U>)
    Array(const Array<U>& other) : owner_(other.owner()), data_(other.data()), size_(other.size()) {}

    T* data() const { return data_; }
    T& operator[](std::size_t index) const { return data_[index]; }
    std::size_t size() const { return size_; }
    std::size_t n_bytes() const { return size_ * sizeof(T); }
    bool empty() const { return size_ == 0; }
    const std::shared_ptr<const void>& owner() const { return owner_; }

  private:
    std::shared_ptr<const void> owner_;
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

// One piece of memory for several arrays, so that fewer huge pages are left half empty. It lives as long as any array.
class Block {
  public:
    // Return how much of a block an array takes: arrays begin with a cache line.
    template <class T>
    static std::size_t n_bytes_for(std::size_t size) {
        return (size * sizeof(T) + kLine - 1) / kLine * kLine;
    }

    explicit Block(std::size_t n_bytes) : memory_(n_bytes + kLine) {
        const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
        used_ = (kLine - address % kLine) % kLine;
    }

    template <class T>
    Array<T> cut(std::size_t size) {
        T* begin = reinterpret_cast<T*>(memory_.data() + used_);
        used_ += n_bytes_for<T>(size);
        return {memory_.owner(), begin, size};
    }

    const std::shared_ptr<const void>& owner() const { return memory_.owner(); }

  private:
    static constexpr std::size_t kLine = 64;

    Array<std::uint8_t> memory_;
    std::size_t used_ = 0;
};

// An array that grows at its end. New elements are not initialised.
template <class T>
class Growing {
    static_assert(std::is_trivially_copyable_v<T>);

  public:
    Growing() = default;
    Growing(Growing&& other) noexcept { swap(other); }
    Growing& operator=(Growing&& other) noexcept {
        swap(other);
        return *this;
    }
    ~Growing() { give_back(); }

    // Append `count` elements and return the first. The caller writes them before anything else.
    T* extend(std::size_t count) {
        if (size_ + count > capacity_) reserve(size_ + count > 2 * capacity_ ? size_ + count : 2 * capacity_);
        T* begin = data_ + size_;
        size_ += count;
        return begin;
    }

    void push(T value) { *extend(1) = value; }

    // Copy the elements `first` to `first + count - 1`.
    void copy_to(T* to, std::size_t first, std::size_t count) const {
        if (count) std::memcpy(to, data_ + first, count * sizeof(T));
    }

    void clear() { size_ = 0; }
    void shrink(std::size_t size) { size_ = size; }

    void reserve(std::size_t capacity) {
        if (capacity <= capacity_) return;
        std::size_t n_bytes = capacity * sizeof(T);
        T* memory = static_cast<T*>(BufferPool::shared().take(n_bytes));
        if (size_) std::memcpy(memory, data_, size_ * sizeof(T));
        give_back();
        data_ = memory;
        capacity_ = n_bytes / sizeof(T);
    }

    T* data() const { return data_; }
    std::size_t size() const { return size_; }
    T& operator[](std::size_t index) const { return data_[index]; }

  private:
    void give_back() noexcept {
        if (data_) BufferPool::shared().give(data_, capacity_ * sizeof(T));
    }

    void swap(Growing& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
    }

    T* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

}  // namespace hamtarget
