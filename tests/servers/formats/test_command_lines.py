"""Command lines of servers: every way of saying the same, and what is refused where."""

import pytest

import batchsim as bs
from batchsim import servers
from batchsim.servers.formats.command_lines import flags_of
from batchsim.servers.formats.shell import commands
from batchsim.servers.language import NO_MEMORY

SAME = [
    "vllm serve m --max-num-seqs 64 --no-enable-chunked-prefill",
    "vllm serve m --max_num_seqs=64 --no_enable_chunked_prefill",
    "/opt/bin/vllm serve --max-num-seqs '64' --no-enable-chunked-prefill m",
    'exec vllm serve "m" \\\n  --max-num-seqs "64" \\\n  --no-enable-chunked-prefill # as before',
    "cd /srv; A=1 vllm serve m --max-num-seqs 64 --no-enable-chunked-prefill && echo done",
    "python -m vllm.entrypoints.openai.api_server --model m --max-num-seqs 64 --no-enable-chunked-prefill",
    "docker run -p 1:2 vllm/vllm-openai:v0.19.0 --model m --max-num-seqs 64 --no-enable-chunked-prefill",
    "model: m\nmax-num-seqs: 64\nno-enable-chunked-prefill: true\n",
    "model: m\nmax_num_seqs: 64\nno_enable_chunked_prefill: true\n",
]


@pytest.mark.parametrize("text", SAME)
def test_vllm_is_told_the_same_in_many_ways(text):
    found = servers.parse(text)
    assert found.server == "vllm"
    assert found.settings == {"model": "m", "max_num_seqs": 64, "enable_chunked_prefill": False}
    assert (found.unknown, found.unused) == ({}, {})


@pytest.mark.parametrize(
    ("text", "settings", "unused"),
    [
        ("vllm serve --enforce-eager m", {"model": "m", "enforce_eager": True}, {}),
        (
            "vllm serve m --cudagraph-capture-sizes 1 2 8 -O3",
            {"model": "m", "cudagraph_capture_sizes": [1, 2, 8], "optimization_level": 3},
            {},
        ),
        ("vllm serve m --max-num-batched-tokens 4k", {"model": "m", "max_num_batched_tokens": 4000}, {}),
        ("vllm serve m --max-num-batched-tokens 4K", {"model": "m", "max_num_batched_tokens": 4096}, {}),
        ("vllm serve m -tp 2", {"model": "m", "tensor_parallel_size": 2}, {}),
        (
            "vllm serve m --served-model-name a b --port 8",
            {"model": "m"},
            {"served_model_name": ["a", "b"], "port": 8},
        ),
        (
            "vllm serve m --compilation-config.level 3 --speculative-config '{\"a\": 1}'",
            {"model": "m"},
            {"compilation_config.level": 3, "speculative_config": '{"a": 1}'},
        ),
        ("VLLM_USE_V1=1 vllm serve m --max-num-seqs 8", {"model": "m", "max_num_seqs": 8}, {}),
        ("sglang serve --model m --tp 2 --dp 3", {"model_path": "m", "tp_size": 2, "dp_size": 3}, {}),
        (
            "sglang serve --model-path m --enable-mixed-chunk",
            {"model_path": "m", "enable_mixed_chunk": True},
            {},
        ),
        (
            "MAX_BATCH_SIZE=4 PREFILL_CHUNKING=true text-generation-launcher --model-id m --sharded true",
            {"max_batch_size": 4, "prefill_chunking": True, "model_id": "m"},
            {"sharded": True},
        ),
        ("text-generation-launcher --json-output --model-id m", {"model_id": "m"}, {"json_output": True}),
    ],
)
def test_flags_and_variables_are_settings_or_make_no_difference(text, settings, unused):
    found = servers.parse(text)
    assert (found.settings, found.unknown) == (settings, {})
    assert {name: found.unused[name] for name in unused} == unused


