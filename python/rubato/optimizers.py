"""Converts torch's optimizers and schedulers to the servers' settings, and replaces them in the script."""

import re
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence, Set

import torch

from .engine import Engine
from .errors import Error, Refused, shown
from .layout import Layout, same_settings

# Settings by torch's names; those of the servers are the same.
_RULES = {
    torch.optim.SGD: ("sgd", ("momentum", "dampening", "nesterov")),
    torch.optim.Adam: ("adam", ("betas", "eps", "amsgrad")),
    torch.optim.AdamW: ("adamw", ("betas", "eps", "amsgrad")),
    torch.optim.Adagrad: ("adagrad", ("lr_decay", "initial_accumulator_value", "eps")),
    torch.optim.RMSprop: ("rmsprop", ("momentum", "alpha", "eps", "centered")),
}
# How torch computes, not what; and what schedulers note.
_NO_MATTER = {"params", "foreach", "capturable", "differentiable", "fused", "initial_lr", "max_lr", "min_lr",
              "max_momentum", "base_momentum"}

# Characters that mean something else in a pattern over names (server/optimizers/glob.h).
_NOT_ITSELF = re.compile(r"[*?\\]")

# Of a GradScaler in a row, by which it has halved any scale to nothing: the gradient itself is not finite.
_OVERFLOWS = 64


def _settings(group: Dict[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in group.items() if name not in _NO_MATTER}


def to_settings(optimizer: torch.optim.Optimizer, layout: Layout) -> Dict[str, Any]:
    """As the key `optimizer` of a job file: settings, and a group for each parameter whose rate or decay is its own."""
    kind = type(optimizer)
    if kind not in _RULES:
        names = ", ".join(rule.__name__ for rule in _RULES)
        raise Refused(f"found {kind.__name__}, expected one of {names}: the servers apply the updates, and have no "
                      "other rules")
    name, keys = _RULES[kind]
    if any(int(state.get("step", 0)) > 0 or (kind is torch.optim.SGD and state)
           for state in optimizer.state.values()):
        raise Refused(f"the {kind.__name__} has made steps already, expected one that has not: the servers begin with "
                      "fresh slots")
    if any(getattr(optimizer, f"_optimizer_step_{when}_hooks", None) for when in ("pre", "post")):
        raise Refused(f"the {kind.__name__} has hooks of its step(), expected none: its steps are the servers', of "
                      "which the new parameters come with the next batch")
    groups = optimizer.param_groups
    if kind is torch.optim.Adam and groups[0].get("decoupled_weight_decay"):
        name = "adamw"
    for group in groups:
        if group.get("maximize"):
            raise Refused(f"{kind.__name__} has maximize=True, expected a loss to be minimised: negate the loss")
        for key in (*keys, "decoupled_weight_decay"):
            first, other = groups[0].get(key), group.get(key)
            if not same_settings(first, other):
                raise Refused(f"groups of parameters differ in {key} ({first} and {other}), expected "
                              "learning rates and weight decays alone to differ")
    of = {id(parameter): i for i, group in enumerate(groups) for parameter in group["params"]}
    known = {id(entry.tensor) for entry in layout.parameters + layout.constants}
    if any(id(parameter) not in known and parameter.numel() > 0 for group in groups for parameter in group["params"]):
        raise Refused("the optimizer has a parameter that is none of the model's, expected those of the model: make "
                      "one module of all that is trained")
    if not layout.parameters:
        raise Refused("no parameter of the optimizer's has requires_grad, expected one that is to be trained")
    rates = [float(group.get("initial_lr", group["lr"])) for group in groups]
    base = min((of[id(entry.tensor)] for entry in layout.parameters if rates[of[id(entry.tensor)]] > 0), default=None)
    if base is None:
        raise Refused("all learning rates are 0, expected one above 0")
    settings: Dict[str, Any] = {"name": name, "learning_rate": rates[base],
                                "weight_decay": float(groups[base]["weight_decay"])}
    for key in keys:
        value = groups[0][key]
        settings[key] = [float(x) for x in value] if key == "betas" else value
    own = []
    for entry in layout.parameters:
        i = of[id(entry.tensor)]
        decay = float(groups[i]["weight_decay"])
        if rates[i] != rates[base] or decay != settings["weight_decay"]:
            own.append({"match": _NOT_ITSELF.sub(r"\\\g<0>", entry.name), "learning_rate": rates[i],
                        "weight_decay": decay})
    if own:
        settings["groups"] = own
    return settings


def skipped(optimizer: torch.optim.Optimizer) -> Set[int]:
    """Ids of the parameters that a gradient of zero changes no more than none."""
    is_kind = isinstance(optimizer, (torch.optim.SGD, torch.optim.Adagrad))
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]
            if is_kind and not any(group.get(name) for name in ("weight_decay", "momentum", "lr_decay"))}


