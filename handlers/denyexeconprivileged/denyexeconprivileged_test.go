package denyexeconprivileged

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

func TestNoAllocations(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "")
	handlertest.NoAllocations(t, chain, handlers.Validate, handlers.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"))
}

// BenchmarkValidate leaves out what the API server takes to answer.
func BenchmarkValidate(b *testing.B) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-8d7c59b89-4gqkq"}}
	chain := handlertest.MustChain(b, Plugin(), "", pod)
	handlertest.Benchmark(b, chain, handlers.Validate, handlers.OutcomeAllowed, corpus.MustRead("pods-exec-connect-v1-1.json"))
}
