# make lab       a notebook with sliders       (PORT=8888, GPU=1 for the CUDA build of JAX)
# make app       the explorer alone, as a page (PORT=8888, PAGES=40 at once; for a class, HOST=0.0.0.0 TOKEN=...: docs/class.md)
# make test      everything that CI checks; the browser's tests where there is a Chromium (WORKERS=2, ORDER=random)
# make test-all  these, what is rare, every lesson and every browser test that measures time: on a quiet machine
# make test-browser  these alone, and they must run
# make fuzz      the unit tests with random inputs, many more, in random order (MINUTES=30, EXAMPLES=20)
# make attack    random attacks on sweeps, files, the shell, links and the batcher (MINUTES=9, SEED=..., ONLY=readers ATTEMPTS=50000)
# make class-of-30  the app in class: 30 pages open, move, reload and close; pictures and memory (STUDENTS=30, LESSONS=3)
# make class-under-attack  the app in class while one page sends each kind of attack (STUDENTS=30, MINUTES=5)
# make features  every public name, option, control, view, server and lesson, a line each
# make golden    results of this revision against those of another, to the bit (BASE=main~1)
# make mutants   small bugs that the nearest tests miss (MODULES=batchsim/result/warmup.py, SAMPLE=10, SEED=0; BUGS=tools/bugs.txt)
# make bounds    the engines' tests with every index of the compiled loops checked, a quarter of an hour
# make lessons   the students' copies of the lessons, from notebooks/solutions/ (FORMAT=nbgrader or otter: build/FORMAT)
# make page      one file that needs no installation and no network: dist/batchsim.html
# make lite      the course for a browser alone, as a folder for any web server: dist/lite (PYODIDE=a folder with its release)
# make slides    the lessons as slides, which need no network: build/slides/index.html
# make book      the course, the glossary and the reference as a site that reads offline: build/book/html/index.html
# make package   the wheel and the sdist, checked and installed in fresh environments: dist/, a quarter of an hour
# make picture   README's moving picture of the explorer, which needs a Chromium: docs/explorer.webp
# make paper     the figure of the paper for the Journal of Open Source Education, paper/paper.md
# make bench     the seconds of compilation, and what is claimed about speed, as ratios
# make peak-memory  the peak memory of default calls of random scenarios of tokens, twenty minutes (COUNT=200, SEED=0)
# make selection  how often `tune` selects a good setting, beside KN++ and OCBA-m: half an hour (PROBLEMS=200)
# make validate  VALIDATION.md: every comparison with theory and with measured servers
# make fidelity  real runs on this machine beside their simulation, tables of VALIDATION.md: on a quiet machine, a quarter of an hour (SECONDS=15)
# make coverage  how often intervals hold the truth, a table of VALIDATION.md: half an hour (SEEDS=300)
# make fidelity-servers  servers' own code beside their presets, a table of VALIDATION.md: ten minutes (SECONDS=100)
# All make .venv first; PYTHON=python3.12 picks another Python.

