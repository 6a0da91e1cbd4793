"""Reading and writing servers' files: one module per syntax.

protobuf and PyYAML are imported on first use.
"""
