package mutatingadmissionpolicy

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

// BenchmarkMutate measures how long a policy takes to change the recorded Pod, from the body of the review
// to the edits.
func BenchmarkMutate(b *testing.B) {
	for name, mutation := range map[string]string{
		"JSONPatch, an annotation": `{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "add", path: ` +
			`"/metadata/annotations/a", value: "x"}]'}}`,
		"ApplyConfiguration, an annotation": `{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: ` +
			`Object.metadata{annotations: {"a": "x"}}}'}}`,
		"ApplyConfiguration, all pull policies": `{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{spec: ` +
			`Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}'}}`,
	} {
		b.Run(name, func(b *testing.B) {
			manifests := []admission.File{{Name: "policy.yaml", Content: fmt.Appendf(nil, `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p.static.k8s.io}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  mutations: [%s]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: b.static.k8s.io}
spec: {policyName: p.static.k8s.io}
`, mutation)}}
			body := corpus.MustRead("pods-create-v1-1.json")
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
			handler := admissiontest.ManifestsHandler(b, Plugin(), manifests, namespace)
			b.ReportAllocs()
			for b.Loop() {
				review := codec.Acquire()
				if err := review.Decode(body); err != nil {
					b.Fatal(err)
				}
				if result := handler.Admit(b.Context(), review); result.Denial != nil || review.Object.Changes() == 0 {
					b.Fatalf("got %+v, want a patch", result.Denial)
				}
				review.Release()
			}
		})
	}
}
