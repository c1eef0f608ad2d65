package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
)

// expressionsAtOnce is how many reviews are sent at once whose expressions take much memory or time.
const expressionsAtOnce = 16

// expressionPolicy has expressions that take much memory or time for the objects of the attacks. It
// does not match others.
const expressionPolicy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: expressions.static.k8s.io}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["soak.example.com"], apiVersions: ["*"], operations: ["*"], resources: [soaks]}
  validations:
  - expression: object.list.map(x, object.text.replace('a', object.text)).size() >= 0
  - expression: object.list.all(x, !(x in object.among))
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: expressions.static.k8s.io}
spec: {policyName: expressions.static.k8s.io, validationActions: [Deny]}
`

// memoryExpressions make gigabytes of an object of 8 KiB, each in another way. For each there is a policy for a
// resource of its own.
var memoryExpressions = []string{
	"object.list.map(x, '%s%s%s%s'.format([object.text, object.text, object.text, object.list])).size() > 0",
	"object.list.map(x, object.list.map(y, object.list + [x])).size() > 0",
	"object.list.map(x, object.list.map(y, object.text.split(''))).size() > 0",
	"object.list.map(x, object.list.map(y, object.text + x + y)).size() > 0",
	"object.list.map(x, object.list.map(y, semver('1.0.0-' + object.text))).size() > 0",
	"object.list.map(x, object.list.map(y, url('https://a/?' + object.text).getQuery())).size() > 0",
	"object.list.map(x, object.list.map(y, bytes(object.text))).size() > 0",
}

// memoryPolicies are the policies of memoryExpressions.
func memoryPolicies() []byte {
	var b bytes.Buffer
	for i, expression := range memoryExpressions {
		fmt.Fprintf(&b, `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: memory-%[1]d.static.k8s.io}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["soak.example.com"], apiVersions: ["*"], operations: ["*"], resources: [memory%[1]d]}
  validations:
  - expression: %[2]q
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: memory-%[1]d.static.k8s.io}
spec: {policyName: memory-%[1]d.static.k8s.io, validationActions: [Deny]}
---
`, i, expression)
	}
	return b.Bytes()
}

// patchPolicy makes gigabytes of values of patches.
const patchPolicy = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: patches.static.k8s.io}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: ["soak.example.com"], apiVersions: ["*"], operations: ["*"], resources: [patched]}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        object.list.map(x, JSONPatch{op: "add", path: "/made" + x, value: object.list.map(y, object.text)})
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: patches.static.k8s.io}
spec: {policyName: patches.static.k8s.io}
`

// expressionReview is a review of a resource that policies with such expressions select, with a text and two
// lists of so many bytes and elements.
func expressionReview(resource string, text, list, among int) []byte {
	numbers := func(n int, prefix string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%s%07d"`, prefix, i)
		}
		return "[" + strings.TrimPrefix(b.String(), ",") + "]"
	}
	return soakReview(resource, "mallory", fmt.Sprintf(`"text":%q,"list":%s,"among":%s`, strings.Repeat("a", text), numbers(list, "l"),
		numbers(among, "m")))
}

// soakReview is a review of an object with a resource of the soak, in a namespace, with fields.
func soakReview(resource, namespace, fields string) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE",`+
		`"name":"x","namespace":%[2]q,"kind":{"group":"soak.example.com","version":"v1","kind":"Soak"},`+
		`"resource":{"group":"soak.example.com","version":"v1","resource":%[1]q},"userInfo":{"username":%[2]q},`+
		`"object":{"apiVersion":"soak.example.com/v1","kind":"Soak","metadata":{"name":"x","namespace":%[2]q},%[3]s}}}`,
		resource, namespace, fields)
}

// expressionMemory sends objects of 8 KiB of which an expression would make gigabytes.
func (a *attacks) expressionMemory(ctx context.Context, from string, random *rand.Rand) int {
	resource, endpoint := "soaks", "/validate"
	switch i := random.IntN(len(memoryExpressions) + 2); {
	case i < len(memoryExpressions):
		resource = fmt.Sprintf("memory%d", i)
	case i == len(memoryExpressions):
		resource, endpoint = "patched", "/mutate"
	}
	return a.expressions(ctx, from, endpoint, expressionReview(resource, 2<<10, 500, 0))
}

// expressionTime sends objects of 200 KiB in which an expression looks for seconds.
func (a *attacks) expressionTime(ctx context.Context, from string, _ *rand.Rand) int {
	return a.expressions(ctx, from, "/validate", expressionReview("soaks", 0, 3000, 14_000))
}

// expressions sends a review many times at once. It returns the highest status, 0 if one has no
// answer.
func (a *attacks) expressions(ctx context.Context, from, endpoint string, review []byte) int {
	return a.many(expressionsAtOnce, func() int { return a.postTo(ctx, from, endpoint, token, review) })
}
