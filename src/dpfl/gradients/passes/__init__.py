"""The passes: ways to compute the gradient of every unit of a chunk, quickest first.

Every pass returns the losses of the rows and one `UnitGradients` for each parameter. They differ in
the models that they take:

- `ChainPass` (`chain.py`) runs modules that follow one another forward and backward by hand. For
  small models, autograd's graph and hooks cost as much as the arithmetic.
- `LayerPass` (`layer_pass.py`) takes any graph of layers that have a rule. It makes one forward and
  one backward pass by autograd, and records what each layer saw (`recording.py`).
- `RowPass` (`row_pass.py`) takes every other model. It writes each sample's gradient out by
  `torch.func`, or by one backward pass for each sample.

The first two are the trick of Goodfellow (2015), "Efficient per-example gradient computations": a
layer's input and the gradient at its output, which one backward pass gives for all samples, are
enough for every sample's gradient. The rules of the layers are in `dpfl.gradients.layers`.
"""
