# One verb each. `make demo` and `make test` are all a newcomer needs; `make check` and `make test-all` are what CI adds.

PYTHON ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
GEN     := .gen-venv
ORACLE  := .oracle-venv
RELEASE := .release-venv
UI      := services/turnwright_ui
CLIENT  := services/clients/ts
PYPI    := services/clients/python
# Two distributions, of one version: no index need have the client for what stands beside it.
INSTALL := -m pip install --quiet --disable-pip-version-check --editable $(PYPI) --editable
TESTS   := $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder
# A sentence for a Python that is too old to say anything else that helps; it has to read this, too.
RECENT := import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else \
  "Turnwright needs Python 3.11 or later, and %s is %d.%d. Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" % (sys.executable, v[0], v[1]))
MAVEN  := mvn --quiet --batch-mode --file tests/stubs/pom.xml
PROTOS := $(sort $(shell find protos -name '*.proto'))

.PHONY: demo test test-all check lint types imports ceilings collect protos breaking released generators gen gen-check stubs deploy image-test dist chart site format bench eval fuzz soak mutants oracle polyglot ui ui-check ui-test postgres postgres-stop install clean

demo: $(VENV)/.installed
	@$(BIN)/turnwright demo

# What a person runs: some minutes, and nothing needed beside Python. See tests/quick.py. The longest files first, so that no worker is
# left with one at the end.
test: $(VENV)/.installed-dev
	@$(TESTS) --quick tests/e2e tests/contract tests/unit tests/architecture

# Everything but the marked ones that have a verb of their own.
test-all: $(VENV)/.installed-dev
	@$(TESTS)

# At once what reads sources and what downloads; then what writes gen/, and what reads that.
check:
	@$(MAKE) --no-print-directory --jobs 3 lint types imports ceilings collect protos breaking deploy site generators
	@$(MAKE) --no-print-directory gen-check stubs ui-check

install: $(VENV)/.installed

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

imports: $(VENV)/.installed-dev
	$(BIN)/lint-imports

# Lines and lines of code of each package, which must not pass its ceiling in tests/ceilings.toml.
ceilings: $(VENV)/.installed-dev
	$(BIN)/python tests/ceilings.py

# Also those that `make test` leaves out. What it compiles, the workers of `make test-all` load.
collect: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --collect-only --quiet --quiet --quiet -m ''

protos: node_modules/.installed
	npx --no-install buf lint
	npx --no-install buf format --diff --exit-code

# The contract may grow, but nothing that clients were given may change or go.
breaking: node_modules/.installed
	npx --no-install buf breaking --against protos/released.binpb

# With each release, and with a break that the changelog gives a reason for.
released: node_modules/.installed
	npx --no-install buf build --exclude-source-info -o protos/released.binpb

# Stubs come from one pinned generator in an environment of its own: generated code refuses a runtime older
# than its generator, so the generator stays old and the runtime floats.
generators: $(GEN)/.installed build/tools/.installed-go build/tools/.installed

gen: $(GEN)/.installed node_modules/.installed build/tools/.installed-go
	rm -rf gen/*/turnwright gen/*/turnwright_values gen/ts/google && mkdir -p gen/python/turnwright
	npx --no-install buf generate --template gen/buf.gen.yaml
	npx --no-install buf generate --template gen/buf.gen.errors.yaml
	$(GEN)/bin/python -m grpc_tools.protoc -Iprotos \
	  --plugin=protoc-gen-mypy=$(GEN)/bin/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(GEN)/bin/protoc-gen-mypy_grpc \
	  --python_out=gen/python --grpc_python_out=gen/python --mypy_out=quiet:gen/python --mypy_grpc_out=quiet:gen/python \
	  $(PROTOS)
	PATH=$(GEN)/bin:$$PATH $(GEN)/bin/python -m grpc_tools.protoc -Iprotos \
	  --plugin=protoc-gen-values=gen/protoc_gen_values.py --values_out=gen/python \
	  --plugin=protoc-gen-openapi=gen/protoc_gen_openapi.py --openapi_out=gen/python $(PROTOS)
	find gen/python -name '*_pb2_grpc.py*' | xargs grep -L 'Stub' | xargs -r rm
	touch gen/python/turnwright/py.typed

gen-check: gen
	@test -z "$$(git status --porcelain -- gen)" || { git --no-pager diff --stat -- gen; \
	  git status --short -- gen; echo 'gen/ is not what protos/ says: run `make gen` and commit it.'; exit 1; }

