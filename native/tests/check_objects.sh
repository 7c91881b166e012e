#!/bin/sh
# Checks the object files of the core: `check_objects.sh NM OBJDUMP OBJECT ...`. kernels/inline.hpp says why.
#
#   kernels/codes_*, embeddings_*, neighbors_*   no weak symbols: the linker could take them for all other objects
#   all others, and *_portable                   no instructions that a plain x86-64 CPU does not have
set -eu

nm=$1
objdump=$2
shift 2
n_kernels=0
n_plain=0
failed=0
for object in "$@"; do
    case $object in
        */native/kernels/codes_* | */native/kernels/embeddings_* | */native/kernels/neighbors_*)
            n_kernels=$((n_kernels + 1))
            weak=$("$nm" --defined-only "$object" | awk '$2 ~ /^[WVu]$/ && ++n <= 5 { print $3 }')
            if [ -n "$weak" ]; then
                echo "$object has weak symbols: $weak"
                failed=1
            fi
            ;;
    esac
    case $object in
        */native/kernels/*_portable.* | */native/core/* | */native/file/* | */native/kernels/choose.*)
            n_plain=$((n_plain + 1))
            # Registers of AVX and AVX-512, and the instructions of POPCNT.
            if "$objdump" --disassemble --no-show-raw-insn "$object" |
                grep --max-count=3 -E '%[yz]mm|[[:space:]]v?popcnt'; then
                echo "$object has instructions beyond plain x86-64"
                failed=1
            fi
            ;;
    esac
done
if [ "$n_kernels" -lt 2 ] || [ "$n_plain" -lt 2 ]; then
    echo "found $n_kernels kernels and $n_plain other objects; expected several of each"
    failed=1
fi
[ "$failed" -eq 0 ] && echo "objects: ok, $n_kernels kernels, $n_plain others"
exit "$failed"
