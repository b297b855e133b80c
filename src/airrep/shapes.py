"""Types of arrays and tensors with their shapes, such as ``Float32[np.ndarray, "n d"]``."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or "jaxtyping" not in sys.modules:  # the tests load jaxtyping first to check shapes
    from typing import Annotated as Bool
    from typing import Annotated as Float
    from typing import Annotated as Float16
    from typing import Annotated as Float32
    from typing import Annotated as Float64
    from typing import Annotated as Int8
    from typing import Annotated as Int16
    from typing import Annotated as Int32
    from typing import Annotated as Int64
    from typing import Annotated as UInt8
else:
    from jaxtyping import Bool, Float, Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8

__all__ = ["Bool", "Float", "Float16", "Float32", "Float64", "Int8", "Int16", "Int32", "Int64", "UInt8"]
