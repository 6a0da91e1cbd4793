"""The page: the compiled loops as WebAssembly, and one file that opens without installing anything."""

from pathlib import Path

PAGE = Path(__file__).parent / "batchsim.html"  # from `make page`, and in the wheel
