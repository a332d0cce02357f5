"""`load`: everything that `--model` takes, and everything that it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.device import mx

import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from engine.errors import ModelError, ModelNotFound, ModelUnsupported
from engine.models import LoadedModel, list_models, load
from engine.models.tiny import load_tiny
from tests.engine.test_models_gguf import IDS, make_twin

ORACLE = Path(__file__).parents[1] / "oracle"


def refusal(spec: str | Path, error: type[ModelError]) -> str:
    with pytest.raises(error) as caught:
        load(str(spec))
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- the built-in model -----------------------------------------------------------------------------------------------


@pytest.mark.model
def test_next_token_distributions_are_those_of_pytorch(smollm2: LoadedModel) -> None:
    for case in json.loads((ORACLE / "cases.json").read_text())["cases"]:
        reference = np.load(ORACLE / f"{case['name']}.npz")
        ids = mx.array([case["prompt_ids"] + case["greedy_ids"]])
        logits = smollm2.model(ids, cache=make_prompt_cache(smollm2.model))[0]
        logprobs = np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
        for index, position in enumerate(reference["positions"]):
            found = logprobs[position, reference["top_ids"][index]]
            np.testing.assert_allclose(found, reference["top_logprobs"][index], atol=5e-4)


@pytest.mark.model
def test_the_built_in_model_says_what_it_is(smollm2: LoadedModel) -> None:
    info = smollm2.info.as_dict()
    assert info.pop("path").endswith(".gguf")
    assert info == {
        "name": "SmolLM2-135M-Instruct",
        "architecture": "llama",
        "layers": 30,
        "heads": 9,
        "kv_heads": 3,
        "head_dim": 64,
        "hidden": 576,
        "vocab": 49152,
        "dtype": "float32",
        "quantisation": "Q4_1",
        "context": 8192,
        "parameters": 134_515_008,
        "weights_bytes": 538_060_032,
        "eos_ids": [0, 2],
    }
    json.dumps(info)


# --- tiny -------------------------------------------------------------------------------------------------------------


def test_tiny_is_the_same_every_time(tiny: LoadedModel) -> None:
    prompt = mx.array([[10, 200, 65]])
    np.testing.assert_array_equal(np.array(load_tiny().model(prompt)), np.array(tiny.model(prompt)))
    # NumPy promises the same numbers everywhere; lm_head comes first in the order of names.
    first = np.random.Generator(np.random.PCG64(20_260_101)).standard_normal((264, 64), dtype=np.float32)
    np.testing.assert_allclose(np.array(tiny.model.lm_head.weight[ord("A")]), first[ord("A")] * 2 / 8, rtol=1e-6)
    assert (tiny.info.layers, tiny.info.heads, tiny.info.kv_heads, tiny.info.vocab) == (4, 4, 2, 264)


def test_tiny_is_a_model_worth_looking_at(tiny: LoadedModel) -> None:
    """Its next-token distributions differ from place to place, and are neither flat nor certain."""
    ids = tiny.tokenizer.encode("The quick brown fox").ids
    logits = tiny.model(mx.array([ids]))[0]
    probabilities = np.array(mx.softmax(logits, axis=-1))
    entropy = -(probabilities * np.log2(probabilities)).sum(-1)
    assert entropy.min() > 0.5
    assert entropy.max() < 7.5
    assert len({int(row.argmax()) for row in probabilities}) > 5


# --- folders ----------------------------------------------------------------------------------------------------------


def test_a_folder_says_what_it_is(tmp_path: Path) -> None:
    twin = make_twin(tmp_path / "my-model", "qwen3")
    (twin.folder / "generation_config.json").write_text('{"eos_token_id": [7, 8]}')
    config = json.loads((twin.folder / "config.json").read_text())
    (twin.folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 9}))
    info = load(str(twin.folder)).info
    assert (info.name, info.architecture, info.layers, info.heads, info.kv_heads) == ("my-model", "qwen3", 2, 4, 2)
    assert info.eos_ids == (7, 8, 9)
    assert info.path == str(twin.folder)


def test_a_quantised_folder_is_dequantised_exactly(tmp_path: Path) -> None:
    folder = make_twin(tmp_path / "m", "llama").folder
    plain = load(str(folder)).model
    nn.quantize(plain, group_size=32, bits=4)
    flat: Any = tree_flatten(plain.parameters())
    halves = {k: v.astype(mx.bfloat16) if v.dtype == mx.float32 else v for k, v in flat}
    mx.save_safetensors(str(folder / "model.safetensors"), halves)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization": {"group_size": 32, "bits": 4}}))
    loaded = load(str(folder))
    assert loaded.info.quantisation == "4-bit affine, groups of 32"
    assert loaded.info.dtype == "float32"
    name = "model.layers.0.mlp.up_proj"
    expected = mx.dequantize(
        halves[f"{name}.weight"],
        halves[f"{name}.scales"].astype(mx.float32),
        halves[f"{name}.biases"].astype(mx.float32),
        group_size=32,
        bits=4,
    )
    assert mx.array_equal(loaded.model.layers[0].mlp.up_proj.weight, expected)
    assert loaded.model(IDS).dtype == mx.float32


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    assert "no config.json" in refusal(tmp_path, ModelNotFound)
    (tmp_path / "some.gguf").write_bytes(b"GGUF")
    assert "some.gguf" in refusal(tmp_path, ModelNotFound)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert "model*.safetensors" in refusal(tmp_path, ModelNotFound)


def test_architectures_that_mlx_lm_lacks_are_named(tmp_path: Path) -> None:
    folder = make_twin(tmp_path / "m", "llama").folder
    (folder / "config.json").write_text('{"model_type": "hal9000"}')
    assert "'hal9000'" in refusal(folder, ModelUnsupported)


Break = Callable[[Path], object]


def says(**values: Any) -> Break:
    """Writes values into config.json; None takes one out."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        config = json.loads(path.read_text()) | values
        path.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))

    return change


