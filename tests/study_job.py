"""A small job for the tests of `rubato bench convergence`: 40 steps, which learn."""

JOB = """version: 1
name: study
cluster: {workers: 2}
data: {format: glyphs, train_size: 600, test_size: 100}
model: {layers: [flatten, {linear: {out_features: 10}}]}
loss: cross_entropy
optimizer: {name: sgd, learning_rate: 0.1}
train: {batch_size: 20, micro_batches: 2, until: {steps: 40}}
"""
