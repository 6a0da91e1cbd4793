"""Write VALIDATION.md: every comparison with theory and with measured servers. Run by `make validate`."""

import sys

from validation import page as validation
from validation import pages

if __name__ == "__main__":
    text = validation.markdown()
    pages.write(text)
    wrong = [line for line in text.splitlines() if line.endswith("| **DISAGREES** |")]
    print(*wrong, sep="\n")
    print(f"VALIDATION.md: {text.count('| agrees |')} rows agree, {len(wrong)} do not.")
    sys.exit(1 if wrong else 0)
