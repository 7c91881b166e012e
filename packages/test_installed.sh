#!/usr/bin/env bash
# Test the hamtarget that is installed for `python`, in an empty folder: what README shows first, and the quick tests.
#
# It needs hamtarget[cli,onnx,text,vision], and hypothesis, pytest, pytest-xdist, PyYAML and scipy.
set -euo pipefail
root=$(cd "${0%/*}/.." && pwd)
folder=$(python -c "import tempfile; print(tempfile.mkdtemp())")
trap '/bin/rm -rf "$folder"' EXIT
cd "$folder"
export HAMTARGET_CACHE="$folder/cache"
unset PYTHONPATH

python - <<'PYTHON'
import sys
import hamtarget
from hamtarget import _native
if not hamtarget.__file__.startswith(sys.prefix):
    raise SystemExit(f"{hamtarget.__file__} is not what was installed")
print(f"hamtarget {hamtarget.__version__}, Python {sys.version.split()[0]}: {_native.__file__.rpartition('/')[2]}")
PYTHON

# What README shows first.
python - <<'PYTHON'
from pathlib import Path
import numpy as np
from PIL import Image
Path("photos").mkdir()
random = np.random.default_rng(0)
for number in range(8):
    picture = Image.fromarray(random.integers(0, 256, (8, 9, 3), dtype=np.uint8)).resize((360, 320), Image.BICUBIC)
    picture.save(f"photos/{number}.png")
picture.resize((180, 160)).save("photos/7-small.jpg")
Path("hashes.txt").write_text("8f3c02d1a4b7e690\n8f3c02d1a4b7e691\n0123456789abcdef\n")
Path("texts.jsonl").write_text('{"text": "a short text about a house"}\n' * 2 + '{"text": "something else entirely"}\n')
PYTHON
hamtarget dups photos 2> messages > groups || { /bin/cat messages; exit 1; }
python -c 'import sys; groups = open("groups").read(); sys.exit("7-small.jpg" not in groups and "no copy was found:\n" + groups)'
hamtarget add store photos --encoder copies64 > /dev/null
hamtarget search store photos/7-small.jpg > /dev/null
hamtarget add hashes hashes.txt --radius 8 > /dev/null
hamtarget search hashes 8f3c02d1a4b7e690 --radius 8 > /dev/null
hamtarget dups texts.jsonl > /dev/null

# README's own examples, and the quick tests that need neither torch, nor other libraries to compare with, nor the source.
tests="$root/tests"
python -m pytest -c "$root/pyproject.toml" --rootdir "$root" -p no:cacheprovider -n "${TESTS_AT_ONCE:-2}" -rN \
    -m "not slow and not postgres" --ignore "$tests/golden/test_golden_models.py" \
    --deselect tests/unit/search/test_device_index.py \
    --deselect tests/unit/search/test_flat_index.py::test_missing_native_core_is_said_plainly \
    "$tests/unit/test_codes.py" "$tests/unit/test_files.py" "$tests/unit/search" "$tests/unit/store" "$tests/unit/copies" \
    "$tests/unit/encoders/test_shipped_hashes.py" "$tests/unit/encoders/test_simhash.py" "$tests/golden"
python -m pytest -c "$root/pyproject.toml" --rootdir "$root" -p no:cacheprovider -rN \
    "$tests/unit/test_docs.py" -k "marked_examples and README"
