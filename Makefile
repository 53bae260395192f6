# make quickstart   LeNet learns MNIST, is saved, evaluated, and recognises a picture
# make libai        LiBai's tutorial: a project of its own model, data set and config is trained for two epochs, and its curves are drawn
# make test         checks the code and runs every test
# make quick        the tests that take three minutes on two cores
# make matrix       every model in every kind of parallelism on 2, 4 and 8 ranks, and every law of graphs and of LiBai's runs on 2 and 4: make test takes a selection of these
# make soak         random programs against eager torch and one device: graphs on 2 and 4 ranks, and jobs; SEEDS="LOW HIGH" are the programs, SECONDS the time of each of the three
# make check        ruff, its formatting, and mypy
# make format       formats the code and sorts imports
# make bench        the speed tables; SIZE=small shows in three minutes that all of it runs, its times mean nothing
# make against      OLD=<commit>: the speed of the working tree against an old commit, in one run; SIZE=small likewise
# make reference    writes docs/reference.md and the tables of docs/tensors.md anew
# make clean        removes .venv and all that was built
# Everything happens in .venv, which is made on first use; PYTHON chooses another interpreter to make it with.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: quickstart libai test quick matrix soak check format bench against reference clean

# The first interpreter that is new enough; a version manager's stub that cannot run is passed over.
ifndef PYTHON
PYTHON := $(shell for p in python3.11 python3 python; do $$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
endif
VENV := .venv
RUN := "$(CURDIR)/$(VENV)/bin/python"
QUICKSTART := build/quickstart
LIBAI := build/libai
# How much the benchmarks measure: full or small.
SIZE := full
BENCH_FLAGS := $(if $(filter small,$(SIZE)),--small,$(if $(filter full,$(SIZE)),,$(error SIZE is full or small, got $(SIZE))))
# Which random programs run, and for how long at most.
SEEDS := 0 1000000
SECONDS := 600
ifeq ($(MAKECMDGOALS)$(OLD),against)
$(error make against needs the commit to measure against, such as make against OLD=HEAD~1)
endif

export MPLBACKEND := Agg
export PYTHONUNBUFFERED := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# The images that come with the package are enough here; another folder of idx files may be named.
quickstart: export ONEFLOW_MNIST_DIR ?= $(CURDIR)/src/oneflow/engine/data/formats/mnist
quickstart: $(VENV)/examples.stamp
	rm -rf $(QUICKSTART)
	mkdir -p $(QUICKSTART)
	cp examples/quick_start/*.py examples/quick_start/9.png $(QUICKSTART)
	@echo "== LeNet learns: the loss of every 20th batch"
	cd $(QUICKSTART) && $(RUN) lenet_train.py
	@echo "== how many images it gets right"
	cd $(QUICKSTART) && $(RUN) lenet_eval.py
	@echo "== which digit is 9.png?"
	cd $(QUICKSTART) && $(RUN) lenet_test.py ./9.png
	@echo "== a network in the later style: typed inputs, optimizer, schedule, dropout"
	cd $(QUICKSTART) && $(RUN) "$(CURDIR)/examples/mnist/mnist.py" --out mnist_out

libai: export ONEFLOW_MNIST_DIR ?= $(CURDIR)/src/oneflow/engine/data/formats/mnist
libai: $(VENV)/examples.stamp
	rm -rf $(LIBAI)
	mkdir -p build
	cp -r examples/libai_mnist $(LIBAI)
	cd $(LIBAI) && $(RUN) "$(CURDIR)/tools/train_net.py" --config-file configs/config.py train.train_epoch=2 train.evaluation.eval_period=25 dataloader.train.num_workers=1 dataloader.test.0.num_workers=1
	@echo "== the curves, and the files of the run"
	cd $(LIBAI) && $(RUN) plot_loss.py output/MNIST && ls output/MNIST

# Two files at a time, programs first, each with one thread for computing: torch's threads of two processes would wait for each other.
test: check
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Without workers and programs, and without tests that are slow or need a quiet machine.
quick: $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 --dist loadfile -m "not quiet and not slow" tests/compile tests/single tests/data

matrix: $(VENV)/dev.stamp
	MATRIX_ALL=1 OMP_NUM_THREADS=1 $(RUN) -m pytest tests/ranks/test_matrix.py tests/ranks/test_libai_matrix.py tests/ranks/test_zoo_on_ranks.py tests/ranks/test_graphs_on_ranks.py tests/ranks/test_libai_on_ranks.py tests/single/test_fused_networks.py
	FORCED_SPLITS=100 OMP_NUM_THREADS=1 $(RUN) -m pytest tests/compile/test_forced_splits.py

# All three run, whichever of them finds something.
soak: $(VENV)/dev.stamp
	failed=0; \
	for kind in "graphs --ranks 2" "graphs --ranks 4" jobs; do \
		$(RUN) tests/soak/run.py $$kind --seeds $(SEEDS) --seconds $(SECONDS) || failed=1; \
	done; \
	exit $$failed

check: $(VENV)/dev.stamp
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

format: $(VENV)/dev.stamp
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

# Rivals are ONNX Runtime and transformers.
bench: $(VENV)/dev.stamp
	$(RUN) benchmarks/train_step.py $(BENCH_FLAGS)
	$(RUN) benchmarks/graph_step.py $(BENCH_FLAGS)
	$(RUN) benchmarks/updates.py $(BENCH_FLAGS)
	$(RUN) benchmarks/dispatch.py $(BENCH_FLAGS)
	$(RUN) benchmarks/input_pipeline.py $(BENCH_FLAGS)
	$(RUN) benchmarks/scaling.py $(BENCH_FLAGS)
	$(RUN) benchmarks/cnns.py $(BENCH_FLAGS)
	$(RUN) benchmarks/zoo.py $(BENCH_FLAGS)
	$(RUN) benchmarks/ranks.py $(BENCH_FLAGS)
	$(RUN) benchmarks/plan.py $(BENCH_FLAGS)
	$(RUN) benchmarks/libai.py $(BENCH_FLAGS)
	$(RUN) benchmarks/libai_models.py $(BENCH_FLAGS)
	$(RUN) benchmarks/fastnn.py $(BENCH_FLAGS)
	$(RUN) benchmarks/global_ops.py $(BENCH_FLAGS)
	$(RUN) benchmarks/encoder.py $(BENCH_FLAGS)
	$(RUN) benchmarks/transforms.py $(BENCH_FLAGS)

# An old commit may need more packages than the working tree.
against: $(VENV)/dev.stamp
	$(RUN) benchmarks/against.py $(OLD) $(BENCH_FLAGS)

reference: $(VENV)/dev.stamp
	$(RUN) docs/make_reference.py
	$(RUN) docs/make_tensors.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp says that an extra is installed as pyproject.toml asks for it, and the C extension built where that can be done.
$(VENV)/%.stamp: pyproject.toml setup.py src/oneflow/engine/data/image/native/_jpeg.c $(wildcard src/oneflow/engine/ops/native/*.[ch]) | $(VENV)/bin/python
	$(RUN) -m pip install --quiet -e '.[$*]'
	touch $@

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed and none was found; name one with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
