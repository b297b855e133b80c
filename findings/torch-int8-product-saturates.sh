#!/usr/bin/env bash
# Guess:    `torch._int_mm`, behind int8 layers of quantised models, multiplies int8 matrices exactly into int32: products of
#           7-bit numbers and a sum of 64 of them are far from what 32 bits hold.
# Instead:  where the processor has no VNNI instructions, or oneDNN is told to use AVX2 alone, pairs of products are summed
#           in 16 bits and cut off there. 64 x 127 x 127 is 8,160, not 1,032,256: no error and no warning.
# Versions: torch 2.13.0 (CPU), numpy 2.4.6, x86-64
# Seen:     2026-11-28
#               as it comes:           exact or not, by the processor (with AVX-512 VNNI: 1032256)
#               ONEDNN_MAX_CPU_ISA=AVX2: 8160 instead of 1032256
# For users: scores of int8 embeddings, and losses of models with int8 activations, differ between processors by far more
#           than rounding. Multiply a matrix of 127s once at the start, and compare, before int8 products are trusted.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet torch==2.13.0
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet numpy==2.4.6
cat > "$folder/multiply.py" <<'PYTHON'
import sys

import torch

greatest = torch.full((64, 64), 127, dtype=torch.int8)
found, expected = torch._int_mm(greatest, greatest)[0, 0].item(), 64 * 127 * 127
print(f"{sys.argv[1]}: {found}; exactly {expected}")
if len(sys.argv) > 2 and found == expected:
    sys.exit("The product is exact now.")
PYTHON
"$folder/venv/bin/python" "$folder/multiply.py" "as it comes"
ONEDNN_MAX_CPU_ISA=AVX2 "$folder/venv/bin/python" "$folder/multiply.py" "with AVX2 alone" saturates
