"""A worker for models that are not a torch.nn.Module: NumPy arrays, or JAX arrays made from them."""

import dataclasses
import numbers
import sys
from typing import Any, Dict, Iterator, List, Mapping, Optional, Union

from . import figures
from .engine import Engine
from .errors import Refused, shown
from .job import Job, join
from .sampler import Order, Places, check_order


@dataclasses.dataclass
class Work:
    """A micro-batch."""

    indices: List[int]  # of its samples, in the data set
    seed: int  # of what is drawn for it, 64 bits
    epoch: int


class Worker:
    """Iterating yields micro-batches; each is answered by push.

        parameters = {"w": numpy.zeros((784, 10), numpy.float32), "b": numpy.zeros(10, numpy.float32)}
        worker = rubato.Worker(rubato.join(epochs=3), parameters, samples=60000, batch_size=64,
                               optimizer={"name": "sgd", "learning_rate": 0.1})
        for work in worker:
            loss, gradients = compute(parameters, x[work.indices], y[work.indices])
            worker.push(gradients, loss=loss)

    The arrays are filled with the parameters for each micro-batch, and with the final ones at the end.
    """

    def __init__(self, job: Union[Job, Dict[str, Any], None], arrays: Mapping[str, Any], samples: int,
                 optimizer: Dict[str, Any], *, batch_size: int = 1, order: Order = None):
        """
        Args:
            job: from join, or the dictionary that join takes.
            arrays: float32 arrays by name; they are the layout, in their order, and the initial values.
            samples: in the data set.
            optimizer: as the key of a job file, such as {"name": "adam", "learning_rate": 0.001}.
            batch_size: train.batch_size, where the job does not say.
            order: see Job.prepare.
        """
        import numpy

        self._numpy = numpy
        self.job = job if isinstance(job, Job) else join(job)
        for name, number in ("samples", samples), ("batch_size", batch_size):
            if not isinstance(number, numbers.Integral) or number < 1:
                raise Refused(f"found {name}={shown(number)}, expected a whole number above 0")
        samples, batch_size = int(samples), int(batch_size)  # they may be NumPy's
        check_order(order, Refused)
        if not isinstance(optimizer, dict):
            raise Refused(f"found optimizer={shown(optimizer)}, expected a dictionary, such as "
                          "{'name': 'sgd', 'learning_rate': 0.1}")
        if not isinstance(arrays, Mapping):
            raise Refused(f"found a {type(arrays).__name__} for the arrays, expected a dictionary of arrays by name")
        for name, array in arrays.items():
            if not isinstance(array, numpy.ndarray) or array.dtype != numpy.float32:
                raise Refused(f"{name}: found {getattr(array, 'dtype', type(array).__name__)}, expected an array of "
                              "float32, which is filled with the parameters")
        self._arrays = {name: array for name, array in arrays.items() if array.size > 0}
        self._values = sum(array.size for array in self._arrays.values())
        worker = self.job._start(batch_size)
        memory = worker.make_memory(self._values)
        self._parameters = self._views(memory, 0)
        for name, view in self._parameters.items():
            view[...] = arrays[name]
        layout = {"parameters": [{"name": name, "shape": list(array.shape)} for name, array in self._arrays.items()],
                  "optimizer": dict(optimizer)}
        worker.register(layout, samples, f"arrays {samples}",
                        f"numpy {numpy.__version__} python {sys.version_info[0]}", 2)
        self._places = Places(samples, int(worker.job.get("seed", 0)), order, error=Refused)
        self._engine = self.job._engine = Engine(worker, samples, self._load)
        self._engine.answer, self._engine.answerer = "worker.push", "the rubato.Worker"
        self._engine.source = "the loop over the rubato.Worker"
        self._engine.on_over = self.job._release
        self._engine.on_samples = self._places.tell

    def _views(self, memory: Any, offset: int) -> Dict[str, Any]:
        """The arrays in the flat vector at so many bytes of the memory."""
        flat = self._numpy.frombuffer(memory, self._numpy.float32, self._values, offset)
        views, begin = {}, 0
        for name, array in self._arrays.items():
            views[name] = flat[begin:begin + array.size].reshape(array.shape)
            begin += array.size
        return views

    def _load(self, is_new: bool) -> None:
        if is_new:
            for name, array in self._arrays.items():
                array[...] = self._parameters[name]

    def __iter__(self) -> Iterator[Work]:
        engine = self._engine
        while True:
            work = engine.advance()
            if work is None:
                engine.settle()
                return
            engine.begin()
            try:
                yield Work(self._places(work.epoch, work.begin, work.end), engine.key, work.epoch)
            except GeneratorExit:
                engine.put_back()
                raise
            if engine.begun == 1:  # as is done with the first, so with the others
                self._check_untouched()

    def _check_untouched(self) -> None:
        """Refused if the script has changed the arrays since they were filled."""
        for name, array in self._arrays.items():
            if array.tobytes() != self._parameters[name].tobytes():
                raise Refused(f"{name} was changed by the script, expected only the servers to change the parameters: "
                              "worker.push gives them the gradients, and the optimizer is theirs")

    def push(self, gradients: Mapping[str, Any], weight: Optional[float] = None, loss: Optional[float] = None) -> None:
        """Answers the micro-batch at hand.

        Args:
            gradients: of each array by name, in its shape, of the mean loss over the micro-batch.
            weight: what that is a mean over; default: the micro-batch's samples.
            loss: the mean loss.
        """
        engine = self._engine
        counts = engine.weight_of(weight)
        numpy = self._numpy
        for name in self._arrays:
            if name not in gradients:
                raise Refused(f"found gradients of {', '.join(gradients) or 'nothing'}, expected one of {name}, too")

        def write(work: Any) -> None:
            for name, view in engine.worker.gradient(work).views(self._views).items():
                gradient = numpy.asarray(gradients[name])
                if gradient.shape != view.shape:
                    raise Refused(f"the gradient of {name} has shape {gradient.shape}, expected {view.shape}")
                if counts > 0:
                    numpy.multiply(gradient, numpy.float32(counts), casting="same_kind", out=view)
                else:  # the mean over nothing is no number
                    view[...] = 0

        engine.fill(write, counts)
        if loss is not None:
            engine.log(figures.loss_of(loss))
