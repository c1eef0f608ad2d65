package validatingadmissionpolicy

import (
	"context"
	"fmt"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// endsAfter is a context that ends after this number of checks.
type endsAfter struct {
	context.Context
	left int
}

func (c *endsAfter) Err() error {
	if c.left--; c.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// TestManyParameters ends the context between two parameters: users may create any number of
// them, and each is evaluated for each binding.
func TestManyParameters(t *testing.T) {
	const many, looks = 1000, 100
	var objects []admission.ParamObject
	for i := range many {
		objects = append(objects, paramOf("default", fmt.Sprint("param", i), "a", "b"))
	}
	policy := documents{
		policy: `{"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},` + everything +
			`,"validations":[{"expression":"params.metadata.name == ''"}]}`,
		bindings: map[string]string{"b": `"validationActions":["Warn"],"paramRef":{"selector":{},"parameterNotFoundAction":"Deny"}`},
		params:   []admission.ParamKind{{APIVersion: "v1", Kind: "ConfigMap", Namespaced: true, Objects: objects}},
	}
	chain := policy.chain(t)
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":` + requestIn("default") +
		`}`)); err != nil {
		t.Fatal(err)
	}
	ctx := &endsAfter{t.Context(), looks}
	if outcome, err := chain.Review(ctx, review, admission.Validate); err == nil {
		t.Errorf("got %v, want it to end", outcome)
	}
}
