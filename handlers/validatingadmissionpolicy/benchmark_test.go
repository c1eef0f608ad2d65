package validatingadmissionpolicy

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

// expressions hold for the recorded Pod.
var expressions = [...]string{
	"object.spec.?hostNetwork.orValue(false) == false",
	"has(object.metadata.labels) && 'app' in object.metadata.labels",
	"object.spec.containers.all(c, c.image.startsWith('registry.example.com/') || c.image.startsWith('docker.io/'))",
	"object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || " +
		"c.securityContext.privileged == false)",
	"!has(object.spec.hostPID) || object.spec.hostPID == false",
	"!has(object.spec.hostIPC) || object.spec.hostIPC == false",
	"object.spec.containers.all(c, !c.image.endsWith(':latest'))",
	"object.spec.serviceAccountName != 'admin'",
	"request.operation == 'CREATE' || object.metadata.name == oldObject.metadata.name",
	"object.spec.containers.all(c, has(c.resources))",
}

// policiesOf returns a manifest with n policies for a resource, each with a binding.
func policiesOf(n int, resource string) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %s%d.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [%[1]s]}]}
  validations: [{expression: %[3]q}]
%s`, resource, i, expressions[i%len(expressions)], bindingOf(fmt.Sprint(resource, i), i, ""))
	}
	return text.String()
}

// bindingOf returns the i-th binding of a policy.
func bindingOf(policy string, i int, more string) string {
	return fmt.Sprintf(`
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %s-%d.static.k8s.io}
spec: {policyName: %[1]s.static.k8s.io, validationActions: [Deny]%[3]s}
`, policy, i, more)
}

// bindingsOf returns the manifest of a policy with n bindings, each for the namespaces of a team;
// three are for the one of the Pod.
func bindingsOf(n int) string {
	var text strings.Builder
	text.WriteString(policiesOf(1, "pods"))
	for i := range n {
		team := "shop"
		if i >= 3 {
			team = fmt.Sprint("team", i)
		}
		text.WriteString(bindingOf("pods0", i+1, fmt.Sprintf(`, matchResources: {namespaceSelector: {matchLabels: {team: %s}}}`, team)))
	}
	return text.String()
}

// tests are expressions about a container, or about the Pod, of policies in a library. Each has a number in it.
var tests = [...]string{
	"c.image.startsWith('registry%d.example.com/') || !c.image.contains('/')",
	"c.?securityContext.?privileged.orValue(false) || c.name == 'debug%d'",
	"has(c.env) && c.env.exists(e, e.name == 'SECRET_%d')",
	"!has(c.resources) || has(c.resources.limits) && 'example.com/%d' in c.resources.limits",
	"c.image.endsWith(':%d') || c.image.endsWith(':latest')",
	"has(object.metadata.labels) && 'example.com/team%d' in object.metadata.labels",
	"has(object.spec.nodeName) && object.spec.nodeName == 'node%d'",
	"object.metadata.?annotations['example.com/policy%d'].orValue('') == 'off'",
}

// libraryOf returns a manifest with n different policies for Pods, each with a binding. Half of them are as in the
// chart: they have the same match condition and variables, and a messageExpression. The others have one validation.
func libraryOf(n int) string {
	var text strings.Builder
	for i := range n {
		test := fmt.Sprintf(tests[i/2%len(tests)], i)
		fmt.Fprintf(&text, `
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: library%d.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
`, i)
		if i%2 == 0 {
			fmt.Fprintf(&text, `
  matchConditions:
  - {name: spec-changes, expression: "request.operation == 'CREATE' || object.spec != oldObject.spec"}
  variables:
  - {name: podSpec, expression: "object.kind == 'Pod' ? object.spec : object.spec.template.spec"}
  - {name: containers, expression: "variables.podSpec.containers + variables.podSpec.?initContainers.orValue([])"}
  - {name: wrong, expression: %q}
  validations:
  - {expression: variables.wrong.size() == 0, messageExpression: "'wrong containers: ' + variables.wrong.join(', ')"}
