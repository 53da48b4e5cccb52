"""Rubato: any PyTorch model trains on parameter servers.

    job = rubato.join(epochs=10)
    model, optimizer, loader = job.prepare(model, optimizer, loader)
    for epoch in job.epochs():
        for x, y in loader:
            ...
            optimizer.step()
            job.log(loss=loss)
        job.evaluate(lambda: {"accuracy": accuracy(model)})
    job.save("model.pt")

See docs/pytorch.md. torch and NumPy are imported only when they are needed.
"""

from .errors import Ended, Error, Refused
from .job import Job, join
from .launch import Run, launch
from .sampler import Sampler
from .worker import Worker

__all__ = ["Ended", "Error", "Job", "Refused", "Run", "Sampler", "Worker", "join", "launch"]
