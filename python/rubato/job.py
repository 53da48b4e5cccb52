"""The job, as a script uses it."""

import atexit
import io
import json
import math
import numbers
import os
import pathlib
import sys
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, TypeVar, Union,
                    overload)

from . import core, figures, length, seeds, server, threads
from .engine import Engine
from .errors import Error, Refused, end_if_imported_anew, shown, tell_by_exit_code, warn
from .sampler import Order, wanted_rank

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader

_Model = TypeVar("_Model", bound="torch.nn.Module")
_Loader = TypeVar("_Loader", bound="DataLoader[Any]")
_Scheduler = TypeVar("_Scheduler")
_Result = TypeVar("_Result", bound=Optional[Mapping[str, Any]])


def join(job: Optional[Dict[str, Any]] = None, *, epochs: Optional[float] = None, **settings: Any) -> "Job":
    """Joins a job. The training begins with Job.prepare.

    Under `rubato train` (RUBATO_JOB in the environment), joins the job that the command has started, and ignores what
    the arguments say. Otherwise starts a job of this process alone, with a server of its own.

    Args:
        job: a dictionary with the keys of a job file; default: what the other arguments say.
        epochs: for how many passes over the data to train: train.until.
        settings: further keys of the job, such as seed=1, consistency="async", train={"micro_batches": 2}.

    Raises Refused if an argument is unknown, cannot be a job's, or if nothing says when the training ends.
    """
    end_if_imported_anew("rubato.join")
    return Job(job, epochs, settings)


