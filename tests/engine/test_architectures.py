"""Every architecture that mlx-lm ships runs instrumented, and nothing that is shown of it is wrong.

One process looks at them all, each in a child of its own (`tests.engine.architectures`); the tests read what it found.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.tiny_architectures import SKIPPED, architectures

ROOT = Path(__file__).parents[2]
NAMES = architectures()

pytestmark = pytest.mark.architectures


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, dict[str, Any]], str]:
    """What was found, by architecture, and what the process complained of."""
    path = tmp_path_factory.mktemp("architectures") / "findings.json"
    command = [sys.executable, "-m", "tests.engine.architectures", "--check", "--json", str(path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert path.exists(), ran.stderr
    return {finding["name"]: finding for finding in json.loads(path.read_text())}, ran.stderr


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SKIPPED])
def test_runs_instrumented_and_shows_nothing_wrong(looked: Any, name: str) -> None:
    finding = looked[0][name]
    assert finding["fault"] == ""
    assert finding["identical"], "logits are not those of the untapped model"
    assert finding["kernel_error"] <= 1e-4, "weights × values are not what the kernel gave"
    assert finding["future"] == 0, "a weight lies on a later position"
    assert finding["lens_error"] <= 1e-3, "the lens of the last layer is not the logits"
    assert finding["attribution_error"] <= 1e-4, "the parts do not add up to the logit"
    assert finding["restored"], "the taps left something behind"


@pytest.mark.parametrize("name", ["llama", "gemma2", "mixtral", "gpt2", "dbrx", "exaone"])
def test_the_operations_of_a_layer_are_told_apart(looked: Any, name: str) -> None:
    parts = {"embedding", "norm", "qkv_projection", "kv_write", "output_projection", "mlp", "head"}
    assert parts <= set(looked[0][name]["operations"])
    assert "linear" not in looked[0][name]["operations"]


def test_what_cannot_be_told_is_not_guessed(looked: Any) -> None:
    """A Mamba layer has one module that multiplies matrices: neither attention nor an MLP."""
    found = set(looked[0]["mamba"]["operations"])
    assert "linear" in found
    assert not found & {"qkv_projection", "output_projection", "attention", "mlp", "kv_write"}


def test_the_page_says_what_was_found(looked: Any) -> None:
    assert "out of step" not in looked[1], looked[1]


def test_what_is_skipped_exists_and_is_little() -> None:
    assert set(SKIPPED) <= set(NAMES)
    assert len(NAMES) - len(SKIPPED) >= 112


KINDS = {
    "plain, grouped queries": ("llama", "qwen3"),
    "sliding windows": ("gemma3", "gpt_oss", "cohere2"),
    "windows and other caches in one": ("baichuan_m1",),
    "sinks": ("gpt_oss", "mimo_v2_flash"),
    "latent attention": ("deepseek_v2", "deepseek_v3", "minicpm3"),
    "experts": ("mixtral", "qwen3_moe"),
    "keys of an earlier layer": ("gemma4",),
}


@pytest.mark.parametrize("kind", KINDS)
def test_attention_of_this_kind_is_seen_in_every_layer_and_pass(looked: Any, kind: str) -> None:
    for name in KINDS[kind]:
        finding = looked[0][name]
        assert finding["seen"] == finding["layers"], name


@pytest.mark.parametrize("name", ["gemma2", "mamba", "rwkv7", "longcat_flash"])
def test_attention_that_is_not_one_kernel_call_is_absent(looked: Any, name: str) -> None:
    finding = looked[0][name]
    assert finding["seen"] == finding["partly"] == 0
    assert not finding["batched"]


def test_logits_are_split_wherever_there_is_a_lens_and_a_norm_of_a_known_kind(looked: Any) -> None:
    without = {name for name, finding in looked[0].items() if finding["lens"] and not finding["attribution"]}
    assert without == {"nanochat", "talkie"}  # their last norm is a function, not a module


@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v3", "gpt_oss", "llama4", "olmoe"])
def test_experts_and_their_weights_are_seen(looked: Any, name: str) -> None:
    finding = looked[0][name]
    assert finding["experts"] == finding["weighed"] > 0