# The page, from its sources and the client for TypeScript.
ui: $(CLIENT)/dist/index.js
	npm --prefix $(UI) run --silent build

ui-check: ui
	@test -z "$$(git status --porcelain -- $(UI)/static)" || { git --no-pager diff --stat -- $(UI)/static; \
	  git status --short -- $(UI)/static; echo '$(UI)/static is not what its sources say: run `make ui` and commit it.'; exit 1; }

# Compiles the stubs that are committed, and generates those that are not.
stubs: node_modules/.installed build/tools/.installed
	npx --no-install tsc -p tests/stubs
	cd gen/go && go build ./...
	cd services/clients/go && go vet ./...
	npx --no-install buf generate
	$(MAVEN) compile

format: $(VENV)/.installed-dev node_modules/.installed
	$(BIN)/ruff check --fix-only --quiet . ; $(BIN)/ruff format .
	npx --no-install buf format -w

bench: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m bench -s tests/bench

# Draws anew each time: damaged replies for TURNWRIGHT_FUZZ_S seconds, 120 by default, and then each test of a property.
fuzz: $(VENV)/.installed-dev
	@export TURNWRIGHT_FUZZ_SEED=$${TURNWRIGHT_FUZZ_SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	again="To draw the same again: TURNWRIGHT_FUZZ_SEED=$$TURNWRIGHT_FUZZ_SEED make fuzz"; echo "$$again"; \
	$(BIN)/python -m pytest -s -m 'fuzz or hypothesis' --hypothesis-profile fuzz --hypothesis-seed $$TURNWRIGHT_FUZZ_SEED \
	  tests/fuzz tests/unit tests/contract || { echo "$$again"; exit 1; }

soak: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m soak -s tests/architecture tests/unit tests/contract tests/crash tests/e2e

# Breaks one behaviour of a row at a time, and says which of the tests that the row names stay green: all, or ROWS="RD02 RC02".
mutants: $(VENV)/.installed-dev
	$(BIN)/python tests/mutants.py $(ROWS)

# Beside the official SDKs, which have an environment of their own.
oracle: $(VENV)/.installed-dev $(ORACLE)/.installed
	TURNWRIGHT_ORACLE_PYTHON=$(CURDIR)/$(ORACLE)/bin/python $(BIN)/python -m pytest -m oracle tests/oracle

# The programs of docs/clients that take long to build: Java and Rust.
polyglot: $(VENV)/.installed-dev $(GEN)/.installed node_modules/.installed build/tools/.installed
	@$(BIN)/python $(INSTALL) '.[polyglot]'
	$(BIN)/python -m pytest -m polyglot tests/polyglot

# The page, and the client for TypeScript, in chromium.
ui-test: $(VENV)/.installed-dev node_modules/.installed
	@$(BIN)/python $(INSTALL) '.[polyglot]'
	@$(BIN)/python -m pytest -m browser tests/ui

# Twenty small tasks with written replies: what each way to send a run to its model takes. OPTIONS="--html FILE" are those of `eval`.
eval: $(VENV)/.installed-dev
	@$(BIN)/python tests/evals/run.py $(OPTIONS)

deploy: $(VENV)/.installed-dev
	$(BIN)/hadolint deploy/Containerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose*.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/fault.yml .github/ISSUE_TEMPLATE/wish.yml

# Builds the image and runs the compose files, with buildah and podman.
image-test: $(VENV)/.installed-dev
	@$(BIN)/python $(INSTALL) '.[image]'
	$(BIN)/python -m pytest -m image tests/deploy

# What a release publishes, in dist/: the wheels of the client and of everything, which are tried in empty environments as whoever
# installs them has it; the source of both; the client for TypeScript, which its test has installed; the chart; and what the image
# consists of.
dist: chart node_modules/.installed
	rm -rf dist build/empty build/empty-client
	$(BIN)/hatchling build -d dist
	cd $(PYPI) && $(CURDIR)/$(BIN)/hatchling build -t wheel -d $(CURDIR)/dist
	$(BIN)/python -m venv build/empty-client
	build/empty-client/bin/python -m pip install --quiet --disable-pip-version-check dist/turnwright_client-*.whl
	build/empty-client/bin/python -m pip check
	@test "$$(build/empty-client/bin/python -m pip freeze | wc -l)" -le 6 || { echo 'The client brings more than five packages.'; exit 1; }
	cd build && empty-client/bin/python -c 'from turnwright_client import Client, SyncClient'
	$(BIN)/python -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	build/empty/bin/python -m pip check
	cd build && empty/bin/turnwright --version && empty/bin/turnwright demo
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check "$$(echo dist/turnwright-*.whl)[mcp,prices,telemetry,tokenizer]"
	$(RELEASE)/bin/helm package --destination dist build/chart/turnwright
	cd $(CLIENT) && npm pack --silent --pack-destination $(CURDIR)/dist
	$(RELEASE)/bin/cyclonedx-py environment --output-reproducible --output-file dist/turnwright.cdx.json build/empty/bin/python

# The chart that a release publishes, in build/chart.
chart: $(VENV)/.installed-dev $(RELEASE)/.installed
	mkdir -p build/chart
	$(BIN)/python deploy/chart/make.py build/chart
	$(RELEASE)/bin/helm lint --strict --quiet build/chart/turnwright

# The documentation as pages, in build/site. Fails for a link that leads nowhere.
site: $(RELEASE)/.installed
	NO_MKDOCS_2_WARNING=1 $(RELEASE)/bin/mkdocs build --strict --config-file deploy/site/mkdocs.yaml

# A throw-away server for the tests that need PostgreSQL.
postgres:
	@echo "export TURNWRIGHT_TEST_POSTGRES=$$(.ci/postgres start)"

postgres-stop:
	@.ci/postgres stop

clean:
	rm -rf $(VENV) $(GEN) $(ORACLE) $(RELEASE) node_modules $(CLIENT)/node_modules $(CLIENT)/dist build dist

$(BIN)/python:
	@$(PYTHON) -c '$(RECENT)'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo 'No virtual environment could be made. On Debian: apt-get install python3-venv' >&2; exit 1; }

