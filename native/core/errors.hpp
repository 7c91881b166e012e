// Errors of callers.
#pragma once

#include <stdexcept>

namespace hamtarget {

// The caller asked for something that cannot be done. The text says what was found and what was expected.
struct InputError : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

}  // namespace hamtarget