def holds(name: str, content: bytes | str | None) -> Break:
    """Makes a file hold something else, or takes it away."""

    def change(folder: Path) -> None:
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return change


def weights(change: Callable[[dict[str, mx.array]], dict[str, mx.array]]) -> Break:
    def write(folder: Path) -> None:
        path = folder / "model.safetensors"
        arrays: Any = mx.load(str(path))
        mx.eval(list(arrays.values()))
        path.unlink()
        mx.save_safetensors(str(path), change(dict(arrays)))

    return write


def cut(size: int) -> Break:
    return lambda folder: os.truncate(folder / "model.safetensors", size)


def converted(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def one_shard_of_two(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    places = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
HEAD = "model.norm.weight"


@pytest.mark.parametrize(
    ("broken", "error", "message"),
    [
        (holds("config.json", None), ModelNotFound, "is not a model folder: it has no config.json"),
        (holds("config.json", ""), ModelError, "config.json is not JSON, which was expected"),
        (holds("config.json", b"\xff\xfe"), ModelError, "config.json is not JSON, which was expected"),
        (holds("config.json", "[" * 100_000), ModelError, "config.json is not JSON, which was expected"),
        (holds("config.json", "[1]"), ModelError, "holds no JSON object, which was expected, but [1]"),
        (says(model_type=None), ModelError, "names no model_type; expected an architecture that mlx-lm has"),
        (says(model_type=5), ModelError, "names the model_type 5; expected an architecture"),
        (says(model_type="cache"), ModelUnsupported, "is of architecture 'cache', which mlx-lm does not have"),
        (says(model_type="../x"), ModelUnsupported, "is of architecture '../x', which mlx-lm does not have"),
        (says(hidden_size="64"), ModelError, "says hidden_size '64'; expected a number from 1 to 2,147,483,647"),
        (says(hidden_size=0), ModelError, "says hidden_size 0; expected a number from 1"),
        (says(num_hidden_layers=10**6), ModelError, "says num_hidden_layers 1000000; expected a number from 1"),
        (says(vocab_size=-1), ModelError, "says vocab_size -1; expected"),
        (says(text_config={"hidden_size": True}), ModelError, "says hidden_size True; expected"),
        (says(num_attention_heads=0), ModelError, "mlx-lm's llama expects something else than config.json says (Zero"),
        (says(num_hidden_layers=None), ModelError, "expects something else than config.json says (TypeError"),
        (says(rope_scaling=5), ModelError, "expects something else than config.json says (AttributeError"),
        (says(quantization_config={"quant_method": "awq", "bits": 4}), ModelError, "than config.json says (Unbound"),
        (says(hidden_size=128), ModelError, "are not those of the llama model that its config.json"),
        (says(num_hidden_layers=5), ModelError, "config.json describes: Missing 27 parameters: model.layers.2"),
        (says(num_hidden_layers=1), ModelError, "config.json describes: Received 9 parameters not in model: model."),
        (says(eos_token_id="x"), ModelError, "tokenizer_config.json and config.json what belongs to it;"),
        (holds("model.safetensors", None), ModelNotFound, "has no weights: expected model*.safetensors beside config"),
        (converted, ModelNotFound, "(there is pytorch_model.bin; `mlx_lm.convert` makes an MLX model of PyTorch's)"),
        (one_shard_of_two, ModelNotFound, "lacks 1 of 2 files of weights that model.safetensors.index"),
        (holds("model.safetensors", ""), ModelError, "is no safetensors file, but 0 bytes of something else; fetch"),
        (holds("model.safetensors", "text"), ModelError, "is no safetensors file, but 4 bytes of something else"),
        (holds("model.safetensors", b"\xff" * 99), ModelError, "is no safetensors file, but 99 bytes of something"),
        (holds("model.safetensors", b"\4\0\0\0\0\0\0\0{[]}"), ModelError, "its header cannot be read; fetch"),
        (holds("model.safetensors", LFS), ModelError, "is a pointer of git-lfs, not the weights themselves; `git lfs"),
        (cut(100), ModelError, "model.safetensors is cut off within its header of 2,105 bytes: it has 100; fetch"),
        (cut(200_000), ModelError, "is cut off: its header tells of 384,833 bytes, and it has 200,000; fetch"),
        (cut(384_832), ModelError, "is cut off: its header tells of 384,833 bytes, and it has 384,832; fetch"),
        (weights(lambda a: a | {"extra": a[HEAD]}), ModelError, "Received 1 parameters not in model: extra;"),
        (weights(lambda a: {n: a[n] for n in a if n != HEAD}), ModelError, "Missing 1 parameters: model.norm"),
        (weights(lambda a: a | {HEAD: a[HEAD][:3]}), ModelError, "Expected shape (64,) but received shape (3,)"),
        (weights(lambda a: {n: a[n].astype(mx.int32) for n in a}), ModelError, "is loaded but cannot run: [rms_norm]"),
        (holds("tokenizer.json", None), ModelNotFound, "has no tokenizer: expected tokenizer.json beside config.json"),
        (holds("tokenizer.json", "{"), ModelError, "tokenizer.json is not JSON, which was expected"),
        (holds("tokenizer.json", "{}"), ModelError, "the tokenizer in"),
        (holds("tokenizer_config.json", "[]"), ModelError, "tokenizer_config.json holds no JSON object"),
        (holds("generation_config.json", "{"), ModelError, "generation_config.json is not JSON, which was expected"),
    ],
)  # fmt: skip
def test_a_broken_folder_is_told_in_one_line_with_what_is_wrong(
    tmp_path: Path, broken: Break, error: type[ModelError], message: str
) -> None:
    folder = make_twin(tmp_path / "m", "llama").folder
    broken(folder)
    said = refusal(folder, error)
    assert message in said
    assert len(said) < 500 + len(str(folder))


# --- names ------------------------------------------------------------------------------------------------------------


def test_unknown_names_say_what_is_accepted() -> None:
    message = refusal("gpt-17", ModelNotFound)
    assert all(word in message for word in ("gpt-17", "smollm2", "tiny", ".gguf", "owner/name"))


@pytest.mark.parametrize("spec", ["a" * 300, "a/" * 3000 + "b", "\0", "~nobody-at-all/x", "x" * 5000 + ".gguf"])
def test_names_that_no_file_may_have_are_no_models(spec: str) -> None:
    assert len(refusal(spec, ModelError)) < 600


@pytest.mark.parametrize("spec", ["./nothing.gguf", "/nowhere/at/all", "../x", "a/b/c", "-x/y z"])
def test_paths_that_do_not_exist_are_named(spec: str) -> None:
    assert spec.removeprefix("./") in refusal(spec, ModelNotFound)


def test_no_name_at_all_is_refused() -> None:
    assert "smollm2" in refusal(" ", ModelNotFound)


def test_a_hub_id_without_a_network_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "someone/some-model" in refusal("someone/some-model", ModelNotFound)


def test_a_model_in_the_hubs_cache_is_listed_and_loaded_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "models--someone--some-model" / "snapshots" / "abc123"
    snapshot.parent.mkdir(parents=True)
    make_twin(snapshot, "llama")
    (tmp_path / "models--someone--some-model" / "refs").mkdir()
    (tmp_path / "models--someone--some-model" / "refs" / "main").write_text("abc123")
    (tmp_path / "models--someone--half" / "snapshots" / "def").mkdir(parents=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    listed = {model.spec: model for model in list_models()}
    assert {"smollm2", "tiny", "someone/some-model"} == set(listed)
    assert listed["someone/some-model"].what.startswith("llama")
    assert listed["someone/some-model"].size_bytes == (snapshot / "model.safetensors").stat().st_size
    json.dumps([model.as_dict() for model in listed.values()])
    loaded = load("someone/some-model")
    assert loaded.info.name == "someone/some-model"


# --- imports ----------------------------------------------------------------------------------------------------------


def test_listing_and_finding_models_imports_no_mlx() -> None:
    code = "import sys; from engine.models import list_models; list_models(); print('mlx.core' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == "False"
