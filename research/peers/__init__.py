"""Other libraries behind one interface, to be measured beside hamtarget."""
