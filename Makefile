SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# A fuzz target runs this long in "make fuzz".
FUZZTIME ?= 1m

# Tools are pinned in modules of their own, apart from what users import. The
# linters and govulncheck cannot agree on the versions of what they share.
LINT := go tool -modfile=tools/go.mod
VULN := go tool -modfile=tools/vuln/go.mod
DEPLOY := go tool -modfile=tools/deploy/go.mod

.PHONY: help
help: ## show the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: build
build: ## build bin/fastadmit
	CGO_ENABLED=0 go build -trimpath -o bin/fastadmit ./cmd/fastadmit

.PHONY: demo
demo: build ## replay recordings of a real kube-apiserver over HTTPS and show the decisions
	go run ./bench/demo -binary bin/fastadmit

.PHONY: test
test: build ## prove everything that needs only Go
	bin/fastadmit test deploy/chart/policies
	go test -shuffle=on ./...
	@# What several goroutines run: packages that import sync, and all plugins at once.
	go test -race -short -shuffle=on $$(go list -f '{{.ImportPath}} {{.Imports}} {{.TestImports}} {{.XTestImports}}' ./... | \
		grep -E '[[ ]sync[] /]|/handlers/plugins ' | cut -d' ' -f1)
	go test -short -tags poison ./...

.PHONY: test-arm64
test-arm64: ## run the short tests of codec, diff and the plugins as arm64, emulated by QEMU
	@command -v qemu-aarch64 >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update && apt-get install -y --no-install-recommends qemu-user; } >&2
	GOARCH=arm64 CGO_ENABLED=0 go test -short -exec qemu-aarch64 ./codec ./diff ./handlers/...

