"""How long a job is, by its train.until: an object with one of epochs, steps, samples and time."""

import math
from typing import Any, Dict, Optional, Union


def total_steps(until: Dict[str, Any], samples: Optional[int], batch: int) -> Optional[int]:
    """Steps of `batch` samples at the end of which the whole job stands; None: not known. `samples`: of an epoch."""
    if "steps" in until:
        return int(until["steps"])
    if samples is None or not ("epochs" in until or "samples" in until):
        return None
    total = math.ceil(float(until["epochs"]) * samples) if "epochs" in until else int(until["samples"])
    epochs, rest = divmod(total, samples)
    return max(1, epochs * -(-samples // batch) + -(-rest // batch))


def total_epochs(until: Dict[str, Any], samples: Optional[int], batch: int) -> Union[int, float, None]:
    """The same in epochs, a whole number where it is one."""
    if "epochs" in until:
        total = float(until["epochs"])
    elif samples is None or not ("steps" in until or "samples" in until):
        return None
    elif "steps" in until:
        epochs, rest = divmod(int(until["steps"]), -(-samples // batch))
        total = epochs + rest * batch / samples
    else:
        total = int(until["samples"]) / samples
    return int(total) if total.is_integer() else total
