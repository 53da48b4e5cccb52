"""Job.prepare for torch: checks what the script has, and registers it."""

import math
import sys
from typing import Any, List, Optional, Tuple

import torch

from . import hints
from .digest import digest
from .engine import Engine
from .errors import Refused, shown
from .layout import Layout
from .length import total_steps
from .loader import Loader
from .optimizers import Optimizer, Scheduler, factors, skipped, to_settings
from .others import Others
from .overlap import Overlap
from .sampler import Order, check_order


def prepare(job: Any, model: Any, optimizer: Any, loader: Any, scheduler: Any, loss: str,
            clip_grad_norm: Optional[float], scheduler_per: str, order: Order, overlap: bool) -> Tuple[Any, ...]:
    """See Job.prepare."""
    _check(job, model, optimizer, scheduler, loss, scheduler_per, clip_grad_norm, order, overlap)
    layout = Layout(model, optimizer)
    batches = Loader(loader, order)
    settings = to_settings(optimizer, layout)
    worker = job._start(batches.batch_size)
    train = worker.job["train"]
    batch = int(train["batch_size"])
    micro_batches = int(train.get("micro_batches", 1))
    batches.use_batch(batch, micro_batches)
    table: List[float] = []
    steps_per_factor = -(-batches.samples // batch) if scheduler_per == "epoch" else 1
    if scheduler is not None:
        steps = total_steps(train["until"], batches.samples, batch)
        if steps is None:
            raise Refused("train.until is a time, and there is a scheduler: expected epochs, steps or samples, by "
                          "which the rates of the whole job are known")
        scheduled = -(-steps // steps_per_factor)
        hints.of_length(scheduler, scheduled, scheduler_per)
        table = factors(scheduler, optimizer, scheduled)
        hints.of_zeros(table, scheduled, scheduler_per)
        settings["schedule"] = {"name": "table", "factors": table, "steps_per_factor": steps_per_factor}
    if clip_grad_norm is not None:
        settings["clip_grad_norm"] = float(clip_grad_norm)

    batches.use_seed(int(worker.job.get("seed", 0)))
    layout.move_to(worker.make_memory(layout.values))
    worker.on_lent, worker.on_taken_back = layout.pin_lent, layout.unpin_lent
    worker.register({**layout.to_proto(), "optimizer": settings}, batches.samples, digest(batches.dataset, order),
                    _numerics(layout.all_devices), max(2, batches.ahead), layout.adds)
    engine = Engine(worker, batches.samples, layout.load)
    engine.is_mean = loss == "mean"
    engine.on_asking = layout.end_watch
    job._engine, job._layout, job._model = engine, layout, model

    def hand_over(scale: float, weight: Optional[float]) -> None:
        layout.check_untouched()
        for entry in layout.frozen:
            if entry.tensor.requires_grad or entry.tensor.grad is not None:
                raise Refused(f"{entry.name} was frozen at job.prepare and is not any more, expected it as it was: the "
                              "servers do not have it. To train it from some epoch on: a job of its own, whose script "
                              "begins with what this one's job.save has written")
        counts = engine.weight_of(weight)
        if counts > 0 and engine.work.rank == 0:  # one warning in a job
            missing.note(engine.work)
        if returned is not None and counts > 0:
            returned.note()
        factor = scale * engine.factor_of(counts)
        is_empty = counts <= 0  # the mean over nothing is no number
        if early is not None:
            engine.fill(early.finish, counts)
        else:
            engine.fill(lambda work: layout.fill(worker, work, factor, is_empty), counts)
        layout.end_batch()
        buffers.end()

    def begin() -> None:
        layout.begin_batch()
        buffers.begin()
        engine.begin()

    def on_over() -> None:
        if engine.is_done:
            missing.end()
        job._release()

    engine.on_over = on_over

    def put_back() -> None:
        layout.end_batch()
        engine.put_back()

    prepared = Optimizer(optimizer, hand_over, put_back, lambda value: job.log(loss=value), table,
                         steps_per_factor, overlap)
    prepared.show_rate(0)
    missing = hints.MissingGradients(layout.parameters, skipped(optimizer))
    buffers = hints.BufferWatch(model, {id(entry.tensor) for entry in layout.entries})
    if not overlap:  # which refuses what is watched for
        prepared.watch = hints.GradientWatch([entry.tensor for entry in layout.parameters])
    early = Overlap(layout, engine) if overlap else None
    job._others = Others({id(entry.tensor): entry.name for entry in layout.parameters + layout.constants},
                         lambda: not (engine.is_final or engine.is_over or job._evaluating))
    returned = None if scheduler is None else Scheduler(prepared, engine, scheduler_per, lambda: job._loops)
    batches.connect(engine, job._limit, job._pass, begin, put_back)
    result = (model, prepared, batches)
    return result if returned is None else result + (returned,)


def _check(job: Any, model: Any, optimizer: Any, scheduler: Any, loss: str, scheduler_per: str,
           clip_grad_norm: Optional[float], order: Order, overlap: bool) -> None:
    if job._engine is not None:
        raise Refused("job.prepare was called twice, expected once: a job has one model and one optimizer")
    if not isinstance(model, torch.nn.Module):
        raise Refused(f"found a {type(model).__name__} for a model, expected a torch.nn.Module")
    if isinstance(optimizer, (list, tuple)):
        raise Refused(f"found {len(optimizer)} optimizers, expected one: groups of parameters may have learning rates "
                      "of their own (docs/pytorch.md, Two optimizers)")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise Refused(f"found a {type(optimizer).__name__} for an optimizer, expected one of torch.optim")
    if scheduler is None and any("initial_lr" in group for group in optimizer.param_groups):
        raise Refused("the optimizer has a scheduler that job.prepare was not given, expected it as the fourth "
                      "argument: the servers have the rates of the whole job from its beginning")
    if loss not in ("mean", "sum"):
        raise Refused(f"found loss={shown(loss)}, expected 'mean' or 'sum'")
    if scheduler_per not in ("step", "epoch"):
        raise Refused(f"found scheduler_per={shown(scheduler_per)}, expected 'step' or 'epoch'")
    if scheduler is not None and not hasattr(scheduler, "step"):
        raise Refused(f"found a {type(scheduler).__name__} for a scheduler, expected one of torch.optim.lr_scheduler")
    if clip_grad_norm is not None and not _is_positive(clip_grad_norm):
        raise Refused(f"found clip_grad_norm={shown(clip_grad_norm)}, expected a finite number above 0, or None to "
                      "leave it out")
    check_order(order, Refused)
    if not isinstance(overlap, bool):
        raise Refused(f"found overlap={shown(overlap)}, expected True or False")


def _is_positive(value: Any) -> bool:
    try:
        return not isinstance(value, (bool, str, bytes)) and 0 < float(value) < math.inf
    except (TypeError, ValueError, OverflowError):
        return False


def _numerics(devices: List[torch.device]) -> str:
    """The properties of this process, and of the GPUs that it computes on, that the bits of the result depend on."""
    cpu = getattr(torch.backends, "cpu", None)
    capability = getattr(cpu, "get_cpu_capability", lambda: "")()
    gpus = "".join(f" {torch.cuda.get_device_name(device)} CUDA {torch.version.cuda} cuDNN "
                   f"{torch.backends.cudnn.version()}" for device in devices if device.type == "cuda")
    return (f"torch {torch.__version__} {capability} threads {torch.get_num_threads()} python {sys.version_info[0]}"
            f"{gpus}")
