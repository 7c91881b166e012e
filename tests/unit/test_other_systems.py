"""Every module can be imported where the parts of Python that only POSIX has are missing, as on Windows.

What needs such a part says so when it is called: a store without file locks can be read, not written.
"""

import subprocess
import sys

import pytest

# Imports all once, so that other packages are loaded; then hides what is missing elsewhere, and imports all anew.
PROGRAM = """
import importlib, os, pkgutil, signal, socket, sys

def modules():
    import hamtarget
    found = pkgutil.walk_packages(hamtarget.__path__, "hamtarget.", onerror=lambda name: None)
    return [module.name for module in found if not module.name.startswith(APART)]

APART = ("hamtarget._native", "hamtarget.learn", "hamtarget.demo", "hamtarget.integrations", "hamtarget.search.device")
names = modules()
for name in names:
    importlib.import_module(name)
for name in [name for name in sys.modules if name.startswith("hamtarget") and name != "hamtarget._native"]:
    del sys.modules[name]
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "getuid", "pread", "pwrite", "register_at_fork", "sched_getaffinity", "sysconf", "uname"):
    delattr(os, name)
for name in ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL"):
    delattr(signal, name)
del socket.AF_UNIX
sys.platform = "win32"
try:
    import fcntl
except ImportError:
    pass
else:
    sys.exit("fcntl is not hidden")
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.mark.slow
def test_every_module_can_be_imported_elsewhere():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 150
