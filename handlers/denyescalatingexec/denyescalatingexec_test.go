package denyescalatingexec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"))
}

// BenchmarkValidate excludes the time of the API server.
func BenchmarkValidate(b *testing.B) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-8d7c59b89-4gqkq"}}
	chain := admissiontest.MustChain(b, Plugin(), "", pod)
	admissiontest.Benchmark(b, chain, admission.Validate, admission.OutcomeAllowed, corpus.MustRead("pods-exec-connect-v1-1.json"))
}
