"""The page: the compiled loops as WebAssembly, and one file that opens without installing anything."""
