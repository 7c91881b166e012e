// Writes a snapshot file; snapshot.hpp shows how to use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "pending_file.hpp"
#include "snapshot_format.hpp"

namespace hamtarget {

// Gathers the sections of a snapshot file, and writes it.
class SnapshotWriter {
  public:
    // Takes elements of one section as they come. It uses them before it returns.
    template <class T>
    using Sink = std::function<void(std::span<const T>)>;

    // Begin a file of this kind. Like every method here, this throws std::invalid_argument for a name that is not made
    // of letters, digits and "-_./" or is too long (16 characters for a kind, 32 for a section).
    explicit SnapshotWriter(std::string_view kind);

    // Add a section of numbers. They are not copied: they must not change, nor go away, until commit() returns.
    template <format::Element T>
    void add(std::string_view name, std::type_identity_t<std::span<const T>> elements) {
        add_in_pieces<T>(name, elements.size(), [elements](const Sink<T>& sink) { sink(elements); });
    }

    // Add a section that is never in memory as a whole. commit() calls `produce(sink)` once, which calls `sink(span)`
    // any number of times, for `count` elements in all.
    template <format::Element T>
    void add_in_pieces(std::string_view name, std::size_t count, std::function<void(const Sink<T>&)> produce) {
        format::Section row = {};
        format::set_name(row.name, name);
        format::set_name(row.element, format::element_name<T>());
        row.n_bytes = count * sizeof(T);
        const auto produce_bytes = [produce = std::move(produce)](const Sink<std::byte>& sink) {
            produce([&sink](std::span<const T> elements) { sink(std::as_bytes(elements)); });
        };
        parts_.push_back({row, produce_bytes});
    }

    // Put the file at `path`. A reader finds the old file or the new one, whole, even after a crash. If this throws,
    // the old file is as it was and nothing else is left. A writer commits once. Only tests need another `until` than
    // the default.
    void commit(const std::filesystem::path& path,
                format::PendingFile::Until until = format::PendingFile::Until::nameless);

  private:
    struct Part {
        format::Section row;
        std::function<void(const Sink<std::byte>&)> produce;
    };

    void lay_out();
    static void write_part(format::PendingFile& file, Part& part);

    format::Header header_ = {};
    std::vector<Part> parts_;
};

}  // namespace hamtarget