PYTHON ?= python3
PORT ?= 8888
WORKERS ?= auto
EXAMPLES ?= 20
LESSONS ?= 3
STUDENTS ?= 30
VENV := .venv
BIN := $(VENV)/bin
JUPYTER_DATA := $(VENV)/share/jupyter
UNITS = JAX_PLATFORMS=cpu $(BIN)/python -m pytest -p no:nbval
RANDOM_ORDER := $(if $(filter random,$(ORDER)),-p randomly)
# One after the other, as two kernels that start at once can choose the same port, and the second then dies.
NOTEBOOKS = JAX_PLATFORMS=cpu $(BIN)/python -m pytest --nbval --nbval-current-env --nbval-cell-timeout 120
# Tests marked `alone` measure time or take long: they run one after the other, on an otherwise idle machine.
BROWSER := JAX_PLATFORMS=cpu $(BIN)/python -m pytest -p no:nbval -rs tests/browser
# In one process, as each would start servers, a browser and pages of its own.
BROWSER_BESIDE := $(BROWSER) -m "not alone"
BROWSER_ALONE := $(BROWSER) tests/web/test_entries.py -m alone
PLAIN = $(shell grep -rl --include="test_*.py" "mark\.plain" tests)
RARE = $(shell grep -rl --include="test_*.py" --exclude-dir=browser "mark\.rare" tests)
ENGINES := $(addprefix tests/,$(addsuffix .py,agreement/test_agreement agreement/test_replicas engines/compiled/test_engine scenario/test_priorities scenario/rules/test_rules scenario/rules/test_rules_of_servers engines/test_engines study/test_surface agreement/test_tokens))
# The others are the students' copies of the lessons.
EXECUTED := notebooks/00-explorer.ipynb notebooks/app.ipynb notebooks/solutions/*.ipynb
# The notebooks that run within seconds; `make test-all` runs every one.
QUICK := notebooks/00-explorer.ipynb notebooks/app.ipynb notebooks/solutions/03-*.ipynb

.PHONY: help lite lite-tools lab app test test-all types plain module units pages test-browser fuzz features golden attack mutants bounds class-of-30 class-under-attack bench selection validate fidelity coverage peak-memory fidelity-servers notebooks lessons book page package picture paper slides clean
help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

lab: $(VENV)/.installed-notebook $(if $(GPU),$(VENV)/.installed-gpu)
	$(BIN)/python -m batchsim lab --notebooks=notebooks --port=$(PORT)

# Through the environment, not the command's line: others on this machine could read a token there. A shell's own
# HOST (tcsh has one) is not asked for.
app: export BATCHSIM_HOST = $(if $(findstring command line,$(origin HOST)),$(HOST))
app: export BATCHSIM_TOKEN = $(TOKEN)
app: export PAGES := $(PAGES)
app: $(VENV)/.installed-app
	$(BIN)/python -m batchsim app --port=$(PORT)

# Else each of some hundred Pythons would compile our modules again where this variable says not to keep them.
lab app test test-all test-browser: export PYTHONDONTWRITEBYTECODE =

test: export CPU_SECONDS := $(abspath $(VENV))/cpu-seconds
test: $(VENV)/.installed-test
	@rm -f $(CPU_SECONDS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --no-print-directory --jobs=3 pages units plain module types
	$(BROWSER_ALONE) -k a_drag_through_50_values
	$(NOTEBOOKS) $(QUICK)
	@awk '{ s += $$1; n += $$2 } END { printf "%d tests: %d CPU seconds, besides notebooks and types\n", n, s }' $(CPU_SECONDS)

test-all: test
	$(UNITS) -n $(WORKERS) --maxprocesses=4 -m "(plain or rare) and not alone" $(sort $(PLAIN) $(RARE))
	export BATCHSIM_BROWSER=required; $(BROWSER_ALONE)
	$(NOTEBOOKS) $(filter-out $(wildcard $(QUICK)),$(wildcard $(EXECUTED)))

# Five of `make test` that run side by side, as mypy uses one core and a browser's tests wait for much of their time.
# The browser's begin at once, as they take longest.
types:
	@$(BIN)/mypy

# The page's loops as WebAssembly, before a test in the browser would wait for them.
module:
	@PYTHONPATH=tests/helpers $(BIN)/python -c "import web_module; web_module.module()"

# What would compile a loop for each rule, and claims nothing of the compiler. `make test-all` compiles it.
plain:
	@NUMBA_DISABLE_JIT=1 $(UNITS) -m "plain and not rare" $(PLAIN)

units:
	$(UNITS) -m "not plain and not rare" tests/agreement/test_agreement.py
	$(UNITS) -m "not alone and not plain and not rare" -n $(WORKERS) --maxprocesses=4 --dist=worksteal $(RANDOM_ORDER) --ignore=tests/browser --ignore=tests/package --ignore=tests/agreement/test_agreement.py

# What they say comes when they are over, not among what `units` says. Only these need the browser's Python.
pages: $(VENV)/pyodide lite-tools
	@$(BROWSER_BESIDE) > $(VENV)/pages.log 2>&1; over=$$?; cat $(VENV)/pages.log; exit $$over

test-browser: $(VENV)/.installed-test $(VENV)/pyodide lite-tools
	export BATCHSIM_BROWSER=required; $(BROWSER_BESIDE) && $(BROWSER_ALONE)

# Not in CI, which must say the same each time.
fuzz: MINUTES = 30
fuzz: $(VENV)/.installed-test
	JAX_PLATFORMS=cpu $(BIN)/python tools/fuzz.py --minutes $(MINUTES) --examples $(EXAMPLES)

class-under-attack: MINUTES = 5
class-under-attack: $(VENV)/.installed-test
	PYTHONPATH=tests:tests/helpers:tools $(BIN)/python -m attack.pages --pages $(STUDENTS) --minutes $(MINUTES)

peak-memory: COUNT = 200
peak-memory: SEED = 0
peak-memory: $(VENV)/.installed-test
	JAX_PLATFORMS=cpu $(BIN)/python tools/peak_memory.py $(COUNT) $(SEED)

features: $(VENV)/.installed-test
	@JAX_PLATFORMS=cpu $(BIN)/python tools/features.py

golden: BASE = main~1
golden: $(VENV)/.installed-test
	git worktree add --force --detach $(VENV)/base $(BASE)
	PYTHONPATH=$(VENV)/base JAX_PLATFORMS=cpu $(BIN)/python tools/golden.py write $(VENV)/golden.json
	git worktree remove --force $(VENV)/base
	JAX_PLATFORMS=cpu $(BIN)/python tools/golden.py compare $(VENV)/golden.json

attack: MINUTES = 9
attack: $(VENV)/.installed-test
	PYTHONPATH=tests:tests/helpers:tools $(BIN)/python -m attack --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only '$(ONLY)') $(if $(ATTEMPTS),--attempts $(ATTEMPTS))

mutants: SAMPLE = 10
mutants: SEED = 0
mutants: $(VENV)/.installed-test
	JAX_PLATFORMS=cpu $(BIN)/python tools/mutants.py --sample $(SAMPLE) --seed $(SEED) $(addprefix --bugs=,$(BUGS)) $(MODULES)

# In a cache of its own: what is compiled with the checks must not be found by runs without them.
bounds: $(VENV)/.installed-test
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(abspath $(VENV))/numba-bounds JAX_PLATFORMS=cpu $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses=4 $(ENGINES)

# Not in CI: it takes a quarter of an hour.
class-of-30: $(VENV)/.installed-test
	$(BIN)/python tools/class_of_30.py --pages $(STUDENTS) --lessons $(LESSONS)

bench: $(VENV)/.installed-benchmark
	$(BIN)/python benchmarks/compiling.py
	$(BIN)/python benchmarks/bench.py

selection: PROBLEMS = 200
selection: $(VENV)/.installed-benchmark
	$(BIN)/python benchmarks/selection.py $(PROBLEMS)

validate: $(VENV)/.installed-test
	JAX_PLATFORMS=cpu $(BIN)/python tools/validate.py

# On the device that JAX finds: JAX_PLATFORMS=cpu for the processor. Ctrl-C leaves what there is in tools/validation/fidelity*.partial.md.
fidelity: SECONDS = 15
fidelity: $(VENV)/.installed-test
	$(BIN)/python tools/fidelity.py --seconds $(SECONDS)

coverage: SEEDS = 300
coverage: $(VENV)/.installed-test
	JAX_PLATFORMS=cpu $(BIN)/python tools/interval_coverage.py --seeds $(SEEDS)

# In an environment of its own: the servers bring a hundred packages, and versions that the others need not have.
fidelity-servers: SECONDS = 100
fidelity-servers:
	$(MAKE) VENV=.venv-servers .venv-servers/.installed-fidelity
	JAX_PLATFORMS=cpu .venv-servers/bin/python tools/fidelity_servers.py --seconds $(SECONDS)

# Run the notebooks afresh and keep their outputs and counts, but no widget state.
notebooks: $(VENV)/.installed-test
	JAX_PLATFORMS=cpu $(BIN)/jupyter nbconvert --to notebook --execute --inplace $(EXECUTED)
	$(BIN)/nbstripout --keep-output --keep-count $(EXECUTED)
	$(BIN)/python tools/tidy_notebooks.py $(EXECUTED)
	$(BIN)/ruff format notebooks
	$(BIN)/python tools/student_copies.py

# Write the students' copies of the lessons, after a change in notebooks/solutions/.
lessons: $(VENV)/.installed-test
	$(BIN)/python tools/$(if $(FORMAT),graded_copies.py $(FORMAT) build/$(FORMAT),student_copies.py)

# The lessons are not run: they keep the outputs of `make notebooks`. A warning is an error, as is a link that leads nowhere.
book: $(VENV)/.installed-book page
	$(BIN)/python docs/book/build.py build/book/source
	JAX_PLATFORMS=cpu $(BIN)/python -m sphinx -q -W --keep-going -b html -c docs/book -d build/book/doctrees build/book/source build/book/html
	$(BIN)/python docs/book/check.py build/book/html
	@echo "Open build/book/html/index.html, or put that folder on any server."

# A wheel that is built afterwards contains the page.
page: $(VENV)/.installed-web
	JAX_PLATFORMS=cpu $(BIN)/python -m batchsim.web.page batchsim/web/batchsim.html
	@mkdir -p dist && cp batchsim/web/batchsim.html dist/

# Not in CI: it installs the package ten times.
package: $(VENV)/.installed-package book slides
	rm -f dist/*.whl dist/*.tar.gz
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/pyroma --min=10 dist/*.tar.gz
	JAX_PLATFORMS=cpu $(BIN)/python -m pytest -p no:nbval -rA tests/package

# A test names this target once the explorer has other pages or views than the picture.
picture: $(VENV)/.installed-test
	JAX_PLATFORMS=cpu $(BIN)/python docs/moving_picture.py

# The figure of paper/paper.md.
paper: $(VENV)/.installed-test
	JAX_PLATFORMS=cpu $(BIN)/python paper/figure.py

# In an environment of its own, as JupyterLab would load JupyterLite's extensions, too.
lite: lite-tools
	JAX_PLATFORMS=cpu .venv-lite/bin/python docs/lite/build.py dist/lite $(PYODIDE)
	@echo "Put dist/lite on any web server, or try it: python -m http.server -d dist/lite"

lite-tools:
	@$(MAKE) --no-print-directory VENV=.venv-lite .venv-lite/.installed-lite

# The tests of `make lite` are skipped without it.
$(VENV)/pyodide: $(VENV)/.installed-test
	-$(BIN)/python tools/pyodide.py $@

slides: $(VENV)/.installed-book page
	$(BIN)/python docs/book/slides.py build/slides
	$(BIN)/python docs/book/check.py build/slides
	@echo "Open build/slides/index.html."

$(VENV)/.python:
	@command -v $(PYTHON) >/dev/null || { echo "batchsim needs Python 3.11 or newer: there is no $(PYTHON). Install it, or name another: make lab PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; v < (3, 11) and sys.exit("batchsim needs Python 3.11 or newer, got %d.%d. Name another: make lab PYTHON=python3.12" % v[:2])'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "batchsim needs the Python modules venv and ensurepip (on Debian and Ubuntu: apt install python3-venv)."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# The package is installed in place, with an extra; again only when pyproject.toml changes. For notebooks Python makes the
# bytecode of what they import, a quarter of all; else it is made here, on all cores, where pip uses one. A file that is
# no Python (a package's template) stops nothing.
$(VENV)/.installed-%: $(VENV)/.python pyproject.toml
	@echo "Installing batchsim with its $* extra into $(VENV): some minutes the first time."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[$*]' || { echo "Installing failed: is the package registry (PyPI or your mirror) reachable? The first line above says what was missing."; exit 1; }
	@[ $* = notebook ] || $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@mkdir -p $(JUPYTER_DATA)/lab/settings && cp notebooks/.lab/overrides.json $(JUPYTER_DATA)/lab/settings/
	@touch $@

clean:
	rm -rf $(VENV) .venv-servers .venv-lite