class Job(server.Commands):
    """Made by join. One thread uses it."""

    def __init__(self, job: Optional[Dict[str, Any]], epochs: Optional[float], settings: Dict[str, Any]):
        self._file = os.environ.get("RUBATO_JOB")
        if self._file is None:
            _check_is_alone(os.environ)
            server.check_environment(os.environ)
            self._given = _given(job, epochs, settings)
            _check_end(self._given)
        else:
            if _trained or any(job._has_trained for job in _open):
                raise Refused("rubato.join was called for a second training of one script, expected one in each job: "
                              "another job for each, such as a fold, one after the other; its script may load what the "
                              "job.save of the one before has written")
            tell_by_exit_code()
            _print_by_lines()
            _check_names({**(job if isinstance(job, dict) else {}), **settings})
            self._given = {}
        self._servers: Optional[server.Servers] = None
        self._worker: Optional[core.Worker] = None
        self._engine: Optional[Engine] = None
        self._layout: Any = None
        self._model: Any = None
        self._others: Any = None  # optimizers of the script
        self._loops = 0  # of the loader
        self._epoch: Optional[int] = None  # that epochs() has given
        self._begun = 0  # micro-batches before it; without epochs(), before the loop
        self._has_passed = False  # the epoch's loop over the loader has come to its end
        self._is_through = False  # epochs() has come to its end
        self._has_told = False  # that the loader has nothing more
        self._evaluating = False
        self._has_warned = False  # of a test's other figures

    # Before the training.

    @overload
    def prepare(self, model: _Model, optimizer: "torch.optim.Optimizer", loader: _Loader, scheduler: None = None, *,
                loss: str = "mean", clip_grad_norm: Optional[float] = None, scheduler_per: str = "step",
                order: Order = None, overlap: bool = False) -> Tuple[_Model, Any, _Loader]: ...

    @overload
    def prepare(self, model: _Model, optimizer: "torch.optim.Optimizer", loader: _Loader, scheduler: _Scheduler, *,
                loss: str = "mean", clip_grad_norm: Optional[float] = None, scheduler_per: str = "step",
                order: Order = None, overlap: bool = False) -> Tuple[_Model, Any, _Loader, _Scheduler]: ...

    def prepare(self, model: Any, optimizer: Any, loader: Any, scheduler: Any = None, *, loss: str = "mean",
                clip_grad_norm: Optional[float] = None, scheduler_per: str = "step", order: Order = None,
                overlap: bool = False) -> Any:
        """Registers model, optimizer and samples with the job. All workers start with the first worker's initial
        values.

        Args:
            model: a torch.nn.Module. Its parameters become float32 at the servers.
            optimizer: torch's SGD, Adam, AdamW, Adagrad or RMSprop over the model's parameters.
            loader: a DataLoader over a data set with indices. Its batch_size is the job's, or a micro-batch of it.
            scheduler: of torch.optim.lr_scheduler; it is run to the job's end, and the servers get its rates.
            loss: whether the loss is a "mean" over the samples of its batch, or their "sum": then a step's gradient is
                the sum over all its samples.
            clip_grad_norm: to which the servers clip the gradient of an update, over all parameters.
            scheduler_per: "step" or "epoch", whichever the script calls scheduler.step() for.
            order: order of the samples in an epoch: "sequential", or a function from an epoch to its indices. Default:
                shuffled by the job's seed, or sequential if the loader has shuffle=False.
            overlap: send gradients while backward still runs, those of the last parameters first. Requires one backward
                for each micro-batch, with no later change of `.grad`, no GradScaler and no weights.

        Returns:
            model, optimizer, loader and, if one was given, scheduler, to be used in place of those given.
        """
        from . import prepare

        return prepare.prepare(self, model, optimizer, loader, scheduler, loss, clip_grad_norm, scheduler_per, order,
                               overlap)

    def _start(self, batch: int) -> core.Worker:
        """Starts the worker, whose .job is then the complete job. If the script has its own job, starts its servers
        first, with batches of `batch` samples."""
        if self._file is not None:
            return self._start_worker(self._file)
        self._servers = server.Servers(_own_job(self._given, batch))
        self.run = self._servers.path
        settings = [f"{key}={value}" for key, value in self._servers.settings().items()] + ["log.level=warning"]
        self._worker = core.Worker(str(self.run / "job.yaml"), settings, key=self._servers.secret)
        _open.append(self)
        return self._worker

    def _start_worker(self, file: str) -> core.Worker:
        """Of a job whose servers others start; once."""
        if self._worker is None:
            rank = wanted_rank(os.environ)
            self.run = pathlib.Path(file).resolve().parent
            self._worker = core.Worker(file, rank=rank)
            threads.use(int(self._worker.job.get("device", {}).get("threads", 1)))
            _open.append(self)
        return self._worker

    @property
    def seed(self) -> int:
        """The job's seed, known before prepare: torch.manual_seed(job.seed) draws other initial values for another."""
        return int(self._keys().get("seed", 0))

    def _keys(self) -> Dict[str, Any]:
        """Those of the job, as far as they are known."""
        if self._file is not None:
            self._start_worker(self._file)
        return self._given if self._worker is None else self._worker.job

    # How long it is.

    @property
    def total_epochs(self) -> Union[int, float, None]:
        """Of the whole job, if its train.until says epochs; if it says steps or samples, from prepare on, and None
        before. None where it says a time. The job may end earlier, by train.stop_when."""
        return length.total_epochs(*self._length())

    @property
    def total_steps(self) -> Optional[int]:
        """The same in steps of train.batch_size samples: if train.until says steps; if it says epochs or samples, from
        prepare on, and None before."""
        return length.total_steps(*self._length())

    def _length(self) -> Tuple[Dict[str, Any], Optional[int], int]:
        """train.until, the samples of an epoch where they are known, and those of a step."""
        train = server.section(self._keys(), "train")
        samples = None if self._engine is None else self._engine.samples
        return server.section(train, "until"), samples, int(train.get("batch_size", 1))

    # While it trains.

    def epochs(self) -> Iterator[int]:
        """Yields the numbers of the remaining epochs. Ends with the job.

        A script that comes when nothing is left to train, for example one that was lost in the final test, gets the
        last epoch once, without batches, so that a job.evaluate in the loop tests the final parameters. At the loop's
        end the job is over: a job.evaluate behind it runs no test.

        Raises Refused if the script takes no batch in two epochs in a row: such a loop would never end.
        """
        engine = self._prepared()
        idle = 0  # epochs in a row without a batch
        try:
            while True:
                work = engine.advance()
                if work is not None:
                    self._epoch = work.epoch
                elif self._epoch is None and engine.is_final:  # nothing was left to train
                    self._epoch = engine.work.epoch
                else:
                    engine.settle()
                    self._is_through = True
                    return
                if self._servers is not None:
                    self._servers.warnings.tell()
                self._begun, self._has_passed = engine.begun, False
                yield self._epoch
                idle = 0 if engine.begun > self._begun else idle + 1
                if idle == 2:
                    raise Refused(f"no batch was taken in epoch {self._epoch}, twice in a row, expected to iterate "
                                  "over the loader that job.prepare returned, anew in each epoch")
        finally:
            self._epoch, self._has_passed = None, False

    def _limit(self) -> int:
        """The epoch at whose end the new loop over the loader ends."""
        if self._evaluating:
            raise Refused("the training's loader was used within job.evaluate, expected one of its own")
        if self._is_through or self._has_passed:
            where = "behind job.epochs()" if self._is_through else f"once more in epoch {self._epoch}"
            raise Refused(f"the loader that job.prepare returned was looped over {where}, expected one loop in an "
                          "epoch, which trains: to measure, or to update averages of batch norm, a DataLoader of your "
                          "own over the same data: DataLoader(loader.dataset, batch_size=...)")
        if self._epoch is None:
            self._begun = self._prepared().begun
        self._loops += 1
        return self._loops - 1 if self._epoch is None else self._epoch

    def _pass(self) -> None:
        """Hears that a loop over the loader has come to its end by itself."""
        engine = self._prepared()
        had_batches = engine.begun > self._begun
        if self._epoch is not None:
            self._has_passed = had_batches
        elif not had_batches and self._loops - 1 > engine.work.epoch and not self._has_told:
            self._has_told = True  # and no more, since a range() that is longer than the job may be meant
            warn(f"the job has ended in epoch {engine.work.epoch}, so the loader that job.prepare returned has no more "
                 "batches: a loop by steps ends with job.epochs() (docs/pytorch.md, By steps); one that does not train "
                 "has a DataLoader of your own")

    def log(self, loss: Any = None) -> None:
        """Logs the loss of the current micro-batch. Call it before or after optimizer.step().

        Args:
            loss: of the micro-batch, as `loss` of prepare says; a number or a tensor of one.
        """
        engine = self._prepared()
        if loss is not None:
            loss = figures.loss_of(loss)
        engine.log(loss)

    def evaluate(self, test: Callable[[], _Result]) -> Optional[_Result]:
        """Runs `test` on the current parameters, on one worker of the job, while the others continue.

        All workers call it, for example at the end of each epoch. During the test the model is in eval mode and no
        gradients are recorded; random numbers drawn in it do not affect the training. A test that changes the
        parameters, for example to averages, must restore them. `loss` and `accuracy` in its result (means over the
        samples, the accuracy a fraction) and other real numbers, by their names, are reported to the job where a test
        is due (evaluation.every); what it returns elsewhere is only for the script. Returns the result, or None in the
        workers where `test` was not run: check for that before you use it.

        Raises Refused if the script has changed parameters since they came: the job does not have these.
        """
        engine = self._prepared_with_model("job.evaluate", "test")
        if not callable(test):  # here, for it is called in one worker only
            raise Refused(f"job.evaluate was given a {type(test).__name__}, expected a function that tests the model: "
                          "job.evaluate(lambda: test(model))")
        if self._evaluating:
            raise Refused("job.evaluate was called within job.evaluate")
        work = self._fetch(engine)
        if not (engine.is_final or work is not None and (work.tests or work.rank == 0)):
            return None
        self._evaluating = True
        try:
            result = self._run_test(test)
        finally:
            self._evaluating = False
        self._layout.restore()  # the test may have changed them for a while
        engine.reload()
        told = figures.of(result)
        warning = figures.left_out(result, told)
        if warning and not self._has_warned:
            self._has_warned = True
            warn(warning)
        engine.tested(told)
        return result

    def _run_test(self, test: Callable[[], _Result]) -> _Result:
        import torch

        modes = [(module, module.training) for module in self._model.modules()]
        self._model.eval()
        try:
            with seeds.kept(), torch.no_grad():
                return test()
        finally:
            for module, training in modes:
                module.training = training

    def save(self, path: Union[str, "os.PathLike[str]"]) -> bool:
        """Saves the model's state_dict with torch.save, on one worker: rank 0, and at the end the worker that tests the
        final parameters. Returns whether it was this worker. Raises Refused as evaluate does; behind the job's end, or
        the last of loops without epochs(), the model is the script's."""
        import torch

        engine = self._prepared_with_model("job.save", "save")
        self._fetch(engine, saves=True)
        if not (engine.tests_final or (self.rank == 0 and not engine.is_over)):
            return False
        # Not the flat vector behind all of them, but each; by the names of what torch.compile has wrapped.
        values = getattr(self._model, "_orig_mod", self._model).state_dict()  # with versions of its modules, as torch's
        for name, value in values.items():
            values[name] = value.detach().clone() if isinstance(value, torch.Tensor) else value
        temporary = f"{os.fspath(path)}.{os.getpid()}"
        torch.save(values, temporary)
        os.replace(temporary, path)
        engine.settle()
        return True

    def _fetch(self, engine: Engine, saves: bool = False) -> Any:
        """The micro-batch that is to come, if one is; the model has what the job has for it. Refused if the script has
        changed parameters, unless it `saves` them behind the last of loops without epochs()."""
        work = engine.advance()
        if not (engine.is_over or saves and engine.is_final and self._epoch is None):
            self._layout.check_untouched()
            self._layout.load(False)  # averages, which a batch of the script's own may have changed
        return work

    def leave(self) -> None:
        """Leaves when the work that it has begun is done. The job continues without this worker."""
        self._prepared().leave()

    def stop(self, reason: Optional[str] = None) -> None:
        """Ends the training of all workers in order, with a checkpoint, as `rubato stop` does. Does nothing where it is
        over. `reason`: a sentence, of which 200 bytes are kept, for the summary, the status and the log.

        Loops over the job's epochs end by themselves, after the step that is being computed, so a script goes on with
        its loop. Raises Error if the servers cannot be asked.
        """
        engine = self._prepared()
        if not (engine.is_final or engine.is_over):
            self._stop(reason)

    @property
    def rank(self) -> int:
        """The rank of this worker. Before the first micro-batch it waits until the job has begun, as `workers`, `mode`,
        `step` and `epoch` do. It may change when workers join or leave."""
        return int(self._prepared().known.rank)

    @property
    def workers(self) -> int:
        return int(self._prepared().known.workers)

    @property
    def mode(self) -> str:
        """sync, async or bounded."""
        return str(self._prepared().known.mode)

    @property
    def step(self) -> int:
        """The number of steps (of train.batch_size samples) before the current micro-batch; behind the last epoch those
        of the job."""
        return self._prepared().step

    @property
    def epoch(self) -> int:
        """The epoch of the current micro-batch; behind the last epoch that one."""
        return int(self._prepared().known.epoch)

    def _prepared(self) -> Engine:
        if self._engine is None:
            raise Refused("the job has not begun, expected job.prepare first")
        return self._engine

    def _prepared_with_model(self, call: str, verb: str) -> Engine:
        engine = self._prepared()
        if self._model is None:
            raise Refused(f"{call} was called for a rubato.Worker, expected a model that job.prepare was given: {verb} "
                          "the arrays behind the loop, where job.rank == 0")
        if engine.is_begun:
            raise Refused(f"{call} was called between a batch and its optimizer.step(), expected before the next batch "
                          "or behind the loop")
        return engine

    def _close(self) -> None:
        """At the script's end."""
        engine = self._engine
        try:
            if engine is not None:
                has_failed = getattr(sys, "last_type", None) is not None
                if self._file is None or not has_failed:  # else another worker tests the final parameters
                    engine.settle()
                if not engine.is_over and engine.work.samples_before > 0 and not has_failed:
                    print(f"rubato: the script ends in epoch {engine.work.epoch} of the job, before the job does "
                          "(job.stop() and train.stop_when end a job early)", file=sys.stderr)
        except (Error, SystemExit):
            pass  # it was raised before
        finally:
            self._release()

    @property
    def _has_trained(self) -> bool:
        """In a job that others have started."""
        return self._file is not None and self._engine is not None and self._engine.begun > 0

    def _release(self) -> None:
        """At the job's end, or the script's: its processes end, and a handler of signals."""
        if self not in _open:
            return
        _open.remove(self)
        if self._has_trained:
            _trained.append(self._file)
        engine, worker, servers = self._engine, self._worker, self._servers
        if self._layout is not None:
            self._layout.give_back()
        if self._others is not None:
            self._others.close()
        if engine is not None:
            engine.close()
        elif worker is not None:
            worker.close()
        if servers is not None:
            is_done = engine is not None and engine.is_done
            servers.end(at_once=not is_done)
            if is_done:  # else of its own end
                servers.warnings.tell()
            if not is_done and any(self.run.glob("checkpoints/step-*")):
                print(f"rubato: the job has not come to its end, and has checkpoints in {self.run}; go on with: this "
                      "script, with checkpoint={'resume': 'auto'} in rubato.join", file=sys.stderr)


