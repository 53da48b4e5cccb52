"""What a test of the parameters has found, for the job."""

import itertools
import math
import re
from typing import Any, Dict, Mapping, NamedTuple, Optional

from .errors import Refused, is_one, shown

_ROUNDING = 1e-5  # of a sum of many parts, in float32
_MOST = 32  # beside loss and accuracy
_NAME = re.compile("[A-Za-z0-9_]{1,64}")
# What a line of metrics.jsonl has under names of its own (server/run/figures.cc).
_FIELDS = frozenset("""kind split mode step epoch samples updates due time loss accuracy learning_rate
samples_per_second staleness pushed_bytes pulled_bytes waiting_seconds communication_hidden""".split())


class Figures(NamedTuple):
    """Means over the samples; None: not known."""

    loss: Optional[float] = None
    accuracy: Optional[float] = None
    others: Mapping[str, float] = {}  # by name


def of(result: Any) -> Figures:
    """Those that the job takes, of what a test has returned."""
    if result is None:
        return Figures()
    if not isinstance(result, Mapping):
        raise Refused(f"job.evaluate's test returned a {type(result).__name__}, expected None or a dictionary "
                      "such as {'accuracy': 0.9}")
    accuracy = _told(result, "accuracy")
    if accuracy is not None and math.isnan(accuracy):  # of no samples
        accuracy = None
    if accuracy is not None:
        if not -_ROUNDING <= accuracy <= 1 + _ROUNDING:
            raise Refused(f"job.evaluate's test returned accuracy={accuracy:g}, expected a fraction from 0 to 1, "
                          "not a percentage")
        accuracy = min(1.0, max(0.0, accuracy))
    return Figures(_told(result, "loss"), accuracy, _others(result))


def loss_of(loss: Any) -> float:
    """The loss of a micro-batch, of which a script tells. Refused if it is not one number."""
    try:
        if is_one(loss) and not isinstance(loss, (str, bytes)):
            return float(loss.detach() if hasattr(loss, "detach") else loss)
    except TypeError:
        pass
    raise Refused(f"found loss={shown(loss)}, expected a number or a tensor of one, such as loss.mean()")


def left_out(result: Any, figures: Figures) -> str:
    """A sentence on what the job does not take of it; empty if it takes all."""
    names = [str(name) for name, value in (result or {}).items()
             if value is not None and name not in ("loss", "accuracy") and name not in figures.others]
    if not names:
        return ""
    return (f"of a test's figures the script alone keeps {', '.join(sorted(names))}; the job takes real numbers, at "
            f"most {_MOST} beside loss and accuracy, by names of 1 to 64 letters, digits and underscores that no "
            "other field of metrics.jsonl has")


def _others(result: Mapping[Any, Any]) -> Dict[str, float]:
    numbers = ((name, _number(value)) for name, value in result.items()
               if isinstance(name, str) and _NAME.fullmatch(name) and name not in _FIELDS)
    return dict(itertools.islice(((name, value) for name, value in numbers if value is not None), _MOST))


def _told(result: Mapping[Any, Any], name: str) -> Optional[float]:
    """The figure of that name, which is the job's. None: not known. Refused if it is no number."""
    value = result.get(name)
    number = _number(value)
    if number is None and value is not None:
        raise Refused(f"job.evaluate's test returned {name}={shown(value)}, expected a real number, or None where it "
                      "is not known")
    return number


def _number(value: Any) -> Optional[float]:
    """None: it is none."""
    try:
        return None if value is None or isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None
