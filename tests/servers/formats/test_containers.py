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
    "a service of KServe": BLOCK.replace("kind: Deployment", "kind: InferenceService").replace(
        "replicas", "minReplicas"
    )
    + """\
        args: [--model, m, --max-num-seqs, "64", --block-size, "32"]
""",
    "a template in a name": BLOCK.replace("vllm/vllm-openai:v0.19.0", '"vllm/vllm-openai:{{ .Values.tag }}"')
    + """\
        args: [--model, m, --max-num-seqs, "64", --block-size, "32"]
""",
    "a shell with options": BLOCK
    + """\
        command: [/bin/bash, -euxo, pipefail, -lc]
        args: ["vllm serve m --max-num-seqs 64 --block-size 32"]
""",
    "a shell's options in one": BLOCK
    + """\
        command:
        - /bin/bash
        - "-exc"
        - |
          export X=1
          vllm serve m --max-num-seqs 64 --block-size 32 \\
            --port 80
          # the end
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
    "a scaled service": COMPOSE.replace("deploy: {replicas: 2}", "scale: 2")
    + "m --max-num-seqs=64 --block-size=32\n",
    "a list of compose": COMPOSE + '[--model, m, --max-num-seqs, "${SEQS:-64}", --block-size, "32"]\n',
    "a variable of the container": BLOCK
    + """\
        args: [--model=m, --max-num-seqs=$(SEQS), --block-size, "32"]
""",
    "flags in a variable": BLOCK.replace('"64"', "--max-num-seqs 64 --block-size 32")
    + """\
        command: [sh, -c, "vllm serve m $SEQS"]
""",
    "a group of a leader and workers": BLOCK.replace("  template:", "  leaderTemplate:")
    + """\
        args: [--model, m, --max-num-seqs, "64", --block-size, "32"]
  workerTemplate: {containers: [{name: w, image: vllm/vllm-openai, args: [--model, m]}]}
""",
}
DOCKERFILES = {
    "both lists": """\
FROM vllm/vllm-openai:v0.19.0
ENTRYPOINT ["vllm", "serve", "m"]
CMD ["--max-num-seqs", "64", \\
  "--block-size=32"]
""",
    "the image's entrypoint": """\
# syntax=docker/dockerfile:1
ARG V=v0.19.0
FROM --platform=linux/amd64 vllm/vllm-openai:${V}
RUN pip install x && vllm serve
CMD ["--model", "m", "--max-num-seqs", "64", "--block-size", "32"]
HEALTHCHECK CMD vllm serve
RUN <<EOF
CMD ["--max-num-seqs", "8"]
EOF
""",
    "the last stage": """\
FROM python:3.12 AS base
ENV SEQS=64 SIZE=32
CMD vllm serve x
FROM base
RUN <<EOF
CMD vllm serve y
EOF
CMD vllm serve m \\
    # few
    --max-num-seqs $SEQS \\
    --block-size "$SIZE"
""",
    "a shell": """\
FROM x
ARG N=64
ENV SEQS=$N
ENV SIZE 32
ENTRYPOINT ["sh", "-c", "exec vllm serve m --max-num-seqs ${SEQS} --block-size ${SIZE}"]
""",
    "arguments first": """\
FROM x
CMD ["m", "--max-num-seqs", "64", "--block-size", "32"]
ENTRYPOINT ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model"]
""",
    "a unit": """\
[Service]
Environment="SEQS=64" SIZE=32
ExecStartPre=-/usr/bin/docker rm vllm/vllm-openai
ExecStart=/usr/bin/vllm serve before --max-num-seqs 8
ExecStart=
ExecStart=-/opt/vllm/bin/vllm serve m \\
  --max-num-seqs ${SEQS} \\
; few
  --block-size $SIZE
Restart=always
""",
    "a unit of a container": """\
