"""The command line: wrong calls, errors in one line, and exit statuses."""

import json
import socket
from pathlib import Path

import pytest

from backend import cli
from tests.backend.process import run


def in_process(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run a command here: for calls that end before anything is loaded."""
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    printed = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, printed.out, printed.err


@pytest.mark.parametrize("command", ["serve", "replay", "generate", "doctor", "models", "trace"])
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = in_process(command, "--help", capsys=capsys)
    assert status == 0
    assert f"tokenwalk {command}" in out
    assert "Example: tokenwalk" in out or command == "trace"  # its own commands have theirs


def test_version_and_bare_call(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = in_process("--version", capsys=capsys)
    assert (status, out.split()[0]) == (0, "tokenwalk")
    status, out, _ = in_process(capsys=capsys)
    assert status == 0
    assert "serve" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dance"], "dance"),
        (["serve", "--prot", "1"], "--prot"),
        (["serve", "--port", "many"], "--port"),
        (["serve", "--port", "99999"], "65535"),
        (["serve", "--capture", "everything"], "everything"),
        (["generate"], "PROMPT"),
        (["generate", "x", "--temperature", "-1", "--model", "tiny"], "temperature"),
        (["generate", "x", "--raw", "--system", "y"], "--system"),
        (["models", "fetch", "gpt-9"], "gpt-9"),
        (["replay"], "FILE"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = in_process(*arguments, capsys=capsys)
    assert status == 2
    assert says in err
    assert len(err.splitlines()) <= 2
    assert out == ""


def test_a_file_that_is_no_trace_is_one_line_and_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diary = tmp_path / "diary.txt"
    diary.write_text("Dear diary\n" * 50)
    for file, says in ((diary, "not a trace"), (tmp_path / "nothing.mcap", "nothing.mcap")):
        status, _, err = in_process("replay", str(file), "--port", "0", capsys=capsys)
        assert status == 1
        assert says in err
        assert len(err.splitlines()) == 1


def test_a_port_in_use_is_one_line_that_says_what_to_do(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, _, err = in_process(
            "serve", "--model", "tiny", "--port", str(port), "--traces", str(tmp_path), capsys=capsys
        )
    assert status == 1
    assert f"port {port}" in err
    assert "--port" in err


def test_a_host_that_is_not_here_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for host in ("203.0.113.7", "no.such.host.invalid"):
        status, _, err = in_process("serve", "--host", host, "--traces", str(tmp_path), capsys=capsys)
        assert status == 1
        assert host in err
        assert len(err.splitlines()) == 1


def test_a_seed_out_of_range_is_one_line_and_leaves_no_trace(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = ("--model", "tiny", "--port", "0", "--traces", str(tmp_path), "--seed", str(2**64))
    status, _, err = in_process("serve", *options, capsys=capsys)
    assert status == 2
    assert f"seed is {2**64}" in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "traces"
    status, _, err = in_process("serve", "--model", "tiny", "--port", "0", "--traces", str(folder), capsys=capsys)
    assert status == 1
    assert str(folder) in err
    assert "--no-record" in err


def test_a_model_that_is_not_there_ends_the_server_with_one_line(tmp_path: Path) -> None:
    result = run("serve", "--model", str(tmp_path / "none.gguf"), "--port", "0", "--traces", str(tmp_path / "traces"))
    assert result.returncode == 1
    assert "none.gguf" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list((tmp_path / "traces").iterdir()) == []


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    result = run("replay", str(tmp_path / "nothing.mcap"), "--debug")
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("tokenwalk: ")


def test_the_environment_gives_options_and_a_flag_wins(tmp_path: Path) -> None:
    result = run("generate", "Hello", "--json", environment={"TOKENWALK_MODEL": "tiny", "TOKENWALK_MAX_TOKENS": "3"})
    assert json.loads(result.stdout)["completion_tokens"] == 3
    result = run(
        "generate", "Hello", "--json", "--max-tokens", "2",
        environment={"TOKENWALK_MODEL": "tiny", "TOKENWALK_MAX_TOKENS": "3"},
    )  # fmt: skip
    assert json.loads(result.stdout)["completion_tokens"] == 2


def test_doctor_and_models_print_json() -> None:
    doctor = run("doctor", "--json")
    facts = json.loads(doctor.stdout)
    assert facts["facts"]["blas"]["name"]
    assert doctor.returncode == (0 if facts["ok"] else 1)
    specs = [model["spec"] for model in json.loads(run("models", "--json").stdout)]
    assert specs[:2] == ["smollm2", "tiny"]
    assert "smollm2" in run("models").stdout