SCRIPTS = {
    "an array": 'ARGS=(--max-num-seqs 64\n  --block-size 32)  # few\nvllm serve m "${ARGS[@]}"',
    "an array that grows": 'A=(--max-num-seqs 64)\nA+=(--block-size 32)\nvllm serve m ${A[@]}',
    "variables": "SEQS=64\nexport SIZE='32'\nvllm serve m --max-num-seqs $SEQS --block-size \"${SIZE}\"",
    "a text of flags": 'ARGS="--max-num-seqs 64"\nARGS="$ARGS --block-size 32"\nvllm serve m $ARGS',
    "behind a sign": 'N=64\nvllm serve m --max-num-seqs=$N --block-size="${SIZE:=32}"',
    "a whole command": "local -a C=(\n vllm serve m --max-num-seqs 64)\nC+=(--block-size 32)\n${C[@]} &",
    "of a function": "f() {\n local N=64 S=${2:-32}\n vllm serve m --max-num-seqs $N --block-size $S\n}",
    "defaults": "vllm serve m --max-num-seqs ${SEQS:-64} --block-size ${SIZE:-32}",
    "a shell in a container": "docker run i bash -c 'vllm serve m --max-num-seqs 64 --block-size 32'",
    "a command that is saved": (
        'C=(vllm serve m --max-num-seqs 64 --block-size 32)\nsave x "${C[@]}"\nexec "${C[@]}"'
    ),
    "beside other texts": (
        "A=$(f 'vllm serve' | g) python3 - <<'E'\nif don't\nE\n"
        "kubectl apply -f - <<E\nimage: vllm/vllm-openai\nE\n"
        "[ -e x ] || N=2\nX=$(printf '%s' --block-size 32)\nvllm serve m --max-num-seqs 64 --block-size 32"
    ),
    "quoted words": "vllm serve \"m\" '--max-num-seqs=64' \"--block-size=32\" --port '80'",
    "behind a condition": "if x; then\n y\nfi\nN=64\nvllm serve m --max-num-seqs $N --block-size 32",
    "an empty variable": 'E=""\nvllm serve m --max-num-seqs 64 $E --block-size 32',
    "a subshell": "(cd x; vllm serve m --max-num-seqs 64 --block-size 32) &\n(echo b)",
    "behind dashes": "kubectl run x --image=vllm/vllm-openai -- --model m --max-num-seqs 64 --block-size 32",
    "on another machine": 'ssh host "vllm serve m --max-num-seqs 64 --block-size 32"',
    "in another window": "tmux new-session -d -s llm 'vllm serve m --max-num-seqs 64 --block-size 32'",
    "a function's parts": "f() (\n vllm serve m --max-num-seqs 64 --block-size 32 &\n)\n! f",
    "an older substitution": "I=`ip | cut -d ' ' -f 1`\nvllm serve m --max-num-seqs 64 --block-size 32",
    "a redirection between": "exec 3<>/dev/h\nvllm serve m > log 2>&1 --max-num-seqs 64 --block-size 32",
    "behind a heredoc's sign": "cat <<E >x && y\nvllm serve m \\\n --max-num-seqs 64 --block-size 32\nE\n",
    "an open line at the end": "vllm serve m --block-size 32 --max-num-seqs 64 \\\n",
    "a shell's variable": 'C="vllm serve m --max-num-seqs 64 --block-size 32"\nnohup bash -c "$C" >x 2>&1 &',
    "continued in quotes": 'C="vllm serve m \\\n  --max-num-seqs 64 \\\n  --block-size 32"\nexec $C',
    "its own entrypoint": (
        "docker run --entrypoint vllm vllm/vllm-openai:1 serve m --max-num-seqs 64 --block-size 32"
    ),
    "unset": "N=8\nunset N\nvllm serve m --max-num-seqs ${N:-64} --block-size 32",
    "eval": 'SEQS=64\neval "vllm serve m --max-num-seqs $SEQS --block-size 32"',
    "words about a command": (
        'docker pull vllm/vllm-openai:1\npkill -f "vllm serve"\necho "vllm serve starts"; pip install vllm\n'
        "log 'vllm serve'; vllm serve m --max-num-seqs 64 --block-size 32\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_a_command_is_read_and_edited_wherever_its_words_stand(text):
    found = servers.parse(text)
    assert found.settings == {"model": "m", "max_num_seqs": 64, "block_size": 32}
    small = "max_num_batched_tokens as on a small card"
    assert (found.unknown, found.notes) == ({}, (f"{NO_MEMORY}; without a gpu, {small}",))
    assert servers.edited(text, bs.Continuous(77, 2048, block_size=32)).text == text.replace("64", "77")


def test_a_flag_more_stands_behind_the_command_not_in_the_definition_of_its_last_word():
    text = 'M=org/m; PORT=80\nvllm serve /models/$M --host "$HOST" --port=$PORT\n'
    assert servers.parse(text).settings == {"model": "/models/org/m"}
    edited = servers.edited(text, bs.Continuous(77, 2048)).text
    assert edited == text.replace("=$PORT", "=$PORT --max-num-seqs 77")
    glued = "vllm serve m --enforce-eager> log &\n"  # where 77> would be the file of that number
    edited = servers.edited(glued, bs.Continuous(77, 2048)).text
    assert edited == glued.replace(">", " --max-num-seqs 77 >")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('A=x\nif $B; then\n A="$A -q"\nfi\nvllm serve m $A', 'line 3: A="$A -q" is not'),
        ("vllm serve m `cat flags`", "line 1: `cat flags` is not read"),
        ('vllm serve m "${ARGS[@]}"', 'line 1: "${ARGS[@]}" is not read, and may set more'),
        ("if true; then A=(--block-size 8); fi\nvllm serve m ${A[@]}", "line 2: ${A[@]} is not read"),
        (
            "A=(-q x)\nif true; then\n A+=(--block-size 8)\nfi\nvllm serve m ${A[@]}",
            "line 3: A+=(--block-size 8) is",
        ),
        ("A=x\ncase $1 in\n a) A=-q ;;\nesac\nvllm serve m $A", "line 5: $A is not"),
        ("A=x\nfor A in x y; do vllm serve m $A; done", "line 2: $A is not"),
        ("[ $1 ] && A=x\nvllm serve m $A", "line 2: $A is not"),
        ("A=x; A=y\nvllm serve m $A", "line 2: $A is not"),
        ("A=x\nread -r A\nvllm serve m $A", "line 3: $A is not"),
        ("A=x\n[ $1 ] && unset A\nvllm serve m $A", "line 3: $A is not"),
        ("python -m vllm.entrypoints.openai.api_server --port=5000 ${ARGS}", "line 1: ${ARGS} is not read"),
        ("vllm serve --host=0.0.0.0 $X --seed 1", "line 1: $X is not read"),
        ('vllm serve "$@"', 'line 1: "$@" is not read'),
        ("vllm serve m --served-model-name a $ARGS", "line 1: $ARGS is not read"),
        (
            'C="vllm serve m --served-model-name a"\nif x; then\n C="$C --max-num-seqs 4"\nfi\n$C',
            'line 3: C="$C --max-num-seqs 4" is not read',
        ),
        ("A=(x y)\nA[1]=z\nvllm serve m ${A[@]}", "line 3: ${A[@]} is not"),
    ],
)
def test_words_that_are_not_known_are_noted(text, words):
    assert any(words in note for note in servers.parse(text).notes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("run() {\n vllm serve m\n}\nrun\nrun", "line 2: run is called 2 times"),
        ("function run {\n vllm serve m\n}\nrun; run; run", "line 2: run is called 3 times"),
        ("function run { vllm serve m; }\nrun\nrun", "line 1: run is called 2 times"),
        ("for i in 1 2; do vllm serve m; done", "line 1: a loop"),
        ("run() {\n vllm serve m\n}\nrun", None),
        ("stop() { kill 1; }\nvllm serve m\nstop\nstop", None),
        ("for i in 1 2; do x; done\nvllm serve m", None),
    ],
)
def test_a_command_that_may_start_several_servers_says_why(text, words):
    notes = [note for note in servers.parse(text).notes if "may start several of these" in note]
    assert [note.split(", ")[0].split(" may")[0] for note in notes] == ([words] if words else [])


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("vllm serve m --max-num-sequences 8 --port 1", {"--max-num-sequences": "--max-num-seqs"}),
        ("vllm serve m --scheduler-delay-factor 0.5", {"--scheduler-delay-factor": "--scheduler-cls"}),
        ("model: m\nmax-num-sequence: 8\n", {"--max-num-sequence": "--max-num-seqs"}),
        ("sglang serve --max-running-request-s 8", {"--max-running-request-s": "--max-running-requests"}),
        ("sglang serve --max_running_requests 8", {"--max_running_requests": "--max-running-requests"}),
        ("vllm serve m --no-max-num-seqs", {"--no-max-num-seqs": "--max-num-seqs"}),
        ("text-generation-launcher --max-batch-sizes 8", {"--max-batch-sizes": "--max-batch-size"}),
        ("text-generation-launcher --zzz", {"--zzz": ""}),
        ("vllm serve m --cuda-graph-sizes 1 2 4", {"--cuda-graph-sizes": "--cudagraph-capture-sizes"}),
        ("vllm serve --zzz 1 m", {"--zzz": ""}),
    ],
)
def test_a_flag_that_the_server_does_not_have_is_listed_with_the_nearest(text, unknown):
    found = servers.parse(text)
    assert found.unknown == unknown
    assert all(flag in repr(found) for flag in unknown)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("vllm serve m -O3 -tp 2", {"model": "m", "optimization_level": 3, "tensor_parallel_size": 2}),
        ("vllm serve m -O 2 --foo -dp=2", {"model": "m", "optimization_level": 2, "data_parallel_size": 2}),
        ("sglang serve --model-path 007", {"model_path": "007"}),
        ("vllm serve m --max-model-len auto", {"model": "m", "max_model_len": "auto"}),
        ("vllm serve m --max-num-batched-tokens 25.6k", {"model": "m", "max_num_batched_tokens": 25_600}),
        ("sglang serve m --max-total-tokens 1M", {"model_path": "m", "max_total_tokens": 1_000_000}),
        ("sglang serve m --context-length 8Ki", {"model_path": "m", "context_length": 8192}),
        (
            "docker run --env=MAX_WAITING_TOKENS=5 ghcr.io/huggingface/text-generation-inference:3.3.6",
            {"max_waiting_tokens": 5},
        ),
    ],
)
def test_a_server_reads_its_own_short_ways(text, settings):
    assert servers.parse(text).settings == settings