.PHONY: check
check: ## format, vet, linters, vulnerabilities, conventions
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt differs: $$unformatted"; exit 1; fi
	go vet ./...
	go mod tidy -diff
	$(LINT) staticcheck ./...
	$(LINT) golangci-lint run ./...
	@# The modules beside this one. Vet and staticcheck are among the linters.
	@# Those of e2e with the settings of e2e/run: what is compiled serves both.
	@linter=$$($(LINT) -n golangci-lint); lint() { echo "golangci-lint in $$1"; (cd "$$1" && "$$linter" run ./...); }; \
	lint deploy; lint bench/compare; lint tools/release; lint adapters/controllerruntime; lint adapters/controllerruntime/clusterapi; \
	export CGO_ENABLED=0 GOFLAGS="$${GOFLAGS:-} -trimpath"; lint e2e; lint handlers/handlertest/envtest; for module in e2e/removed/*; do lint $$module; done
	@# govulncheck exits with 3 for vulnerabilities, with 1 where it cannot reach its database.
	$(VULN) govulncheck ./... || [ $$? -ne 3 ]
	@# What make release builds: code for one platform alone breaks it.
	for platform in linux/arm64 darwin/arm64 windows/amd64; do \
		CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} go build -trimpath -o /dev/null ./cmd/fastadmit; \
	done
	go test -run Conventions .

.PHONY: docs
docs: ## write what is generated in documents anew
	go test -run Conventions . -update

.PHONY: e2e
e2e: chart ## real kube-apiserver and etcd, which it builds: plugins against Kubernetes' own, the wire, certificates, losses, the chart
	e2e/run

.PHONY: e2e-full
e2e-full: chart e2e-node ## the same with ten times as many generated cases; writes the tables of e2e/README.md
	FASTADMIT_E2E_FULL=1 e2e/run

# What a node is made of, beside what make e2e-node builds.
NODE_PACKAGES := runc containernetworking-plugins nftables conntrack iproute2 buildah

.PHONY: e2e-node
e2e-node: build ## a real cluster of one machine, with kubelet and containerd: what is lost when what happens on machines happens (Linux, root)
	@command -v runc nft conntrack ip buildah >/dev/null || { apt-get update && apt-get install -y --no-install-recommends $(NODE_PACKAGES); } >&2
	@$(DEPLOY) -n helm >/dev/null # tests have no time to build tools
	e2e/run node

.PHONY: adapters
adapters: ## test the adapter for controller-runtime, also with the webhooks of Cluster API
	@# Vet is among the linters of make check.
	for module in adapters/controllerruntime adapters/controllerruntime/clusterapi; do \
		(cd "$$module" && go mod tidy -diff && go test -vet=off ./... && go test -vet=off -short -tags poison ./...); \
	done

.PHONY: chart
chart: build ## lint, render and validate the chart and the kustomization, test alerts and dashboard
	@# Which builds the image. Without it, its test is skipped.
	@command -v buildah >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update && apt-get install -y --no-install-recommends buildah; } >&2 || true
	@# Tests have no time to build tools.
	for tool in helm kubeconform kustomize promtool prometheus; do $(DEPLOY) -n $$tool; done
	cd deploy && go mod tidy -diff && go vet ./... && go test ./...
	cd tools/release && go mod tidy -diff && go test ./...

# What builds an image, and what it is called.
BUILDER ?= $(firstword $(shell command -v buildah podman docker))
IMAGE ?= fastadmit:0.0.0

.PHONY: image
image: build ## build IMAGE of bin/fastadmit and nothing else, with buildah, podman or docker
	$(BUILDER) build -f deploy/Dockerfile -t $(IMAGE) .

# What "make release" makes in dist/VERSION, and who signs it: KEY is a file with the
# secret key of minisign, its password is in MINISIGN_PASSWORD.
VERSION ?=
KEY ?=
REGISTRY ?= ghcr.io/fastadmit

.PHONY: release
release: ## make all of release VERSION: binaries, image, chart, SBOMs, provenance, checksums, signed if there is a KEY
	go -C tools/release build -o ../../bin/release .
	bin/release -version "$(VERSION)" -registry "$(REGISTRY)" -key "$(KEY)"

.PHONY: publish
publish: ## push image and chart of release VERSION, which was made, to REGISTRY
	go -C tools/release build -o ../../bin/release .
	bin/release publish -version "$(VERSION)" -registry "$(REGISTRY)"

# The packages whose tests "make mutation" tests, and its flags: -sample=50 runs 50
# mutants of each package.
PACKAGES ?= ./codec ./diff ./handlers ./handlers/...
MUTATION ?=

.PHONY: mutation
mutation: ## change the code of PACKAGES in one place after the other, and show what no test notices
	go -C tools build -o ../bin/mutation ./mutation
	bin/mutation -with ./handlers/plugins $(MUTATION) $(PACKAGES)

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME
	@go list ./... | while read -r package; do \
		for target in $$(go test -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$package"; \
		done; \
	done

# How long "make soak" lasts.
SOAKTIME ?= 1h

.PHONY: soak
soak: build ## good load and attacks for SOAKTIME in the memory of the chart's pods: nothing wrong, lost or kept (Linux, root)
	go run ./bench/soak -duration $(SOAKTIME)

.PHONY: bench
bench: ## measure codec, diff and the plugins
	go test -run '^$$' -bench . -benchmem -count 5 ./codec ./diff ./handlers/... ./cmd/...

.PHONY: worst
worst: ## print what each plugin takes for reviews with 10,000 and 40,000 of each thing; make test compares 2,500 and 10,000
	go test -run TestWorst -v -count 1 -timeout 30m ./handlers/plugins -worst 10000

.PHONY: compare
compare: ## measure beside other webhooks and the transport alone; COMPAREFLAGS=-write updates tables
	cd bench/compare && go vet ./... && go test -short ./... && go run . $(COMPAREFLAGS)

.PHONY: compare-in-tree
compare-in-tree: ## measure what a policy costs kube-apiserver, in-tree and through fastadmit; builds what make e2e does
	GOFLAGS=-v FASTADMIT_COST=500 e2e/run intree

.PHONY: bench-pprof
bench-pprof: ## fail if a request allocates, or takes more instructions or processor time than bench/compare/budget allows
	cd bench/compare && go run ./budget $(BUDGETFLAGS)

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