[Service]
Environment=ARGS='--max-num-seqs 64 --block-size 32'
ExecStart=/usr/bin/docker run --rm vllm/vllm-openai:v0.19.0 --model m $ARGS
ExecStop=/usr/bin/docker stop vllm/vllm-openai
""",
}


@pytest.mark.parametrize("text", DOCKERFILES.values(), ids=DOCKERFILES)
def test_a_dockerfile_or_a_unit_is_read_and_edited_where_its_command_stands(text):
    found = servers.parse(text)
    assert found.settings == {"model": "m", "max_num_seqs": 64, "block_size": 32}
    assert (found.unknown, found.replicas, len(found.notes)) == ({}, 1, 1)
    assert servers.edited(text, bs.Continuous(77, 2048, block_size=32)).text == text.replace(
        "64", "77"
    ).replace("amd77", "amd64")
    more = servers.edited(text, bs.Continuous(64, 4096, block_size=32))
    assert servers.parse(more.text).rule == bs.Continuous(64, 4096, block_size=32)
    gone = [line[1:].rstrip("\n") for line in more.diff.splitlines() if line[:1] == "-" and line[:3] != "---"]
    assert len(gone) == 1  # the line behind which the flag stands
    head, tail = text.split(gone[0], 1)
    assert (more.text[: len(head)], more.text[-len(tail) :]) == (head, tail)


def test_a_text_with_escapes_is_read_and_edited_as_far_as_its_places_are_known():
    text = BLOCK + '        command: [sh, -c, "vllm serve m --max-num-seqs 64 --chat-template \\"a b\\""]\n'
    found = servers.parse(text)
    assert found.settings == {"model": "m", "max_num_seqs": 64}
    assert found.unused["chat_template"] == "a b"
    with pytest.raises(ValueError, match=r"max_num_seqs must stand where an edit keeps .* hand, 77"):
        servers.edited(text, bs.Continuous(77, 2048))
    more = servers.edited(text, bs.Continuous(64, 4096)).text
    assert more == text.replace('b\\""', 'b\\" --max-num-batched-tokens 4096"')


def test_a_text_about_a_command_is_none():
    text = (
        BLOCK + '        command: [python3, -c, "import vllm.entrypoints.openai.api_server as a; a.run()"]\n'
    )
    with pytest.raises(ValueError, match="got none"):
        servers.parse(text)


TEI = "ghcr.io/huggingface/text-embeddings-inference:1.9"


@pytest.mark.parametrize(
    ("text", "new"),
    [
        (f"FROM {TEI}\nENV MAX_BATCH_TOKENS=4096\n", '\nCMD ["--max-batch-requests", "3"]\n'),
        (
            f"kind: Pod\nspec:\n  containers:\n  - image: {TEI}\n"
            "    env: [{name: MAX_BATCH_TOKENS, value: '4096'}]\n",
            '\n    args: ["--max-batch-requests", "3"]\n',
        ),
        (
            f"services:\n  t:\n    environment:\n    - MAX_BATCH_TOKENS=4096\n    image: '{TEI}'\n",
            '\n    command: ["--max-batch-requests", "3"]\n',
        ),
        (
            "kind: ConfigMap\nmetadata: {name: c}\ndata:\n  MAX_BATCH_TOKENS: '4096'\n---\nkind: Pod\nspec:\n"
            f"  containers:\n    - envFrom: [{{configMapRef: {{name: c}}}}]\n      image: {TEI}\n",
            '\n      args: ["--max-batch-requests", "3"]\n',
        ),
    ],
)
def test_an_image_whose_settings_are_variables_gets_arguments(text, new):
    found = servers.parse(text)
    assert (found.rule, found.notes) == (servers.tei(4096), ())
    edited = servers.edited(text, servers.tei(2048, 3)).text
    assert servers.parse(edited).rule == servers.tei(2048, 3)
    assert new in edited
    assert edited.replace(new, "\n").replace("2048", "4096") == text


def test_variables_of_another_file_are_noted():
    text = f"services:\n  t:\n    image: {TEI}\n    env_file: .env\n"
    assert servers.parse(text).notes == ("line 4: variables of another file are not read, and may set more",)
    unit = f"[Service]\nEnvironmentFile=/etc/tei\nExecStart=docker run {TEI}\n"
    assert servers.parse(unit).notes == ("line 2: variables of another file are not read, and may set more",)


@pytest.mark.parametrize(
    "text",
    [
        "FROM vllm/vllm-openai:v0.19.0\nRUN pip install x\n",
        'FROM vllm/vllm-openai:v0.19.0\nENTRYPOINT ["/start.sh"]\n',
        "modelSpec:\n  - repository: vllm/vllm-openai\n    vllmConfig: {maxModelLen: 8}\n",
        "image: {repository: vllm/vllm-openai, tag: latest}\nargs: [--model, m]\n",
        "kind: Pod\nspec:\n  containers:\n  - {name: a, image: vllm/vllm-openai}\n",
    ],
)
def test_an_image_without_its_arguments_is_refused(text):
    with pytest.raises(
        ValueError, match="must have one command vllm serve, got none; read the script or the ren"
    ):
        servers.parse(text)


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


def test_what_sets_the_number_of_replicas_elsewhere_is_refused_or_noted():
    text = BLOCK.replace("replicas: 2", "replicas: {{ .Values.n }}") + "        args: [--model, m]\n"
    with pytest.raises(
        ValueError, match=r"line 3, column 3: replicas must be a .*, got \{\{ .Values.n \}\}; a temp"
    ):
        servers.parse(text)
    assert servers.parse(text.replace("{{ .Values.n }}", "${N:-3}")).replicas == 3
    text = BLOCK + "        command: [sh, -c, 'ls; vllm serve m']\n---\nkind: HorizontalPodAutoscaler\n"
    (note,) = (note for note in servers.parse(text).notes if "replicas" in note)
    assert note == "line 13: a HorizontalPodAutoscaler is not simulated: the number of replicas stays"


def test_a_template_is_refused_or_noted():
    text = BLOCK + '        args: [--model, m, --max-num-seqs, "$(SEATS)"]\n'
    with pytest.raises(ValueError, match=r"max_num_seqs must be a literal value, got \$\(SEATS\)"):
        servers.parse(text)
    notes = servers.parse(text.replace("--max-num-seqs, ", "")).notes
    with pytest.raises(ValueError, match="a template must be rendered first, as by `helm template`"):
        servers.parse(BLOCK + "        args:\n        {{- range .Values.args }}\n")
    text = BLOCK + "        args: [--model, {{ .Values.model }}, --max-num-seqs, {{ .Values.seqs }}]\n"
    with pytest.raises(
        ValueError, match=r"max_num_seqs must be a literal value, got \{\{ .Values.seqs \}\}; set"
    ):
        servers.parse(text)
    text = text.replace("{{ .Values.seqs }}", "9") + "---\nkind: Secret\ndata: {t: {{TOKEN}}}\n"
    assert servers.parse(text).settings == {"max_num_seqs": 9}
    edited = servers.edited(text, bs.Continuous(11, 2048)).text
    assert edited == text.replace("seqs, 9", "seqs, 11")
    assert any("$(SEATS) is not read, and may set more" in note for note in notes)
