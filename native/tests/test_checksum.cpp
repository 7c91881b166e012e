// The checksum is XXH64: published values, and the same value however the bytes are cut.
#include <cstdio>
#include <cstring>

#include "check.hpp"

namespace {

using hamtarget::Checksum;
using hamtarget::checksum;

std::uint64_t of_text(const char* text) { return checksum(std::as_bytes(std::span(text, std::strlen(text)))); }

void published_values() {
    CHECK(of_text("") == 0xEF46DB3751D8E999);
    CHECK(of_text("a") == 0xD24EC4F1A98C6E5B);
    CHECK(of_text("abc") == 0x44BC2CF5AD770999);
    CHECK(of_text("The quick brown fox jumps over the lazy dog") == 0x0B242D361FDA71BC);

    // The test bytes of xxHash itself (cli/xsum_sanity_check.c), seed 0.
    std::vector<std::byte> bytes(2243);
    std::uint64_t state = 2654435761;
    for (std::byte& byte : bytes) {
        byte = static_cast<std::byte>(state >> 56);
        state *= 11400714785074694797u;
    }
    const struct {
        std::size_t n_bytes;
        std::uint64_t value;
    } known[] = {{1, 0xE934A84ADB052768}, {4, 0x9136A0DCA57457EE}, {14, 0x8282DCC4994E35C8}, {222, 0xB641AE8CB691C174}};
    for (const auto& [n_bytes, value] : known) CHECK(checksum(std::span(bytes).first(n_bytes)) == value);
}

void pieces() {
    std::vector<std::byte> bytes(200);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + i / 7);
    const std::span<const std::byte> all(bytes);
    for (std::size_t length = 0; length <= bytes.size(); ++length)
        for (std::size_t first = 0; first <= length; ++first) {
            Checksum sum;
            sum.update(all.first(first));
            sum.update({});
            sum.update(all.subspan(first, (length - first) / 2));
            CHECK(sum.value() == checksum(all.first(first + (length - first) / 2)));
            sum.update(all.subspan(first + (length - first) / 2, length - first - (length - first) / 2));
            CHECK(sum.value() == checksum(all.first(length)));
        }
}

}  // namespace

int main() {
    published_values();
    pieces();
    std::puts("checksum: ok");
}
