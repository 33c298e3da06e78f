"""What the cases "tiles" of make_llama_goldens.py and make_opt_goldens.py share: models whose products have several of
the trainer's tiles in each direction. Their weights are too large to commit, so they follow a formula that golden.cpp
repeats, and the golden numbers are a part:

  gradient:NAME  fp32 [64], the gradient's sketch: in each of 64 buckets the sum of the elements that fall into it, with
                 signs; buckets and signs are random. The distance of two sketches is that of the gradients, in the mean
                 over such choices (Charikar, Chen, Farach-Colton, 2002), so every element counts.
  logits         fp32 [1, T, 48], of the first row, of the token ids in
  logit_ids      int32 [48]
"""

import numpy
import torch
from torch.nn.functional import cross_entropy

BATCH, LENGTH, VOCABULARY = 2, 200, 1100
BUCKETS, LOGIT_IDS = 64, 48


def mixed(name, count):
    """uint64 [count]: SplitMix64 (Steele, Lea, Flood, 2014), begun at the FNV-1a hash of the name."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    z = numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15) + numpy.uint64(state)
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return z ^ (z >> numpy.uint64(31))


def set_weights(model):
    """Multiples of 2^-19 in [-1/16, 1/16), those of norms around one: any format from fp32 on holds them."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = ((mixed(name, parameter.numel()) >> numpy.uint64(48)).astype(numpy.float64) - 2**15) / 2**19
            if "norm" in name and name.endswith("weight"):
                values += 1
            parameter.copy_(torch.from_numpy(values).view(parameter.shape))


def sketch(name, gradient):
    random = mixed("sketch of " + name, gradient.numel())
    signs = numpy.where(random >> numpy.uint64(63), -1.0, 1.0)
    return numpy.bincount((random % BUCKETS).astype(int), signs * gradient.double().numpy().ravel(), BUCKETS)


def golden_tensors(model):
    """Of a model in fp64, in evaluation mode: sets its weights; what its golden.safetensors shall have."""
    set_weights(model)
    ids = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
    labels = ids.clone()
    labels[0, 3] = labels[1, 0] = labels[1, 90:120] = -100
    logits = model(input_ids=ids).logits
    loss = cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), labels[:, 1:].reshape(-1), ignore_index=-100)
    loss.backward()
    columns = torch.linspace(0, VOCABULARY - 1, LOGIT_IDS).round().long()
    tensors = {f"gradient:{name}": torch.from_numpy(sketch(name, parameter.grad)).float()
               for name, parameter in model.named_parameters()}
    tensors.update(input_ids=ids.int(), labels=labels.int(), loss=loss.detach().float().view(1),
                   logit_ids=columns.int(), logits=logits.detach()[:1, :, columns].float())
    return tensors
