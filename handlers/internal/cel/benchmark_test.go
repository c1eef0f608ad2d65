package cel

import (
	"testing"

	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

// BenchmarkEvaluate has four expressions evaluated on the recorded Pod, from the body
// of the review to the result.
func BenchmarkEvaluate(b *testing.B) {
	body := corpus.MustRead("pods-create-v1-1.json")
	f := func(name, expression string) {
		b.Run(name, func(b *testing.B) {
			c := NewCompiler(false)
			x := c.Compile(expression, Declarations{}, Bool)
			if x.Err != nil {
				b.Fatal(x.Err)
			}
			b.ReportAllocs()
			for b.Loop() {
				review := codec.Acquire()
				if err := review.Decode(body); err != nil {
					b.Fatal(err)
				}
				in := NewInput(b.Context(), review)
				evaluation := c.Begin(in, celconfig.RuntimeCELCostBudget)
				if _, err, fatal := evaluation.Evaluate(x); err != nil || fatal != nil {
					b.Fatal(err, fatal)
				}
				evaluation.End()
				in.Release()
				review.Release()
			}
		})
	}
	f("field", "object.spec.?hostNetwork.orValue(false) == false")
	f("label", "has(object.metadata.labels) && 'app' in object.metadata.labels")
	f("images", "object.spec.containers.all(c, c.image.startsWith('registry.example.com/') || c.image.startsWith('docker.io/'))")
	f("privileged", "object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || c.securityContext.privileged == false)")
}
