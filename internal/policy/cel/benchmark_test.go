package cel

import (
	"testing"

	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

// BenchmarkDecode measures the part of BenchmarkEvaluate that decodes the body.
func BenchmarkDecode(b *testing.B) {
	body := corpus.MustRead("pods-create-v1-1.json")
	for b.Loop() {
		review := codec.Acquire()
		if err := review.Decode(body); err != nil {
			b.Fatal(err)
		}
		review.Release()
	}
}

// BenchmarkEvaluate evaluates four expressions on the recorded Pod, from the body of
// the review to the result, with closures and with the interpreter.
func BenchmarkEvaluate(b *testing.B) {
	body := corpus.MustRead("pods-create-v1-1.json")
	for name, expression := range fourExpressions {
		for _, by := range [...]string{"closures", "interpreter"} {
			b.Run(name+"/"+by, func(b *testing.B) {
				c := NewCompiler(false)
				x := c.Compile(expression, Declarations{}, Bool)
				if x.Err != nil {
					b.Fatal(x.Err)
				}
				if by == "interpreter" {
					x.closure = nil
				}
				b.ReportAllocs()
				for b.Loop() {
					evaluateAll(b, c, []*Expression{x}, body)
				}
			})
		}
	}
}

// fourExpressions are of the most frequent kinds in policies.
var fourExpressions = map[string]string{
	"field":  "object.spec.?hostNetwork.orValue(false) == false",
	"label":  "has(object.metadata.labels) && 'app' in object.metadata.labels",
	"images": "object.spec.containers.all(c, c.image.startsWith('registry.example.com/') || c.image.startsWith('docker.io/'))",
	"privileged": "object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || " +
		"c.securityContext.privileged == false)",
}

// BenchmarkFour evaluates all four, each as its own policy, with closures and with the
// interpreter.
func BenchmarkFour(b *testing.B) {
	body := corpus.MustRead("pods-create-v1-1.json")
	for _, name := range [...]string{"closures", "interpreter"} {
		b.Run(name, func(b *testing.B) {
			c := NewCompiler(false)
			var all []*Expression
			for _, expression := range fourExpressions {
				x := c.Compile(expression, Declarations{}, Bool)
				if name == "interpreter" {
					x.closure = nil
				}
				all = append(all, x)
			}
			b.ReportAllocs()
			for b.Loop() {
				evaluateAll(b, c, all, body)
			}
		})
	}
}

func evaluateAll(b testing.TB, c *Compiler, all []*Expression, body []byte) {
	review := codec.Acquire()
	if err := review.Decode(body); err != nil {
		b.Fatal(err)
	}
	in := NewInput(b.Context(), review)
	for _, x := range all {
		evaluation := c.Begin(in, celconfig.RuntimeCELCostBudget)
		if _, err, fatal := evaluation.Evaluate(x); err != nil || fatal != nil {
			b.Fatal(err, fatal)
		}
		evaluation.End()
	}
	in.Release()
	review.Release()
}