def factors(scheduler: Any, optimizer: torch.optim.Optimizer, steps: int) -> List[float]:
    """The learning rate of each of the scheduler's steps divided by the initial base rate, by running the scheduler
    to the job's end.

    The scheduler is used up, and the optimizer's groups are as they were.
    """
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise Refused("ReduceLROnPlateau decides by what is measured, expected a scheduler that is known beforehand: "
                      "the servers have the rates of the whole job from its beginning")
    if getattr(scheduler, "optimizer", optimizer) is not optimizer:
        raise Refused("the scheduler is of another optimizer than the one that is prepared")
    groups = optimizer.param_groups
    before = [dict(group) for group in groups]
    bases = [float(group.get("initial_lr", group["lr"])) for group in groups]
    fixed = [{k: v for k, v in _settings(group).items() if k != "lr"} for group in groups]
    table: List[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no optimizer has made a step before it
        while len(table) < steps:
            step = len(table)
            found = [float(group["lr"]) / base for group, base in zip(groups, bases) if base > 0]
            for factor in found:
                if not same_settings(factor, found[0]) and abs(factor - found[0]) > 1e-9:
                    raise Refused(f"at step {step} the scheduler has factors {found[0]:.6g} and {factor:.6g} for two "
                                  "groups of parameters, expected the same for all")
            for group, settings in zip(groups, fixed):
                for name, value in settings.items():
                    if not same_settings(group[name], value):
                        raise Refused(f"the scheduler changes {name} at step {step}, expected learning rates alone to "
                                      "change (cycle_momentum=False)")
            table.append(found[0] if found else 1.0)
            if len(table) < steps:
                _step(scheduler)
    for group, values in zip(groups, before):
        group.update(values)
    while len(table) > 1 and table[-1] == table[-2]:
        table.pop()  # the last holds afterwards
    return table


def _step(scheduler: Any) -> None:
    try:
        scheduler.step()
    except TypeError as error:  # it asks for more, as timm's do
        kind = type(scheduler)
        raise Refused(f"found a {kind.__name__} of {kind.__module__} for a scheduler, expected one of "
                      f"torch.optim.lr_scheduler, such as a LambdaLR: {error}") from None


def _check_unchanged(optimizer: torch.optim.Optimizer, settings: List[Dict[str, Any]], what: str) -> None:
    for group, known in zip(optimizer.param_groups, settings):
        for name, value in known.items():
            found = group.get(name)
            if found is not value and not same_settings(found, value):
                raise Refused(f"{name} of {what} was changed from {value} to {found}, expected it as it was: the "
                              "servers have the settings of the whole job, a scheduler is given to job.prepare, and "
                              "the one that job.prepare returns is stepped (ReduceLROnPlateau, which decides by what "
                              "is measured, can be neither)")


class _State(Dict[str, Any]):
    """Of libraries that move an optimizer's state to a device and load it again, such as accelerate."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Error("the optimizer's state is the servers', expected the script to save the model alone: "
                    "job.checkpoint() writes both, and `rubato export --optimizer` makes a file of it")


class Optimizer(torch.optim.Optimizer):
    """Replaces the script's optimizer: step() sends the gradients to the servers and changes no parameter.

    Its groups show the settings and the job's rate; they are not to be changed.
    """

    _step_supports_amp_scaling = True  # a GradScaler leaves it to step() to divide by its scale, and to skip

    def __init__(self, optimizer: torch.optim.Optimizer, hand_over: Callable[[float, Optional[float]], None],
                 put_back: Callable[[], None], note_loss: Callable[[Any], None], table: Sequence[float],
                 steps_per_factor: int, overlap: bool):
        """`table`: of learning rates, a factor for each `steps_per_factor` steps of the job. `overlap`: gradients are
        sent before step(), which then cannot set their weight."""
        self._kind = type(optimizer).__name__
        super().__init__([dict(group) for group in optimizer.param_groups], dict(optimizer.defaults))
        self._hand_over = hand_over
        self._put_back = put_back
        self._overlap = overlap
        self._overflows = 0  # in a row
        self.calls = 0  # of step()
        self.watch: Any = None  # a GradientWatch, until the first step()
        self._note_loss = note_loss
        self._table = table
        self._steps_per_factor = steps_per_factor
        self._given = optimizer
        self._given_settings = [_settings(group) for group in optimizer.param_groups]
        self.base_lrs = [float(group.get("initial_lr", group["lr"])) for group in self.param_groups]
        self._shown = [_settings(group) for group in self.param_groups]
        self._ready = True

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None, *, weight: Optional[float] = None) -> Any:
        """Gives the gradients in `.grad` for the micro-batch at hand, zero for parameters that have none.

        closure: computes the loss and the gradients, as for any optimizer; its loss is the job's.
        weight: what the loss is a mean over, such as tokens; default: the samples.
        """
        self.calls += 1
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
            self._note_loss(loss)
        _check_unchanged(self, self._shown, "the optimizer")
        _check_unchanged(self._given, self._given_settings, "the optimizer that job.prepare was given")
        if self.watch is not None:
            self.watch.end(by_scaler=hasattr(self, "found_inf"))
            self.watch = None
        # Set by a GradScaler for the time of the call. Where its scale was too large the micro-batch comes again, when
        # it has lowered the scale: torch would skip the step, but each sample is to count once.
        scale = getattr(self, "grad_scale", None)
        if self._overlap and weight is not None:
            raise Refused("optimizer.step(weight=...) was called, expected no weight with overlap=True: how much a "
                          "micro-batch counts would have to be known before its gradients leave")
        if self._overlap and hasattr(self, "found_inf"):
            raise Refused("a GradScaler steps the optimizer, expected none with overlap=True: whether its scale was "
                          "too large is known when all gradients are there, and by then some would have left")
        self._overflows = self._overflows + 1 if float(getattr(self, "found_inf", 0)) > 0 else 0
        if 0 < self._overflows < _OVERFLOWS:
            self._put_back()
            return loss
        self._hand_over(1.0 if scale is None else 1.0 / float(scale), weight)
        return loss

    def zero_grad(self, *arguments: Any, **named: Any) -> None:
        """As for any optimizer. Gradients that step() has sent are cleared already; then this skips torch's slower
        check."""
        if any(parameter.grad is not None for group in self.param_groups for parameter in group["params"]):
            super().zero_grad(*arguments, **named)

    def show_rate(self, step: int) -> None:
        """The groups' rates become those of a step of the job."""
        factor = self._table[min(self.place_of(step), len(self._table) - 1)] if self._table else 1.0
        for group, base, known in zip(self.param_groups, self.base_lrs, self._shown):
            group["lr"] = known["lr"] = base * factor

    def place_of(self, step: int) -> int:
        """The place in the table, of which the rates of a step of the job are."""
        return step // self._steps_per_factor

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        if getattr(self, "_ready", False):
            raise Refused("a group of parameters was added after job.prepare, expected all before: the servers have "
                          "the settings of the whole job")
        super().add_param_group(param_group)

    def state_dict(self) -> Dict[str, Any]:
        """The groups' settings, which cannot be saved; the servers have the rest."""
        return _State(state={}, param_groups=super().state_dict()["param_groups"])

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        if isinstance(state_dict, _State):
            return
        raise Error(f"the state of {self._kind} is the servers': `rubato train --resume` goes on from a checkpoint")


class Scheduler(torch.optim.lr_scheduler._LRScheduler):
    """Replaces the script's scheduler: the servers already have its table of rates; step() shows the job's rate, and
    refuses calls of which that table does not tell. One of torch's by its type alone, which libraries look at."""
    optimizer: Optimizer

    def __init__(self, optimizer: Optimizer, engine: Engine, per: str, loop: Callable[[], int]):
        """`per`: "step" or "epoch", which step() is called for. `loop`: how many loops over the loader have begun."""
        self.optimizer = optimizer
        self._engine = engine
        self._per, self._loop = per, loop
        self._last_loop = 0  # in which step() was called last
        self._last_calls = 0  # of optimizer.step() before that
        self._place = -1  # the last step or epoch of which a micro-batch was computed
        self._is_called = True  # since its first

    def note(self) -> None:
        """Of a micro-batch that is computed. Refused if step() was not called for those before."""
        place = self.optimizer.place_of(self._engine.step)
        if self._per == "epoch" and place <= self._place:  # of one that is computed again, too
            return
        if not self._is_called:
            raise Refused(f"scheduler.step() was not called for {self._per} {self._place} of the job, {self._expected}")
        self._place, self._is_called = place, False

    def step(self, epoch: Any = None) -> None:
        """epoch: as with torch, the number of the step or epoch that follows."""
        if not (self._engine.is_final or self._engine.is_over):
            self._check(epoch)
        self._last_loop, self._last_calls, self._is_called = self._loop(), self.optimizer.calls, True
        self.optimizer.show_rate(self._engine.next_step)

    def _check(self, epoch: Any) -> None:
        calls = self.optimizer.calls - self._last_calls
        if epoch is not None:
            is_behind = calls == 0 and epoch < self.last_epoch  # as of a worker that comes late
            if epoch != self.last_epoch and not is_behind:
                raise Refused(f"scheduler.step({shown(epoch)}) was called before {self._per} {self.last_epoch} of the "
                              f"job, {self._expected}")
        elif self.optimizer.calls == 0 and (self._loop() == 0 or self._engine.begun > 0):
            raise Refused("scheduler.step() was called before the first optimizer.step(), where PyTorch skips the "
                          f"first learning rate, {self._expected}")
        elif self._loop() == self._last_loop and (calls == 0 or self._per == "epoch"):
            raise Refused(f"scheduler.step() was called twice for one {self._per}, {self._expected}")

    @property
    def _expected(self) -> str:
        when, other = (("each optimizer.step()", "epoch") if self._per == "step" else
                       ("the batches of each epoch", "step"))
        return (f"expected scheduler.step() once behind {when}, as the servers have the rates of the whole job; where "
                f"the scheduler goes by {other}s: job.prepare(..., scheduler_per=\"{other}\")")

    @property
    def last_epoch(self) -> int:  # type: ignore[override]
        """As torch's: the number of the step or epoch that follows."""
        return self.optimizer.place_of(self._engine.next_step)

    @property
    def base_lrs(self) -> List[float]:  # type: ignore[override]
        return self.optimizer.base_lrs

    def get_last_lr(self) -> List[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> Dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        raise Error("the scheduler's place is the job's: `rubato train --resume` goes on from a checkpoint")
