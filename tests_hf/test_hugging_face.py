"""Tiny random models of transformers, whole and with adapters of peft, built from a configuration
and never downloaded.
"""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

import dpfl
from dpfl import models, tasks
from dpfl.gradients.clipped import ClippedGradients
from dpfl.gradients.passes.layer_pass import LayerPass
from dpfl.gradients.passes.row_pass import RowPass
from dpfl.models import FlatModel
from dpfl.run.flat_options import group_flat_options
from dpfl.run.metrics import RoundRow
from dpfl.run.recorder import SilentProgress

VOCABULARY, PLACES, COUNT = 11, 6, 7


def gpt2() -> nn.Module:
    sizes = {
        "vocab_size": VOCABULARY,
        "n_positions": PLACES,
        "n_embd": 8,
        "n_layer": 2,
        "n_head": 2,
    }
    return GPT2LMHeadModel(
        GPT2Config(
            **sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0
        )
    )


def llama() -> nn.Module:
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 8,
        "intermediate_size": 16,
        "max_position_embeddings": 16,
    }
    return LlamaForCausalLM(
        LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)
    )


def bert() -> nn.Module:
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 8,
        "intermediate_size": 16,
        "max_position_embeddings": 16,
    }
    dropout = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    return BertForSequenceClassification(
        BertConfig(**sizes, **dropout, num_hidden_layers=1, num_attention_heads=2, num_labels=3)
    )


def add_adapters(model: nn.Module, targets: list[str], **options: object) -> nn.Module:
    """Adds adapters that change the output: those of peft begin at 0."""
    adapter_model = get_peft_model(model, LoraConfig(r=2, target_modules=targets, **options))
    with torch.no_grad():
        for parameter in adapter_model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return adapter_model


def gpt2_lora() -> nn.Module:
    return add_adapters(gpt2(), ["c_attn"], fan_in_fan_out=True)


def llama_lora() -> nn.Module:
    return add_adapters(llama(), ["q_proj", "v_proj"])


def bert_lora() -> nn.Module:
    return add_adapters(bert(), ["query", "value"], modules_to_save=["classifier"])


TOKENS, LABELS = tasks.NextToken(VOCABULARY), tasks.MultiClass(3)


@pytest.mark.parametrize(
    ("make", "task", "way"),
    [
        (gpt2, TOKENS, RowPass),
        (gpt2_lora, TOKENS, LayerPass),
        (llama_lora, TOKENS, LayerPass),
        (bert, LABELS, RowPass),
        (bert_lora, LABELS, LayerPass),
    ],
)
def test_gradients_are_those_of_single_samples(
    make: Callable[[], nn.Module], task: tasks.Task, way: type
) -> None:
    torch.manual_seed(0)
    x, y = (
        torch.randint(0, VOCABULARY, (COUNT, PLACES)),
        torch.randint(0, VOCABULARY, (COUNT, PLACES)),
    )
    if task is LABELS:
        x, y = x.float(), torch.arange(COUNT) % 3
    flat = FlatModel(models.hugging_face(make()).build((PLACES,), task.outputs, seed=0), task)
    computed = ClippedGradients(flat)
    rows = torch.stack(
        [single(flat, task, sample, label) for sample, label in zip(x, y, strict=True)]
    )
    norms = rows.norm(dim=1)
    bound = float(norms.median())
    clipped_sum = computed(x, y, lambda norms: bound / norms.clamp_min(bound))
    reference = (bound / norms.clamp_min(bound)) @ rows
    assert float((clipped_sum.total - reference).abs().max()) <= 1e-6 * float(reference.abs().max())
    assert float((clipped_sum.norms[:, 0] - norms).abs().max()) <= 1e-6 * float(norms.max())
    assert isinstance(computed.passes.current, way)


def single(flat: FlatModel, task: tasks.Task, x: Tensor, y: Tensor) -> Tensor:
    loss = task.losses(flat.module(x[None]), y[None]).sum()
    return torch.cat(
        [g.flatten() for g in torch.autograd.grad(loss, flat.parameters, materialize_grads=True)]
    )


def test_only_adapters_are_in_the_vector_and_the_frozen_rest_in_the_hash() -> None:
    torch.manual_seed(0)
    model = llama_lora()
    flat = FlatModel(models.hugging_face(model).build((PLACES,), VOCABULARY, seed=0), TOKENS)
    assert all("lora" in name for name in flat.layout.names)
    assert flat.layout.size == sum(p.numel() for p in model.parameters() if p.requires_grad) == 128
    before = flat.fingerprint
    frozen = next(p for p in flat.module.parameters() if not p.requires_grad)
    frozen.data[0] += 1e-3
    assert flat.fingerprint != before


class StopInRoundTwo(SilentProgress):
    def tell(self, row: RoundRow) -> None:
        if row.round == 2:
            raise KeyboardInterrupt


def test_adapters_train_are_resumed_and_load_without_dpfl(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = llama_lora()
    starts = torch.randint(0, VOCABULARY, (80, 1))
    text = (starts + torch.arange(PLACES + 1)) % VOCABULARY
    source = dpfl.data.tensors(
        text[:60, :-1],
        text[:60, 1:],
        text[60:, :-1],
        text[60:, 1:],
        classes=VOCABULARY,
        task="tokens",
    )
    federation = source.split(clients=2, how=dpfl.data.IID())
    system = dpfl.algorithms.fedavg_dp(tau=2, sampling_rate=0.5, rate=0.5)

    def run(out: str, **options: object) -> dpfl.Result:
        budget = dpfl.Budget(epsilon=8.0, rounds=3)
        return dpfl.train(
            models.hugging_face(model),
            federation,
            system,
            budget,
            **group_flat_options({"out": tmp_path / out, **options})[0],
        )

    result = run("run")
    with pytest.raises(KeyboardInterrupt):
        run("stopped", progress=StopInRoundTwo())
    assert run("stopped", resume=True).model_sha256 == result.model_sha256
    saved = load_file(tmp_path / "run" / "model.safetensors")
    assert sum(tensor.numel() for tensor in saved.values()) == 128

    plain = copy.deepcopy(model)
    before = plain(input_ids=text[:2, :-1]).logits
    missing = plain.load_state_dict(
        {name.removeprefix("model."): value for name, value in saved.items()}, strict=False
    )
    assert not missing.unexpected_keys
    after = plain(input_ids=text[60:, :-1]).logits
    assert not torch.equal(before, plain(input_ids=text[:2, :-1]).logits)
    assert TOKENS.metrics(after.detach().numpy(), text[60:, 1:].numpy())[
        "perplexity"
    ] == pytest.approx(result.metrics["perplexity"], rel=1e-5)
    other = copy.deepcopy(
        model
    )  # and by peft's own words, as an adapter that can be saved and shared
    set_peft_model_state_dict(other, get_peft_model_state_dict(plain))
    assert torch.equal(other(input_ids=text[60:, :-1]).logits, after)
