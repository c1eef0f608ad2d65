package main

import (
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

// expressionReview is a review of expressionPolicy with a text and two lists of so many
// bytes and elements.
func expressionReview(text, list, among int) []byte {
	numbers := func(n int, prefix string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%s%07d"`, prefix, i)
		}
		return "[" + strings.TrimPrefix(b.String(), ",") + "]"
	}
	return soakReview("soaks", "shop", fmt.Sprintf(`"text":%q,"list":%s,"among":%s`, strings.Repeat("a", text), numbers(list, "l"),
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
func (a *attacks) expressionMemory(ctx context.Context, from string, _ *rand.Rand) int {
	return a.expressions(ctx, from, expressionReview(2<<10, 500, 0))
}

// expressionTime sends objects of 200 KiB in which an expression looks for seconds.
func (a *attacks) expressionTime(ctx context.Context, from string, _ *rand.Rand) int {
	return a.expressions(ctx, from, expressionReview(0, 3000, 14_000))
}

// expressions sends a review many times at once. It returns the highest status, 0 if one has no
// answer.
func (a *attacks) expressions(ctx context.Context, from string, review []byte) int {
	return a.many(expressionsAtOnce, func() int { return a.postTo(ctx, from, "/validate", token, review) })
}
