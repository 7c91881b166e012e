"""The steps of `hamtarget demo` on the bundled images: learn, store, search, compare, find duplicates."""
