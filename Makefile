SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# One setting for all that is compiled, the one of releases: what is compiled once then serves
# all targets and modules. There is no DWARF, which takes half of the time of linking some
# 300 test binaries, and a fifteenth of that of compiling. The tags are Prometheus', which otherwise has the clients of all clouds.
export CGO_ENABLED := 0
export GOFLAGS := $(GOFLAGS) -trimpath -ldflags=-w -gcflags=all=-dwarf=false -tags=remove_all_sd,enable_kubernetes_sd

# How long "make fuzz" runs each fuzz target.
FUZZTIME ?= 1m

# Generated cases come from a fixed seed, those of fuzz and e2e-full from a fresh one, which they
# print; fuzz shuffles the tests, too. FASTADMIT_SEED=<seed> in front of any target repeats its run.
FASTADMIT_SEED ?= $(shell sed -n 's/^const Fixed = //p' internal/seed/seed.go)
fuzz e2e-full: FASTADMIT_SEED := $(if $(findstring file,$(origin FASTADMIT_SEED)),$(shell echo $$((RANDOM << 30 | RANDOM << 15 | RANDOM))),$(FASTADMIT_SEED))
export FASTADMIT_SEED

# The tools have go.mod files of their own, so that users of the packages do not get their
# dependencies. They are built to bin/tools, because "go tool" ignores GOFLAGS: it would compile again what
# others have compiled, and Prometheus with the clients of clouds.
tools = go build -modfile=tools/$(1)go.mod -o bin/tools/ tool

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: build
build: ## build bin/fastadmit
	go build -o bin/fastadmit ./cmd/fastadmit

.PHONY: demo
demo: build ## replay recordings of a real kube-apiserver over HTTPS and show the decisions
	go run ./bench/demo -binary bin/fastadmit

.PHONY: suites
suites: build ## run the tests of public repositories of policies below the folder SUITES=
	go run ./internal/offline/suite/public -binary bin/fastadmit $(SUITESFLAGS) $(SUITES)

.PHONY: test
test: build ## run the unit tests: normally, with the race detector, with freed memory poisoned; those of policies without closures
	bin/fastadmit test deploy/chart/policies
	@# Many tests wait, so more packages run at once than there are processors. No flag prevents go test
	@# from caching results, so what did not change is neither linked nor run again.
	@#
	@# Package codec can poison freed memory. The race detector runs with that where several goroutines
	@# run the code: in packages that import sync, and in all plugins together. The tests of codec,
	@# diff and cel run one goroutine; those of the plugins run them in several. The other packages that
	@# link codec run with it alone. If their tests count allocations or read out of bounds, which they do not
	@# with poison, they run twice; otherwise once. Plugins that import no internal package either keep
	@# nothing between reviews, and package handlers has compared the answers of their golden cases,
	@# which it does for all plugins, with poison and without.
	@#
	@# The root package has nothing but the tests of conventions, which "make check" runs.
	packages=$$(go list ./... | grep -vx github.com/fastadmit/fastadmit); \
	racing=$$(go list -f '{{.ImportPath}} {{.Imports}} {{.TestImports}} {{.XTestImports}}' $$packages | \
		grep -E '[[ ]sync[] /]|^[^ ]*/fastadmit/handlers ' | cut -d' ' -f1 | grep -vE '/(codec|diff|cel)$$'); \
	stateless=$$(go list -f '{{.ImportPath}} {{.Imports}}' ./handlers/... | grep -v /internal/ | cut -d' ' -f1); \
	poisoned=$$(go list -test -f '{{.ImportPath}} {{.Deps}}' $$packages | sed -n 's,\.test \[.*/fastadmit/codec .*,,p' | \
		grep -vxF "$$racing" | grep -vxF "$$stateless"); \
	measuring=$$(grep -rlE '!poison|NoAllocations' --include='*_test.go' . | xargs dirname | sed 's,^[.],github.com/fastadmit/fastadmit,'); \
	once=$$(grep -vxF "$$measuring" <<<"$$poisoned"); \
	go test -vet=off -p 4 $$(grep -vxF "$$once" <<<"$$packages") && \
	go test -vet=off -p 4 -tags poison $$once && \
	CGO_ENABLED=1 go test -vet=off -p 4 -tags poison -race -short $$racing && \
	go test -vet=off -p 4 -tags poison -short $$(grep -xF "$$measuring" <<<"$$poisoned")

.PHONY: test-arm64
test-arm64: ## run the short tests of codec, diff and the plugins as arm64 under QEMU
	@command -v qemu-aarch64 >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update && apt-get install -y --no-install-recommends qemu-user; } >&2
	GOARCH=arm64 go test -short -exec qemu-aarch64 ./codec ./diff ./admission/... ./handlers/...

.PHONY: test-browser
test-browser: ## look at the pages of fastadmit in chromium, which it installs if it is missing
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update && apt-get install -y --no-install-recommends chromium; } >&2
	go test -vet=off -count 1 -run TestBrowser ./internal/server/status ./internal/offline/report

