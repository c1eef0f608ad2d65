package validatingadmissionpolicy

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

// BenchmarkValidate has the recorded Pod validated by ten policies, from the body of
// the review to the result.
func BenchmarkValidate(b *testing.B) {
	var manifests []admission.File
	for i, expression := range [...]string{
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
	} {
		manifests = append(manifests, admission.File{Name: fmt.Sprintf("%d.yaml", i), Content: fmt.Appendf(nil, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p%d.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: %q}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b%[1]d.static.k8s.io}
spec: {policyName: p%[1]d.static.k8s.io, validationActions: [Deny]}
`, i, expression)})
	}
	body := corpus.MustRead("pods-create-v1-1.json")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	handler := admissiontest.ManifestsHandler(b, Plugin(), manifests, namespace)
	b.ReportAllocs()
	for b.Loop() {
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
