"""Environment variables that hold a processor's newer instruction sets back; run as a program it prints them."""

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

HELD_BACK = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell"}
"""Of torch, oneDNN and OpenBLAS; all take these on processors that lack the sets, too."""


def held_back() -> dict[str, str]:
    """The variables, and those sets of numpy that this processor has: numpy warns of others."""
    newer = [name for name in __cpu_dispatch__ if name.startswith(("AVX512", "X86_V4")) and __cpu_features__[name]]
    return HELD_BACK | ({"NPY_DISABLE_CPU_FEATURES": ",".join(newer)} if newer else {})


if __name__ == "__main__":
    print(*(f"{name}={value}" for name, value in held_back().items()))