.PHONY: check
linted := . ./deploy ./bench/compare ./adapters/controllerruntime ./adapters/controllerruntime/clusterapi ./adapters/volumelabels \
	./admission/admissiontest/envtest ./e2e
# With Go's own value, a quarter of golangci-lint's work is to collect garbage.
check: export GOGC := 200
check: export GOMEMLIMIT := 5GiB
check: ## check formatting, vet, linters, vulnerabilities, conventions
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt differs: $$unformatted"; exit 1; fi
	go mod tidy -diff
	@# It runs vet and staticcheck too, so no test does.
	$(call tools,)
	@# In one run, the modules that share the versions of Kubernetes' libraries: each run would read these libraries.
	rm -f bin/go.work && GOWORK=$$PWD/bin/go.work go work init $(linted)
	GOWORK=$$PWD/bin/go.work bin/tools/golangci-lint run $(addsuffix /...,$(linted))
	@linter=$$PWD/bin/tools/golangci-lint; lint() { echo "golangci-lint in $$1"; (cd "$$1" && "$$linter" run ./...); }; \
	for module in tools tools/release; do lint $$module; done
	@# govulncheck exits with 3 if it finds vulnerabilities, and with 1 if it cannot reach its database.
	bin/tools/govulncheck ./... || [ $$? -ne 3 ]
	@# The platforms of make release: code for one platform must not break the others.
	go -C tools build -o ../bin/platforms ./platforms
	bin/platforms linux/arm64 darwin/arm64 windows/amd64
	go test -run Conventions .
	go -C tools test -vet=off ./mutation/...

.PHONY: docs
docs: ## update the generated parts of documents
	go run ./internal/docs/generate

.PHONY: kubernetes
kubernetes: ## move all modules and what is generated to VERSION of Kubernetes' libraries; CONTRIBUTING.md has the other steps
	tools/kubernetes "$(VERSION)"
	go test -vet=off ./handlers/mutatingadmissionpolicy -run TestSchema -update
	go test -vet=off ./internal/policy/patching -run TestTypes -update
	cd deploy && go test -vet=off . -run TestCRDs -update
	e2e/run review -run TestBuiltIn -update
	$(MAKE) docs

.PHONY: e2e-build
e2e-build: ## build Kubernetes, etcd and older releases of plugins for e2e, as far as they are not there
	$(call tools,deploy/)
	e2e/run build

.PHONY: e2e
e2e: ## test fastadmit with a real kube-apiserver and etcd, which it builds
	$(call tools,deploy/)
	e2e/run

.PHONY: e2e-full
e2e-full: chart e2e-node test-browser ## e2e and e2e-node with many more generated cases, of a fresh seed; updates the tables of e2e/README.md
	@echo "FASTADMIT_SEED=$(FASTADMIT_SEED)"
	@# In these modules, reading other releases of Kubernetes and its clients of the clouds takes minutes.
	$(call tools,)
	@linter=$$PWD/bin/tools/golangci-lint; for module in e2e/collector e2e/removed e2e/removed/v* e2e/released e2e/released/v*; do (cd "$$module" && "$$linter" run ./...); done
	cd adapters/volumelabels && FASTADMIT_E2E_FULL=1 go test -vet=off -count 1 -timeout 60m -run TestUpstream -v .
	FASTADMIT_E2E_FULL=1 e2e/run
	cd e2e && go test -vet=off -count 1 -timeout 60m -v ./scale -namespaces=10000 -nodes=5000 -pods=50000

# The Debian packages that a node needs.
NODE_PACKAGES := runc containernetworking-plugins nftables conntrack iproute2 buildah

.PHONY: e2e-node
e2e-node: build ## test on a real one-node cluster what is lost in upgrades, restarts and failures (Linux, root)
	@for program in runc nft conntrack ip buildah; do command -v $$program || { apt-get update && apt-get install -y --no-install-recommends $(NODE_PACKAGES); break; }; done >&2
	$(call tools,deploy/)
	e2e/run node

.PHONY: adapters
adapters: ## test the adapter for controller-runtime, also with the webhooks of Cluster API, and the clients of clouds
	for module in adapters/controllerruntime adapters/controllerruntime/clusterapi adapters/volumelabels; do \
		(cd "$$module" && go mod tidy -diff && go test -vet=off ./... && go test -vet=off -short -tags poison ./...); \
	done

.PHONY: chart
chart: build ## lint, render and validate the chart and the kustomization, test alerts and dashboard
	@# buildah builds the image. Without it, the image's test is skipped.
	@command -v buildah >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update && apt-get install -y --no-install-recommends buildah; } >&2 || true
	$(call tools,deploy/)
	cd deploy && go mod tidy -diff && go test -vet=off ./...
	cd tools/release && go mod tidy -diff && go test -vet=off ./...

# The program that builds the image, the image's name, and its platforms, with commas between them. Containers run
# Linux, also on other systems.
BUILDER ?= $(firstword $(shell command -v buildah podman docker))
IMAGE ?= fastadmit:0.0.0
PLATFORM ?= linux/$(shell go env GOARCH)
comma := ,

# buildah and podman add the images of several platforms to a list. docker makes one itself.
listed = $(and $(findstring $(comma),$(PLATFORM)),$(filter-out docker,$(notdir $(BUILDER))))

