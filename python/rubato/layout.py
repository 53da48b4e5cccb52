"""A module's parameters as the flat vector that the servers hold: names, shapes, and where gradients go.

The vector contains the parameters that are trained, in the order in which modules and parameters were registered,
followed by the running statistics of normalising layers, each of which is an average that the servers keep. Parameters
that are not trained stay with the workers.
"""

import dataclasses
import math
from typing import Any, Dict, List, Optional, Tuple

import torch

from . import staging
from .digest import of_tensor
from .core import Work, Worker
from .errors import Refused, warn

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_PIECE = 1 << 24  # values
_MOST_PINNED = 8  # pieces of memory that are lent: more are not likely, and pinned memory is never swapped out
_NORMALISING = torch.nn.modules.batchnorm._NormBase  # batch norm's and instance norm's


@dataclasses.dataclass
class Entry:
    """A named range of the flat vector."""

    name: str
    tensor: torch.Tensor
    average: float  # as proto::Parameter's: 0 for a parameter
    begin: int  # values
    size: int


class Layout:
    """The layout of one module. It moves the parameters, and changes the momentum of normalising layers."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer):
        model = getattr(model, "_orig_mod", model)  # what torch.compile has wrapped
        optimized = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        self.entries: List[Entry] = []
        self.constants: List[Entry] = []  # parameters that are not trained, and in no vector
        self.frozen: List[Entry] = []  # those of them that the optimizer has
        self._normalising: List[Any] = []
        self._norms: List[str] = []  # their names
        self._buffers: List[Any] = []  # of triples (their layer, name, tensor): averages
        self.values = 0
        averages: List[Any] = []
        seen = set()
        for prefix, module in model.named_modules():
            _check_module(prefix, module)
            where = prefix + "." if prefix else ""
            for name, parameter in module._parameters.items():
                if parameter is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    if parameter.requires_grad and id(parameter) in optimized:
                        _check_embedding(prefix, module)
                        self._add(where + name, parameter, 0)
                    else:
                        _check_shape(where + name, parameter)
                        self.constants.append(Entry(where + name, parameter, 0, 0, 0))
                        if id(parameter) in optimized:
                            self.frozen.append(self.constants[-1])
            if isinstance(module, _NORMALISING) and module.running_mean is not None:
                if module.momentum is None:
                    raise Refused(f"{prefix}: found momentum=None, a mean over all batches, expected a number: the "
                                  "servers average with a fixed momentum")
                if module.momentum > 0:
                    self._normalising.append(module)
                    self._norms.append(prefix or type(module).__name__)
                    for name in ("running_mean", "running_var"):
                        tensor = getattr(module, name)
                        averages.append((where + name, tensor, module.momentum))
                        self._buffers.append((module, name, tensor))
        for average in averages:  # behind all parameters
            self._add(*average)
        self.parameters = [entry for entry in self.entries if entry.average == 0]
        self._trainable = [entry.tensor for entry in self.parameters]
        if not self.parameters and not self.constants:
            raise Refused("the model has no parameters to train")
        self._check_memories(model)
        self._momenta = [module.momentum for module in self._normalising]
        self._loads: List[Any] = []  # of pairs (tensor, the values in the vector), where memory is not shared
        self._averages: List[Any] = []  # likewise, of these alone
        self._staging: Dict[torch.device, staging.Staging] = {}  # of GPUs that have entries
        self._pin: Optional[staging.Pin] = None  # of the shared memory
        self._lent_pins: List[staging.Pin] = []  # of memory that rubato-worker lends
        self._may_pin_lent = True
        self._staged: Dict[int, Any] = {}  # entries of GPUs: (their staging, their place in it)
        self._parameters: Any = None  # the flat vector, as tensors
        self._shared: List[Any] = []  # of triples (entry, its view, its address): tensors that lie in the vector
        self._versions: List[int] = []
        self._kept = [entry.tensor.data for entry in self.constants]  # where their values lie
        self._kept_versions = _versions_of(self.constants)
        self._has_warned_of_constants = False
        self._sums: Optional[List[str]] = None  # of the parameters' values, while the first micro-batch is at hand
        self._has_watched = False  # that micro-batch
        self._has_loaded = False
        self._has_warned = False
        self._counts: List[int] = []  # of batches, of the normalising layers, before the first micro-batch
        self._has_counted = False

    def _add(self, name: str, tensor: torch.Tensor, average: float) -> None:
        _check_shape(name, tensor)
        if tensor.numel() == 0:  # nothing to train
            return
        if tensor.dtype not in _FLOATS:
            raise Refused(f"{name}: found {tensor.dtype}, expected real numbers with a floating point: parameters are "
                          "float32 at the servers")
        self.entries.append(Entry(name, tensor, average, self.values, tensor.numel()))
        self.values += tensor.numel()

    def _check_memories(self, model: torch.nn.Module) -> None:
        """Refused if a parameter that is trained is tied to another tensor by its memory, which it would leave."""
        held = [(*_range_of(entry.tensor), entry.name, entry.size > 0) for entry in self.parameters + self.constants]
        held += [(*_range_of(buffer), name, False) for name, buffer in model.named_buffers()]
        last = (0, "", False)  # of those that begin before: the one that ends last
        for begin, end, name, is_trained in sorted(held):
            if begin < last[0] and (is_trained or last[2]):
                raise Refused(f"{last[1]} and {name} lie in one memory, expected memory of its own for a parameter "
                              "that is trained, or one parameter in both places: assign the parameter itself, not its "
                              ".data")
            last = max(last, (end, name, is_trained))

    def _views(self, memory: Any, offset: int) -> staging.Flat:
        """The flat vector at so many bytes of `memory`."""
        return staging.Flat(torch.frombuffer(memory, dtype=torch.float32, count=self.values, offset=offset),
                            self.entries)

    @torch.no_grad()
    def move_to(self, memory: Any) -> None:
        """The values go into the flat vector at the beginning of `memory`, and parameters lie there from now on as far
        as torch allows."""
        self._parameters = self._views(memory, 0)
        on_gpus: Dict[torch.device, List[int]] = {}
        for index, (entry, view) in enumerate(zip(self.entries, self._parameters.views)):
            tensor = entry.tensor
            view.copy_(tensor)
            if staging.is_staged(tensor):
                on_gpus.setdefault(tensor.device, []).append(index)
            elif entry.average > 0:
                self._averages.append((tensor, view))
            elif tensor.dtype == torch.float32 and tensor.device.type == "cpu" and tensor.is_contiguous():
                tensor.data = view
                self._shared.append((entry, view, view.data_ptr()))
            else:
                self._loads.append((tensor, view))
        for device, indices in on_gpus.items():
            if self._pin is None:
                self._pin = staging.Pin(device, memory, "copies to and from the GPU take longer")
            way = staging.Staging(device, [self.entries[index] for index in indices])
            self._staging[device] = way
            self._staged.update((index, (way, place)) for place, index in enumerate(indices))
        self.note_versions()

    def begin_batch(self) -> None:
        """Until end_batch normalising layers measure: what was before counts for nothing."""
        for name, module, momentum in zip(self._norms, self._normalising, self._momenta):
            if module.momentum != momentum:
                raise Refused(f"{name}: momentum was changed from {momentum} to {module.momentum} after job.prepare, "
                              "expected it as it was: the servers average with it")
            module.momentum = 1.0
        if not self._has_counted:
            self._counts = [_batches_of(module) for module in self._normalising]

    def end_batch(self) -> None:
        """Nothing of a micro-batch stays: neither its gradients nor its statistics in place of the averages."""
        self._restore_momenta()
        if not self._has_counted:
            self._has_counted = True
            self._warn_of_several_runs()
        self.forget_gradients()
        self.load(False)

    def _warn_of_several_runs(self) -> None:
        """With a momentum of 1.0 the last one counts. As the first micro-batch is, so are the others."""
        runs = next((now - before for now, before in zip(map(_batches_of, self._normalising), self._counts)
                     if now - before > 1), 1)
        if runs > 1:
            warn(f"batch norm runs {runs} times in a micro-batch, and its running averages are of the "
                 "last run alone: run the model once, on all of the micro-batch's inputs. (Of runs that activation "
                 "checkpointing repeats they are right)")

    def _restore_momenta(self) -> None:
        for module, momentum in zip(self._normalising, self._momenta):
            module.momentum = momentum

    @property
    def devices(self) -> List[torch.device]:
        """GPUs that have some of it, which can only write directly to pinned memory."""
        return list(self._staging)

    @property
    def all_devices(self) -> List[torch.device]:
        """The same, and those of what is not trained."""
        constants = [entry.tensor for entry in self.constants]
        return list(dict.fromkeys([*self._staging, *(one.device for one in constants if staging.is_staged(one))]))

    @property
    def adds(self) -> bool:
        """Whether it adds up the gradients of micro-batches: a GPU does, if it has all of them."""
        return len(self._staging) == 1 and len(self._staged) == len(self.entries)

    def pin_lent(self, memory: Any) -> bool:
        """Whether gradients can be written to this piece of memory, which rubato-worker lends. GPUs write to what is
        pinned; that takes milliseconds, so it is done once and stays so."""
        if not self._staging:
            return True
        if not self._may_pin_lent or len(self._lent_pins) == _MOST_PINNED:
            return False
        pin = staging.Pin(next(iter(self._staging)), memory, "each gradient is copied once more")
        if pin.holds:
            self._lent_pins.append(pin)
        self._may_pin_lent = pin.holds
        return pin.holds

    def unpin_lent(self) -> None:
        """All that was lent before is given up."""
        for way in self._staging.values():
            way.wait()
        while self._lent_pins:
            self._lent_pins.pop().close()

    def give_back(self) -> None:
        """Restores the layers' momentum, and unpins the memory, which only the script uses from then on."""
        self._restore_momenta()
        try:
            self.unpin_lent()
            if self._pin is not None:
                self._pin.close()
        except RuntimeError:  # a GPU that has failed says so at every call
            pass
        self._staging, self._staged, self._pin = {}, {}, None

    def load(self, is_new: bool) -> None:
        """Loads the changed values of the flat vector into the model. Averages are always loaded, since layers
        overwrite them."""
        if is_new:
            self._check_memory()
            if self._has_loaded:
                self._warn_of(self._changed())
            else:
                self._check_begins()
        with torch.no_grad():
            for tensor, view in self._averages + (self._loads if is_new else []):
                tensor.copy_(view)
            for way in self._staging.values():
                if is_new:
                    way.load(self._parameters.all)
                else:
                    way.restore_averages()
        if is_new:
            self.note_versions()
            if not self._has_watched:
                self._sums = self._sum_up()

    def _check_begins(self) -> None:
        """Raises Refused if the script has changed parameters since move_to: whose value the job begins with would
        depend on the worker and on where the parameter lies."""
        self._has_loaded = True
        early = self._changed()
        if early is not None:
            raise Refused(f"{early} was changed in place after job.prepare, expected it before: the job begins with "
                          "the values of that time")

    def note_versions(self) -> None:
        """The parameters are as they should be, or are about to be loaded."""
        self._versions = _versions_of(self.parameters)

    def restore(self) -> None:
        """The parameters are about to be loaded, whatever the script has made of them: those that lay in the vector
        lie there again."""
        for entry, view, address in self._shared:
            if entry.tensor.data_ptr() != address:
                entry.tensor.data = view
        for module, name, tensor in self._buffers:
            module._buffers[name] = tensor
        for entry, values in zip(self.constants, self._kept):
            if entry.tensor.data_ptr() != values.data_ptr():
                entry.tensor.data = values
        self._kept_versions = _versions_of(self.constants)
        self.note_versions()
        self._sums = None  # until they are loaded

    def end_watch(self) -> None:
        """The parameters may change from now on. The first micro-batch alone shows whether the script writes to their
        `.data`, of which torch counts no version: to look each time would take as long as to load them."""
        if self._sums is not None:
            self._warn_of(self._changed())
            self._sums, self._has_watched = None, True

    def _warn_of(self, name: Optional[str]) -> None:
        if name is not None and not self._has_warned:
            self._has_warned = True
            warn(f"{name} was changed in place after optimizer.step(), and the change is "
                 "lost: the servers hold the parameters")

    def _warn_of_constants(self) -> None:
        changed = next((entry.name for entry, version in zip(self.constants, self._kept_versions)
                        if entry.tensor._version != version), None)
        if changed is not None and not self._has_warned_of_constants:
            self._has_warned_of_constants = True
            warn(f"{changed}, which the optimizer does not train, was changed in place: each worker changes its own, "
                 "and a checkpoint has none")

    def _sum_up(self) -> List[str]:
        return [sums_of(tensor) for tensor in self._trainable]

    def _check_memory(self) -> None:
        """Raises Refused if a tensor that lay in the vector lies elsewhere, where no new values arrive, or another
        stands in its place."""
        moved = [entry.name for entry, _, address in self._shared if entry.tensor.data_ptr() != address]
        moved += [name for module, name, tensor in self._buffers if module._buffers.get(name) is not tensor]
        if moved:
            raise Refused(f"the memory of {moved[0]} was replaced after job.prepare, expected it to stay, as the "
                          "servers' values arrive there: call model.to(...), .double() and the like before "
                          "job.prepare, and do not assign to a parameter's .data")

    def check_untouched(self) -> None:
        """Raises Refused if the script has changed parameters since the last load."""
        self._check_memory()
        self._warn_of_constants()
        name = self._changed()
        if name is not None:
            raise Refused(f"{name} was changed in place by the script, expected only optimizer.step() to "
                          "change parameters: the servers hold them, and the change would be lost")

    def _changed(self) -> Optional[str]:
        """The first parameter that the script has changed since the last load."""
        before = self._sums or []
        now = self._sum_up() if before else []
        return next((entry.name for i, entry in enumerate(self.parameters)
                     if entry.tensor._version != self._versions[i]
                     or before and now[i] != before[i]), None)

    def gradient(self, worker: Worker, work: Work) -> staging.Flat:
        """Where the gradient of `work` is to be written."""
        vector: staging.Flat = worker.gradient(work).views(self._views)
        return vector

    @torch.no_grad()
    def fill(self, worker: Worker, work: Work, factor: float, is_empty: bool = False) -> None:
        """Writes factor x .grad of the parameters, 0 for those that have none or if it `is_empty`, and samples x each
        statistic, to the gradient of `work`, in one pass, or adds it to what is kept of the micro-batches before."""
        self.begin_sum(work)
        if not work.keeps:
            vector = self.gradient(worker, work)
            for index in range(len(self.entries)):
                if index not in self._staged:
                    self.fill_entry(index, vector, work, factor, is_empty)
        for way in self._staging.values():
            values = [self._value(entry, is_empty) for entry in way.entries]
            way.sum_up(values, factor, work.end - work.begin, work.adds)
            if not work.keeps:
                way.write(vector.all)
        self.end_sum(work)

    def begin_sum(self, work: Work) -> None:
        """Begins the gradient of `work`."""
        for way in self._staging.values():
            way.begin(work.kept)

    def end_sum(self, work: Work) -> None:
        """The gradient of `work` is summed up: waits until what was begun to be written of it is written."""
        for way in self._staging.values():
            if not work.keeps:
                way.wait()
            way.end(work.adds, work.keeps)

    def _value(self, entry: Entry, is_empty: bool) -> Any:
        """What an entry brings; None: 0."""
        if entry.average > 0:
            return entry.tensor
        value = None if is_empty else entry.tensor.grad
        if value is not None and value.is_sparse:
            raise Refused(f"{entry.name} has a sparse gradient, expected a dense one: make the embedding with "
                          "sparse=False")
        return value

    def fill_entry(self, index: int, vector: staging.Flat, work: Work, factor: float, is_empty: bool = False,
                   below: Optional[int] = None) -> Any:
        """As fill, one entry; `below`: what of it lies before that place of the flat vector. Of a tensor of a GPU this
        only begins: returns an event that happens when it is done, None where it is."""
        entry, view = self.entries[index], vector.views[index]
        scale = work.end - work.begin if entry.average > 0 else factor
        value = self._value(entry, is_empty)
        if index in self._staged:
            way, place = self._staged[index]
            way.sum_up_entry(place, value, scale, work.adds)
            return way.write_entry(place, view.flatten()[:None if below is None else below - entry.begin])
        if below is not None and below < entry.begin + entry.size:
            view = view.flatten()[:below - entry.begin]
            value = None if value is None else value.flatten()[:below - entry.begin]
        if value is None:
            view.zero_()
        elif value.device.type == "cpu" and value.dtype in (torch.float32, torch.float64):
            torch.mul(value, scale, out=view)
        else:  # in float32: half types would round the product once more, and float16 overflows
            view.copy_(value).mul_(scale)
        return None

    def forget_gradients(self) -> None:
        """Clears the gradients, so that they are not added to those of the next micro-batch."""
        for entry in self.parameters + self.constants:
            entry.tensor.grad = None

    def to_proto(self) -> Dict[str, Any]:
        """As JSON of proto::Layout, but for the optimizer."""
        parameters = []
        for entry in self.entries:
            parameter: Dict[str, Any] = {"name": entry.name, "shape": list(entry.tensor.shape)}
            if entry.average > 0:
                parameter["average"] = entry.average
            parameters.append(parameter)
        constants = [{"name": entry.name, "digest": of_tensor(entry.tensor)} for entry in self.constants]
        return {"parameters": parameters, "constants": constants}