def test_what_stands_alone_after_the_model_is_listed_and_files_are_none_of_it():
    found = servers.parse("vllm serve m --enable-chunked-prefill False $MORE > run.log 2>&1 &")
    assert found.unknown == {"False": ""}
    assert not servers.parse("vllm serve m -O3").unknown


def test_it_is_noted_that_a_second_file_is_not_read_and_that_memory_is_not_said():
    notes = servers.parse("vllm serve m --config more.yaml").notes
    assert [any(word in note for note in notes) for word in ("more.yaml", "memory")] == [True, True]
    (note,) = servers.parse("vllm serve m --num-gpu-blocks-override 100").notes
    assert note == "without a gpu, max_num_seqs, max_num_batched_tokens as on a small card"
    assert not servers.config("vllm", num_gpu_blocks_override=100, gpu="h100").notes


def test_a_yaml_may_say_numbers_as_text_as_the_command_line_does():
    text = 'max-num-seqs: "64"\nmax-num-batched-tokens: 8K\n'
    assert servers.parse(text).settings == {"max_num_seqs": 64, "max_num_batched_tokens": 8192}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("VLLM_USE_V1=0 vllm serve m", "line 1, column 1"),
        ("export VLLM_USE_V1=0\nvllm serve m --enable-chunked-prefill", "line 1, column 8"),
        ("docker run -e VLLM_USE_V1=0 vllm/vllm-openai --model m", "line 1, column 15"),
    ],
)
def test_a_command_line_of_vllms_v0_engine_says_that_it_was_removed(text, place):
    with pytest.raises(
        ValueError, match=f"{place}: VLLM_USE_V1 must be 1, got 0; it was removed: .*first='pref"
    ):
        servers.parse(text)
    with pytest.raises(ValueError, match=r"server must be one of .*'vllm_v0'; it was removed: use `vllm`"):
        servers.parse(text, "vllm_v0")
    assert servers.parse("# VLLM_USE_V1=0 before\nvllm serve m").server == "vllm"