`, "variables.containers.filter(c, "+test+").map(c, c.name)")
		} else {
			fmt.Fprintf(&text, "  validations: [{expression: %q}]\n", "object.spec.containers.all(c, !("+test+"))")
		}
		text.WriteString(bindingOf(fmt.Sprint("library", i), i, ""))
	}
	return text.String()
}

// handlerOf returns a handler with the policies and bindings of a manifest.
func handlerOf(b *testing.B, manifest string) admission.Handler {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "shop"}}}
	return admissiontest.ManifestsHandler(b, Plugin(), []admission.File{{Name: "all.yaml", Content: []byte(manifest)}}, namespace)
}

// benchmarkValidate measures the validation of the recorded Pod, from the body of the review to the result. before is called
// before each review, and is not measured. It may be nil.
func benchmarkValidate(b *testing.B, manifest string, before func()) {
	body := corpus.MustRead("pods-create-v1-1.json")
	handler := handlerOf(b, manifest)
	b.ReportAllocs()
	for b.Loop() {
		if before != nil {
			b.StopTimer()
			before()
			b.StartTimer()
		}
		review := codec.Acquire()
		if err := review.Decode(body); err != nil {
			b.Fatal(err)
		}
		if result := handler.Validate(b.Context(), review); result.Denial != nil {
			b.Fatalf("%+v", result.Denial)
		}
		review.Release()
	}
}

// BenchmarkValidate has ten policies.
func BenchmarkValidate(b *testing.B) { benchmarkValidate(b, policiesOf(10, "pods"), nil) }

// BenchmarkScale has many policies and bindings, of which all or only a few match.
func BenchmarkScale(b *testing.B) {
	f := func(name, manifest string) {
		b.Run(name, func(b *testing.B) { benchmarkValidate(b, manifest, nil) })
	}
	for _, n := range [...]int{1, 100, 1000} {
		f(fmt.Sprint("matching=", n), policiesOf(n, "pods"))
	}
	f("other=10000", policiesOf(10_000, "services")+policiesOf(1, "pods"))
	f("bindings=3", bindingsOf(3))
	f("bindings=10000", bindingsOf(10_000))
}

// BenchmarkLibrary has different policies with equal parts.
func BenchmarkLibrary(b *testing.B) {
	for _, n := range [...]int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkValidate(b, libraryOf(n), nil) })
	}
}

// differentOf returns a manifest with n policies for Pods, each with another expression.
func differentOf(n int) string {
	const expression = `expression: "`
	parts := strings.Split(policiesOf(n, "pods"), expression)
	for i := range n {
		parts[i] += fmt.Sprintf("%sobject.kind != 'x%d' && ", expression, i)
	}
	return strings.Join(parts, "")
}

// BenchmarkDifferent has policies with an expression each. In those named cold, other work uses the processor's cache
// between two reviews, as kube-apiserver does on the same machine.
func BenchmarkDifferent(b *testing.B) {
	other := make([]byte, 96<<20)
	for _, n := range [...]int{100, 1000, 10_000} {
		manifest := differentOf(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkValidate(b, manifest, nil) })
		b.Run(fmt.Sprint(n, "/cold"), func(b *testing.B) {
			benchmarkValidate(b, manifest, func() {
				for i := 0; i < len(other); i += 64 {
					other[i]++
				}
			})
		})
	}
}

// BenchmarkStart compiles a thousand policies, each with another expression.
func BenchmarkStart(b *testing.B) {
	manifest := differentOf(1000)
	for b.Loop() {
		handlerOf(b, manifest)
	}
}

// BenchmarkParams evaluates a policy for each of many parameters of a binding.
func BenchmarkParams(b *testing.B) {
	for _, n := range [...]int{1, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var objects []admission.ParamObject
			for i := range n {
				objects = append(objects, paramOf("default", fmt.Sprintf("param%04d", i), "denied", fmt.Sprint("name", i)))
			}
			chain := documents{
				policy: `{"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},` + everything +
					`,"validations":[{"expression":"object.metadata.?name.orValue('') != params.metadata.labels.denied"}]}`,
				bindings: map[string]string{"b": `"validationActions":["Deny"],"paramRef":{"selector":{},` +
					`"parameterNotFoundAction":"Deny"}`},
				params: []admission.ParamKind{{APIVersion: "v1", Kind: "ConfigMap", Namespaced: true, Objects: objects}},
			}.chain(b)
			admissiontest.Benchmark(b, chain, admission.Validate, admission.OutcomeAllowed,
				[]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":`+requestIn("default")+`}`))
		})
	}
}
