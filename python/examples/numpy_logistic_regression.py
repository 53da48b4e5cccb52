"""Logistic regression in NumPy alone, for models of other frameworks than PyTorch.

    python3 numpy_logistic_regression.py
"""

import numpy as np

import rubato


def main():
    draw = np.random.default_rng(1)
    x = draw.standard_normal((4000, 20)).astype(np.float32)
    y = (x @ draw.standard_normal(20) + 0.5 * draw.standard_normal(4000) > 0).astype(np.float32)
    parameters = {"w": np.zeros(20, np.float32), "b": np.zeros(1, np.float32)}
    worker = rubato.Worker(rubato.join(epochs=5), parameters, samples=len(x), batch_size=50,
                           optimizer={"name": "sgd", "learning_rate": 0.5, "momentum": 0.5})
    for work in worker:
        inputs, targets = x[work.indices], y[work.indices]
        p = 1 / (1 + np.exp(-(inputs @ parameters["w"] + parameters["b"])))
        loss = -np.mean(np.log(np.where(targets > 0, p, 1 - p)))
        error = (p - targets) / len(targets)
        worker.push({"w": inputs.T @ error, "b": error.sum(keepdims=True)}, loss=loss)
    right = ((x @ parameters["w"] + parameters["b"] > 0) == (y > 0)).mean()
    print(f"accuracy {right:.2%}")


if __name__ == "__main__":
    main()
