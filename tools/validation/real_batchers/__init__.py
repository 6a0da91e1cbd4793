"""The batchers of real servers, driven as their servers drive them, beside what the presets say of them.

Each file drives one package's own code with the arrivals of a trace and a model that sleeps for the service
time of its batch: on the machine's clock, or on one that jumps (`clocks.py`). `cases.py` says what is
compared, `comparison.py` how, and `make fidelity-servers` writes what came out of it, `tables.md`, for
VALIDATION.md.
"""
