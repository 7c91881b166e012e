#!/bin/sh
# Builds and runs the tests of the core under the sanitizers of the compiler: `native/tests/sanitize.sh [NAME ...]`.
#
#   test_*.cpp            AddressSanitizer and UndefinedBehaviorSanitizer
#   test_*_threads.cpp    and ThreadSanitizer
#   fuzz_*.cpp            AddressSanitizer, UndefinedBehaviorSanitizer, and every allocation counted (allocations.hpp)
#
# CXX chooses the compiler, FUZZ_CASES the number of cases for each file of a fuzzer.
set -eu

tests=$(cd "$(dirname "$0")" && pwd)
build=$tests/../../build/sanitize
mkdir -p "$build"

warnings="-Wall -Wextra -Wno-uninitialized -Wno-maybe-uninitialized"
address="-fsanitize=address,undefined -fno-sanitize-recover=all"
wrap="-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=posix_memalign,--wrap=free"
wrap="$wrap,--wrap=mmap,--wrap=munmap"

# Files in memory: the tests write thousands of them, and wait for none of them to reach a disk.
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ]; then
    export TMPDIR=/dev/shm
fi
# A leak is a failure; so is a single allocation of more than 2 GB, which no test needs.
export ASAN_OPTIONS="detect_leaks=1:max_allocation_size_mb=2048:detect_stack_use_after_return=1"
export UBSAN_OPTIONS="print_stacktrace=1"
export TSAN_OPTIONS="halt_on_error=1"

# compile NAME SUFFIX FLAGS...
compile() {
    source=$tests/$1.cpp
    program=$build/$1-$2
    shift 2
    # shellcheck disable=SC2086
    ${CXX:-g++} -std=c++20 -O1 -g -pthread $warnings "$@" "$source" -o "$program"
}

[ $# -gt 0 ] || set -- $(cd "$tests" && ls test_*.cpp fuzz_*.cpp | sed 's/\.cpp$//')
for name in "$@"; do
    case $name in
        fuzz_*)
            compile "$name" address $address $wrap
            "$build/$name-address" ${FUZZ_CASES:-}
            ;;
        test_*_threads)
            compile "$name" address $address
            "$build/$name-address"
            compile "$name" thread -fsanitize=thread
            # ThreadSanitizer of GCC 12 needs addresses that are not randomised as widely as new kernels do.
            $(command -v setarch >/dev/null && echo "setarch $(uname -m) -R") "$build/$name-thread"
            ;;
        *)
            compile "$name" address $address
            "$build/$name-address"
            ;;
    esac
done
