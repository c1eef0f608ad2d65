// Package growth makes what make compare and make compare-cluster measure with growing numbers of policies, bindings
// and parameters. It also keeps the results of both.
package growth

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/bench/apiserver"
)

// A Work is what there is more and more of.
type Work struct {
	Name string
	// About describes it in Markdown.
	About string
	// Sizes are the numbers that are measured.
	Sizes []int

	head []string             // documents of every size
	item func(i int) []string // documents of the i-th policy, binding or parameter
}

// The names of works.
const (
	Matching   = "matching"
	Others     = "others"
	Bindings   = "bindings"
	Parameters = "parameters"
)

// Team is the label team of the namespace in which Pods are reviewed. Only three bindings select it.
const Team = "shop"

// Namespace returns the document of a namespace in which Pods are reviewed.
func Namespace(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {team: %s}}\n", name, Team)
}

// teamBindings is how many bindings select the namespace.
const teamBindings = 3

var sizes = []int{1, 10, 100, 1_000, 10_000}

// Works returns all works. Their policies hold for the recorded Pod.
func Works() []Work {
	return []Work{
		{
			Name: Matching, About: "policies for Pods, each with another expression", Sizes: sizes,
			item: func(i int) []string { return bound(i, "pods", Expression(i)) },
		}, {
			Name: Others, About: "policies, one for Pods and all others for Services", Sizes: sizes,
			item: func(i int) []string {
				resource := "pods"
				if i > 0 {
					resource = "services"
				}
				return bound(i, resource, annotation(i))
			},
		}, {
			Name: Bindings, About: "bindings of one policy, three of which select the namespace", Sizes: sizes,
			head: []string{policy(0, "pods", annotation(0), "")},
			item: func(i int) []string {
				return []string{binding(i, 0, fmt.Sprintf(", matchResources: {namespaceSelector: {matchLabels: {team: %s}}}", TeamOf(i)))}
			},
		}, {
			Name: Parameters, About: "parameters of one binding", Sizes: []int{1, 10, 100, 1_024},
			head: []string{
				policy(0, "pods", "object.metadata.?annotations['example.com/name'].orValue('') != params.data.denied",
					"\n  paramKind: {apiVersion: v1, kind: ConfigMap}"),
				binding(0, 0, ", paramRef: {namespace: default, selector: {matchLabels: {policy: '0'}}, parameterNotFoundAction: Deny}"),
			},
			item: func(i int) []string { return []string{parameter(i)} },
		},
	}
}

// Documents returns the YAML documents of n policies, bindings or parameters. Those of fewer are the first ones.
func (w *Work) Documents(n int) []string {
	documents := append([]string(nil), w.head...)
	for i := range n {
		documents = append(documents, w.item(i)...)
	}
	return documents
}

// Manifest returns the documents in one file.
func (w *Work) Manifest(n int) []byte { return []byte(strings.Join(w.Documents(n), "---\n")) }

// AsCustomResources returns documents with policies and bindings of fastadmit's own API group.
func AsCustomResources(documents string) string {
	return strings.ReplaceAll(documents, "apiVersion: "+inTreeVersion, "apiVersion: "+apiserver.PolicyVersion)
}

// inTreeVersion is the API version of policies and bindings.
const inTreeVersion = "admissionregistration.k8s.io/v1"

// TeamOf returns the label team of the namespaces that the i-th binding selects.
func TeamOf(i int) string {
	if i < teamBindings {
		return Team
	}
	return fmt.Sprint("team-", i)
}

// expressions are of the kinds that policies mostly have. Each has a number in it, and holds for Pods that do not have
// what Violate adds.
var expressions = [...]string{
	annotated,
	"!has(object.metadata.labels) || !('example.com/policy-%d' in object.metadata.labels)",
	"object.spec.containers.all(c, !c.image.startsWith('policy-%d.example.com/'))",
	"object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || " +
		"c.securityContext.privileged == false || c.name != 'policy-%d')",
}

const annotated = "object.metadata.?annotations['example.com/policy-%d'].orValue('') != 'denied'"

// annotation returns the expression about the i-th annotation.
func annotation(i int) string { return fmt.Sprintf(annotated, i) }

// Expression returns the expression of the i-th policy for Pods.
func Expression(i int) string { return fmt.Sprintf(expressions[i%len(expressions)], i) }

// Annotations returns what the i-th expression about an annotation, and the i-th parameter, do not allow.
func Annotations(i int) map[string]string {
	return map[string]string{fmt.Sprint("example.com/policy-", i): "denied", "example.com/name": fmt.Sprint("name-", i)}
}

// Violate changes a Pod so that the i-th expression does not hold, whatever its kind.
func Violate(pod *corev1.Pod, i int) {
	name, privileged := fmt.Sprint("policy-", i), true
	pod.Annotations = Annotations(i)
	pod.Labels["example.com/"+name] = "true"
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
		Name: name, Image: name + ".example.com/image", SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
		TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullAlways,
	})
}

// bound returns a policy and its binding.
func bound(i int, resource, expression string) []string {
	return []string{policy(i, resource, expression, ""), binding(i, i, "")}
}

func policy(i int, resource, expression, more string) string {
	return fmt.Sprintf(`apiVersion: `+inTreeVersion+`
kind: ValidatingAdmissionPolicy
metadata: {name: policy-%d}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [%s]}]}
  validations: [{expression: %q}]%s
`, i, resource, expression, more)
}

func binding(i, policy int, more string) string {
	return fmt.Sprintf(`apiVersion: `+inTreeVersion+`
kind: ValidatingAdmissionPolicyBinding
metadata: {name: binding-%d}
spec: {policyName: policy-%d, validationActions: [Deny]%s}
`, i, policy, more)
}

func parameter(i int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: parameter-%d, namespace: default, labels: {policy: '0'}}
data: {denied: name-%[1]d}
`, i)
}