def test_the_beginning_of_a_flag_will_do_for_argparse_and_is_noted():
    found = servers.parse("vllm serve m --max-num-seq 8")
    assert found.settings["max_num_seqs"] == 8
    assert "--max-num-seq is short for --max-num-seqs" in found.notes
    assert servers.parse("text-generation-launcher --max-batch-siz 8").unknown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "vllm serve m --max-num-seqs $N",
            r"got \$N; set it in the file, or in a comment: # batchsim: max_num_seqs=...",
        ),
        ("vllm serve m -tp $N\n# batchsim: gpu='h100'", "tensor_parallel_size must be a literal value, got"),
        ("vllm serve m --max-num-seqs $N", "line 1, column 14: max_num_seqs must be a literal value, got"),
        (
            "vllm serve m \\\n  --max-num-seqs 0",
            "line 2, column 3: vLLM's max_num_seqs must be at least 1, got 0",
        ),
        (
            "vllm serve m --max-num-seqs many",
            "column 14: vLLM's max_num_seqs must be a whole number, got 'many'",
        ),
        (
            "vllm serve m --max-num-seqs 300 --max-num-batched-tokens 200",
            "must be at least max_num_seqs, 300, got 200",
        ),
        ("vllm serve m --max-num-seqs 'x", "line 1, column 28: a script must be valid for a shell, got 'x"),
        ('A="$A b"\n' * 2000 + "vllm serve $A", "a script must have at most 30,000 words, got more"),
        (
            "a=(\n" * 2001 + "vllm serve m",
            "a script must have at most 100,000 letters and 2,000 signs, got 6,013",
        ),
        ("a" * 100_000 + "\nvllm serve m", "at most 100,000 letters and 2,000 signs, got 100,010 and 0"),
        (
            "if true; then\n  vllm serve m\n",
            "line 3, column 1: a script must be valid for a shell, got its end",
        ),
        ("vllm serve m --port $(( {{ .N }} ))", r"for a shell, got .*; a template must be rendered first"),
        ("cat <<E\na: 1\nE\n" * 51 + "vllm serve m", "a script must have at most 50 manifests, got 51"),
        ("[ $X ] &&\n  A=8\nvllm serve m --max-num-seqs ${A:-9}", "max_num_seqs must be a literal value"),
        ("A=8\nA+=1\nvllm serve m --max-num-seqs $A", "max_num_seqs must be a literal value, got"),
        ('eval "exec vllm serve /models --port "{{ .Port }}" $@"', "one command vllm serve, got none"),
        ("FROM vllm/vllm-openai:v0.19.0\nENTRYPOINT []\n", "one command vllm serve, got none"),
        ('docker run -it --entrypoint "/bin/bash" vllm/vllm-openai:1', "one command vllm serve, got none"),
        ("docker run --entrypoint=/run.sh vllm/vllm-openai:1 m", "one command vllm serve, got none"),
        (
            "services:\n  a:\n    image: vllm/vllm-openai:1\n    entrypoint: /run.sh\n    command: [m]\n",
            "one command vllm serve, got none",
        ),
        ("vllm serve m --max-num-seqs", "--max-num-seqs must have a value, got none"),
        ("vllm serve m --enable-chunked-prefill=false", "must have no value, got 'false'"),
        # Of the servers' own parsers, each takes other endings, and for some numbers alone.
        ("vllm serve m --max-num-batched-tokens 2.5K", "must be a whole number, got '2.5K'"),
        ("vllm serve m --max-num-seqs 1k", "must be a whole number, got '1k'"),
        ("sglang serve m --max-total-tokens 4K", "must be a whole number, got '4K'"),
        ("sglang serve m --chunked-prefill-size 4k", "must be a whole number, got '4k'"),
        ("sglang serve m --is-embedding", "line 1, column 16: SGLang must generate .*, got --is-embedding"),
        ("vllm serve m --task embed", "line 1, column 14: vLLM must generate .*, got --task=embed"),
        ("vllm serve m --runner=pooling", "line 1, column 14: vLLM must generate .*, got --runner=pooling"),
        ("task: score\nmax-num-seqs: 4", "line 1, column 1: vLLM must generate .*, got --task=score"),
        ("sglang serve m --page-size 16 --chunked-prefill-size 100", "must be whole pages of 16, got 100"),
        ("vllm serve m --gpu-memory-utilization 1.1", "memory must be at most 1, got 1.1"),
        ("vllm serve a\nvllm serve b", r"\(choose one with which=\), got line 1, line 2"),
        (
            "model: m\nengine:\n  type: sglang\n",
            "line 2, column 1: a vLLM YAML must have flags of vllm serve alone",
        ),
        ("sglang serve --model-path m\nkill 9 # vllm serve\nsglang serve", "line 1, line 3"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text, words):
    with pytest.raises((ValueError, TypeError), match=words):
        servers.parse(text)


