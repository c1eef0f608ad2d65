package validatingadmissionpolicy

import (
	"fmt"
	"strings"
	"testing"
)

// kyvernoOf returns n ValidatingPolicies of Kyverno with the expressions of policiesOf, and Kyverno's usual variants for workloads.
func kyvernoOf(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `
---
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: kyverno%d}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: %q, message: rule %[1]d}]
`, i, expressions[i%len(expressions)])
	}
	return text.String()
}

// gatekeeperOf returns n templates of Gatekeeper with the expressions of policiesOf, each with a Constraint.
func gatekeeperOf(n int) string {
	var text strings.Builder
	for i := range n {
		expression := strings.ReplaceAll(expressions[i%len(expressions)], "object.", "variables.anyObject.")
		fmt.Fprintf(&text, `
---
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: k8srule%d}
spec:
  crd: {spec: {names: {kind: K8sRule%[1]d}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    code: [{engine: K8sNativeValidation, source: {validations: [{expression: %[2]q, message: rule %[1]d}]}}]
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sRule%[1]d
metadata: {name: all}
spec: {match: {kinds: [{apiGroups: [""], kinds: [Pod]}]}, parameters: {names: [a, b]}}
`, i, expression)
	}
	return text.String()
}

// BenchmarkTranslated has ten policies of Kyverno and Gatekeeper, and ten of Kubernetes that say the same.
func BenchmarkTranslated(b *testing.B) {
	const n = len(expressions)
	f := func(name, manifest string) {
		b.Run(name, func(b *testing.B) { benchmarkValidate(b, manifest, nil) })
	}
	f("kubernetes", policiesOf(n, "pods"))
	f("kyverno", kyvernoOf(n))
	f("gatekeeper", gatekeeperOf(n))
}