_open: List[Job] = []  # that have begun, and have not ended, in this process
_trained: List[Optional[str]] = []  # files of those that others have started, in which it has trained


@atexit.register
def close_all() -> None:
    """Called at the end of the script, or of its part in the job."""
    while _open:
        _open[-1]._close()


os.register_at_fork(after_in_child=_open.clear)


def _print_by_lines() -> None:
    """What the script prints goes to a log, which `rubato train` follows: line by line, as on a terminal."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # and not what a notebook or a test has put in its place
        sys.stdout.reconfigure(line_buffering=True)


# Of a job file. The sections are checked by whoever reads the job.
_KEYS = ("version", "name", "seed", "cluster", "device", "data", "model", "loss", "optimizer", "consistency", "wire",
         "train", "metrics", "log", "evaluation", "checkpoint", "security", "script")

# Keys of one section alone, which are likely to be given without it.
_SECTIONS = {
    "train": ("batch_size", "micro_batches", "until", "stop_when", "on_non_finite"),
    "cluster": ("servers",),
    "checkpoint": ("keep_last", "keep_best", "resume"),
}


def _given(job: Optional[Dict[str, Any]], epochs: Optional[float], settings: Dict[str, Any]) -> Dict[str, Any]:
    """The arguments of join as one dictionary with the keys of a job file. Refused if they cannot be."""
    if job is not None and not isinstance(job, dict):
        raise Refused(f"found job={shown(job)}, expected a dictionary with the keys of a job file")
    given = dict(job or {})
    for name, value in settings.items():
        if isinstance(value, dict) and isinstance(given.get(name), dict):
            given[name] = {**given[name], **value}
        else:
            given[name] = value
    _check_names(given)
    for name, value in given.items():
        try:
            given[name] = _plain(value)
            json.dumps(given[name])
        except (TypeError, ValueError, OverflowError):
            raise Refused(f"rubato.join was given {name}={shown(value)}, expected what a job file can say: numbers, "
                          "text, lists and dictionaries of these") from None
    if epochs is not None:
        if not isinstance(epochs, numbers.Real) or isinstance(epochs, bool) or not 0 < epochs < math.inf:
            raise Refused(f"found epochs={shown(epochs)}, expected a number above 0")
        count = int(epochs) if isinstance(epochs, numbers.Integral) else float(epochs)
        given["train"] = {**server.section(given, "train"), "until": {"epochs": count}}
    return given


def _check_names(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if name not in _KEYS:
            section = next((section for section, keys in _SECTIONS.items() if name in keys), None)
            instead = f"epochs or a key of a job file: {', '.join(_KEYS)}"
            if section is not None:
                instead = f"{section}={{{name!r}: {shown(value)}}}"
            raise Refused(f"rubato.join was given {name}={shown(value)}, expected {instead}")


def _plain(value: Any) -> Any:
    """Python's own number, text, list or dictionary for one of NumPy or pathlib, say."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    return value


def _check_is_alone(environment: Mapping[str, str]) -> None:
    """Refused if a launcher such as torchrun has started the script with others, each of which would train alone."""
    world = environment.get("WORLD_SIZE", "")
    if "RANK" in environment and world.isdigit() and int(world) > 1:
        script = os.path.basename(sys.argv[0]) if sys.argv else ""
        raise Refused(f"found WORLD_SIZE={world} and no RUBATO_JOB in the environment, as torchrun sets it, expected "
                      "`rubato train job.yaml`, which starts the servers and the script's copies: in the job, script: "
                      f"[python3, {script or 'train.py'}] and cluster: {{workers: {world}}}")


def _check_end(given: Dict[str, Any]) -> None:
    """Of the job of one script alone."""
    if "until" not in server.section(given, "train"):
        found = ", ".join(f"{name}={shown(value)}" for name, value in given.items()) or "nothing"
        raise Refused(f"rubato.join was given {found}, expected the end of the training: rubato.join(epochs=10)")


def _own_job(given: Dict[str, Any], batch: int) -> Dict[str, Any]:
    """Of one script alone, as in a job file."""
    job = server.own_job(given, server.script_name(), workers=1)
    job["train"] = {"batch_size": batch, **server.section(job, "train")}
    return job