def test_which_names_one_of_several_commands_by_its_model_or_line():
    text = "vllm serve a --max-num-seqs 2\nvllm serve b --max-num-seqs 3\n"
    assert servers.parse(text, which="b").rule.max_num_seqs == 3
    assert servers.parse(text, which="1").rule.max_num_seqs == 2


def test_a_card_is_said_in_a_comment():
    text = "vllm serve meta-llama/Llama-3.1-8B\n# batchsim: gpu='{}'"
    assert servers.parse(text.format("h100")).rule.max_num_seqs == 1024
    assert servers.parse(text.format("4090")).rule.kv_blocks == 2598
    with pytest.raises(ValueError, match="did you mean 'h100'"):
        servers.parse(text.format("h1000"))


def test_a_value_that_is_not_known_is_noted_where_it_changes_little_or_given_in_a_comment():
    text = "vllm serve m -tp $TP \\\n --max-model-len $LEN --max-num-seqs $N\n# batchsim: max_num_seqs=8"
    found = servers.parse(text)
    assert found.settings == {"model": "m", "max_num_seqs": 8}
    assert found.notes[1:] == (
        "line 1: tensor_parallel_size is $TP, which is not known: left out",
        "line 2: max_model_len is $LEN, which is not known: left out",
    )
    with pytest.raises(
        ValueError, match=r"line 2, column 23: max_num_seqs must .*, got \$N; set it by hand: 9"
    ):
        servers.edited(text, bs.Continuous(9, 2048))
    assert servers.parse("text-generation-launcher --max-input-tokens $X").unused == {
        "max_input_tokens": "$X"
    }


def test_variables_of_an_export_hold_for_what_follows():
    first, second = commands("A=1 x\nexport B=2\nC=3 y -f 'a b'")
    assert [*first.variables] == ["A"]
    assert {name: word.value.text for name, word in second.variables.items()} == {"B": "2", "C": "3"}
    assert [word.text for word in second.words] == ["y", "-f", "a b"]


def test_every_setting_of_a_server_is_one_of_its_flags_or_said_beside_them():
    beside = {"gpu", "prefill_chunking", "attention"}
    for server in ("vllm", "sglang", "tgi"):
        flags = flags_of(server)
        missing = [
            name
            for name in servers.TOKEN_SERVERS[server].settings
            if "--" + name.replace("_", "-") not in flags
        ]
        assert {*missing} <= beside
