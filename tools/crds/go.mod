// What the chart's objects of others' kinds are checked with: their CRDs, which
// are files in these modules. Nothing of them is compiled, so "go mod tidy"
// would take the requirements away.
module github.com/fastadmit/fastadmit/tools/crds

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