$(VENV)/.installed: pyproject.toml $(PYPI)/pyproject.toml | $(BIN)/python
	@$(BIN)/python -c '$(RECENT)' || { echo 'Remove $(VENV) first: it was made with that Python.' >&2; exit 1; }
	@echo 'Installing Turnwright into $(VENV) ...'
	@$(BIN)/python $(INSTALL) .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(PYPI)/pyproject.toml | $(BIN)/python
	@$(BIN)/python -c '$(RECENT)' || { echo 'Remove $(VENV) first: it was made with that Python.' >&2; exit 1; }
	@echo 'Installing Turnwright with what tests and checks need into $(VENV) ...'
	@$(BIN)/python $(INSTALL) '.[dev]'
	@touch $@ $(VENV)/.installed

# pip knows groups since 25.1; Python 3.11 and 3.12 bring an older one.
$(GEN)/.installed: pyproject.toml
	$(PYTHON) -m venv $(GEN)
	$(GEN)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(GEN)/bin/python -m pip install --quiet --disable-pip-version-check --group gen
	@touch $@

$(ORACLE)/.installed: pyproject.toml
	$(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(ORACLE)/bin/python -m pip install --quiet --disable-pip-version-check --group oracle
	@touch $@

$(RELEASE)/.installed: pyproject.toml
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check --group release
	@touch $@

build/tools/.installed-go: gen/go/go.mod
	mkdir -p build/tools
	GOBIN=$(CURDIR)/build/tools go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.33.0
	GOBIN=$(CURDIR)/build/tools go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.3.0
	@touch $@

build/tools/.installed: tests/stubs/pom.xml
	mkdir -p build/tools
	$(MAVEN) dependency:copy -Dgenerators.platform=$$(uname -s | tr A-Z a-z | sed s/darwin/osx/)-$$(uname -m | sed 's/aarch64\|arm64/aarch_64/')
	chmod +x build/tools/protoc build/tools/protoc-gen-grpc-java
	@touch $@

# As the lock file says, but without what it cannot have: a tool names packages for other platforms that were never published.
node_modules/.installed: package-lock.json
	npm install --no-save --no-audit --no-fund --silent
	@touch $@

$(CLIENT)/dist/index.js: node_modules/.installed $(CLIENT)/package.json $(CLIENT)/tsconfig.json $(shell find $(CLIENT)/src gen/ts -type f)
	npm --prefix $(CLIENT) run --silent build