def sums_of(tensor: torch.Tensor) -> str:
    """By which writes to its `.data` show, of which torch counts no version. A text, as nan is to equal nan."""
    # By pieces, since torch makes a float64 of all that it sums up.
    pieces = tensor.detach().flatten().split(_PIECE) if tensor.is_contiguous() else (tensor.detach(),)
    # Of a layer's gradient the sum may well be 0, as behind a softmax.
    return repr([(float(piece.sum(dtype=torch.float64)), float(piece.abs().sum(dtype=torch.float64)))
                 for piece in pieces])


def _versions_of(entries: List[Entry]) -> List[int]:
    return [entry.tensor._version for entry in entries]


def _range_of(tensor: torch.Tensor) -> Tuple[int, int]:
    """The addresses of its values; two that are the same where it has none."""
    if tensor.layout is not torch.strided or tensor.numel() == 0 or tensor.data_ptr() == 0:
        return 0, 0
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _check_shape(name: str, tensor: torch.Tensor) -> None:
    if torch.nn.parameter.is_lazy(tensor):
        raise Refused(f"{name} has no shape yet: run the model once on a batch before job.prepare")


def _batches_of(module: Any) -> int:
    """That a normalising layer has run on; of instance norm, which does not count, 0."""
    return 0 if module.num_batches_tracked is None else int(module.num_batches_tracked)


def _check_module(name: str, module: torch.nn.Module) -> None:
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        raise Refused("the model is wrapped in DistributedDataParallel, expected the module in it: Rubato's servers "
                      "take the place of all-reduce")
    if getattr(module, "sparse", False) and isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
        raise Refused(f"{name} has sparse=True, expected dense gradients: make the embedding with sparse=False")


def _check_embedding(name: str, module: torch.nn.Module) -> None:
    """Of one that is trained."""
    if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.max_norm is not None:
        raise Refused(f"{name} has max_norm={module.max_norm}, by which forward changes its weight, expected None: the "
                      "servers hold the parameters, and the change would be lost")


def same_settings(a: Any, b: Any) -> bool:
    """Of optimizers: numbers that differ by rounding alone are the same."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=1e-12, abs_tol=0)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(same_settings, a, b))
    return a is b or a == b