.PHONY: image
image: ## build the container image IMAGE with buildah, podman or docker, for PLATFORM, such as linux/amd64,linux/arm64
	@for platform in $(subst $(comma), ,$(PLATFORM)); do \
		[[ $$platform =~ ^linux/[a-z0-9]+$$ ]] || { echo "PLATFORM: got $$platform, want such as linux/amd64,linux/arm64"; exit 1; }; \
		echo "building fastadmit for $$platform"; \
		GOOS=linux GOARCH=$${platform#linux/} go build -o bin/image/$$platform/fastadmit ./cmd/fastadmit; \
	done
	@# A list may have images from before, and an image of this name is none.
	$(if $(listed),$(BUILDER) manifest rm $(IMAGE) >/dev/null 2>&1 || $(BUILDER) rmi $(IMAGE) >/dev/null 2>&1 || true)
	$(BUILDER) build --platform $(PLATFORM) -f deploy/Dockerfile $(if $(listed),--manifest,-t) $(IMAGE) .

# "make release" writes to dist/VERSION. KEY is the file of a minisign secret key, whose
# password is in MINISIGN_PASSWORD. COSIGN_KEY is one of cosign, with COSIGN_PASSWORD.
VERSION ?=
KEY ?=
COSIGN_KEY ?=
REGISTRY ?= ghcr.io/fastadmit

.PHONY: release
release: ## build the files of release VERSION: binaries, image, chart, SBOMs, provenance, checksums; KEY and COSIGN_KEY sign them
	$(call tools,deploy/)
	go -C tools/release build -o ../../bin/release .
	bin/release -version "$(VERSION)" -registry "$(REGISTRY)" -key "$(KEY)" -cosign-key "$(COSIGN_KEY)"

.PHONY: publish
publish: ## push the image and the chart of release VERSION, after make release, to REGISTRY
	go -C tools/release build -o ../../bin/release .
	bin/release publish -version "$(VERSION)" -registry "$(REGISTRY)"

# The packages that "make mutation" changes, and its flags: -sample=50 runs 50 mutants of
# each package.
PACKAGES ?= ./codec ./diff ./admission/... ./cluster ./internal/policy/... ./handlers/...
MUTATION ?=

.PHONY: mutation
mutation: ## change the code of PACKAGES in one place at a time, and list the changes that no test notices
	go -C tools build -o ../bin/mutation ./mutation
	bin/mutation -with ./handlers $(MUTATION) $(PACKAGES)

.PHONY: fuzz
fuzz: ## run the unit tests with a fresh seed, and each fuzz target for FUZZTIME
	@echo "FASTADMIT_SEED=$(FASTADMIT_SEED)"
	go test -vet=off -p 4 -shuffle=$(FASTADMIT_SEED) ./...
	@go list ./... | while read -r package; do \
		for target in $$(go test -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$package"; \
		done; \
	done

.PHONY: site
site: ## build the site of the documents into bin/site, and check its links
	$(call tools,)
	@linter=$$PWD/bin/tools/golangci-lint; cd tools/site && "$$linter" run ./... && go mod tidy -diff
	cd tools/site && go run .

# How long "make soak" runs.
SOAKTIME ?= 1h

.PHONY: soak
soak: build ## send good requests and attacks for SOAKTIME, with the memory limit of the chart (Linux, root)
	go run ./bench/soak -duration $(SOAKTIME)

.PHONY: bench
bench: ## run the benchmarks of codec, diff and the plugins
	go test -run '^$$' -bench . -benchmem -count 5 ./codec ./diff ./admission/... ./internal/... ./handlers/... ./cmd/...

.PHONY: worst
worst: ## print the time and memory of each plugin for reviews with 10,000 and 40,000 of each repeated field
	go test -run TestWorst -v -count 1 -timeout 30m ./handlers -worst 10000

.PHONY: compare
compare: ## compare with other webhooks and the bare transport; COMPAREFLAGS=-write updates the tables and pictures
	cd bench/compare && go vet ./... && go test -short ./... && go run . $(COMPAREFLAGS)

.PHONY: compare-cluster
compare-cluster: ## measure what policies cost kube-apiserver, in-tree and in webhooks; COMPAREFLAGS=-write updates tables and picture
	GOFLAGS=-v FASTADMIT_COST=$(if $(filter -quick,$(COMPAREFLAGS)),20,200) FASTADMIT_GROWTH=$(if $(filter -quick,$(COMPAREFLAGS)),100,10000) \
		FASTADMIT_COST_WRITE=$(filter -write,$(COMPAREFLAGS)) e2e/run intree -timeout 2h $(filter-out -write -quick,$(COMPAREFLAGS))
	$(if $(filter -write,$(COMPAREFLAGS)),cd bench/compare && go run . -tables)

.PHONY: bench-pprof
bench-pprof: ## fail if a request allocates, or exceeds the instructions or CPU time of bench/compare/budget
	cd bench/compare && go run ./budget $(BUDGETFLAGS)

.PHONY: clean
clean: ## delete what was built
	rm -rf bin
