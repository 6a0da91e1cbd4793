"""Commands in manifests of Kubernetes and in docker compose: read and edited where their words stand."""

import pytest
import yaml

import batchsim as bs
from batchsim import servers

BLOCK = """\
kind: Deployment
spec:
  replicas: 2
  template:
    spec:
      containers:
      - name: llm
        image: vllm/vllm-openai:v0.19.0
        env:
        - {name: SEQS, value: "64"}
"""
COMPOSE = "services:\n  llm:\n    image: vllm/vllm-openai:v0.19.0\n    deploy: {replicas: 2}\n    command: "
TEXTS = {
    "arguments": BLOCK
    + """\
        args:
        - --model=m
        - "--max-num-seqs=64"  # few
        - --block-size
        - "32"
""",
    "a command": BLOCK
    + """\
        command: [vllm, serve]
        args: [m, --max-num-seqs, "64", "--block-size=32"]
""",
    "a shell": BLOCK
    + """\
        command: [/bin/bash, -c]
        args:
        - |
          set -e
          vllm serve m \\
            --max-num-seqs 64 --block-size 32
""",
    "a variable": BLOCK
    + """\
        command: ["sh", "-c", "vllm serve m --max-num-seqs $SEQS --block-size 32"]
""",
    "several documents": "kind: Service\nspec: {ports: []}\n---\n"
    + BLOCK
    + """\
        args: [--model, m, --max-num-seqs, "64", --block-size, "32"]
""",
    "compose": COMPOSE + "--model m --max-num-seqs 64 --block-size 32\n",
    "a folded text": COMPOSE + ">\n      --model m\n      --max-num-seqs 64\n      --block-size 32\n",
    "a list of compose": COMPOSE + '[--model, m, --max-num-seqs, "${SEQS:-64}", --block-size, "32"]\n',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_command_of_a_container_is_read_and_edited_where_it_stands(text):
    found = servers.parse(text)
    assert found.settings == {"model": "m", "max_num_seqs": 64, "block_size": 32}
    assert (found.unknown, found.replicas, found.routing) == ({}, 2, "random")
    rule = bs.Continuous(77, 4096, block_size=32)
    edited = servers.edited(text, rule).text
    assert servers.parse(edited).rule == rule
    assert len([*yaml.safe_load_all(edited)]) == len([*yaml.safe_load_all(text)])
    new = [line for line in edited.splitlines() if line not in text.splitlines()]
    assert 1 <= len(new) <= 3  # the changed number, and two items of a list
    kept = [line.replace("64", "77") for line in text.splitlines() if "#" in line]
    assert [line for line in edited.splitlines() if "#" in line] == kept


def test_a_template_is_refused_or_noted():
    text = BLOCK + '        args: [--model, m, --max-num-seqs, "$(SEATS)"]\n'
    with pytest.raises(ValueError, match=r"max_num_seqs must be a literal value, got \$\(SEATS\)"):
        servers.parse(text)
    notes = servers.parse(text.replace("--max-num-seqs, ", "")).notes
    with pytest.raises(ValueError, match="a template must be rendered first, as by `helm template`"):
        servers.parse(BLOCK + "        args: [--model, {{ .Values.model }}]\n")
    assert any("$(SEATS) is not read, and may set more" in note for note in notes)
