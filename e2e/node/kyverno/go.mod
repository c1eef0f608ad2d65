// A module of its own: the CustomResourceDefinitions of Kyverno, and nothing but their version. Kyverno
// itself requires the same.
module github.com/fastadmit/fastadmit/e2e/node/kyverno

go 1.26.4

tool github.com/kyverno/api/api/policies.kyverno.io

require github.com/kyverno/api v0.0.1-alpha.3.0.20260723090831-fb2785727f98 // indirect
