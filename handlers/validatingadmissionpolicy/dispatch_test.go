package validatingadmissionpolicy

import (
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy"
)

// text is JSON text as a parameter.
type text string

// Read implements policy.Readable.
func (s text) Read(into *codec.Object) codec.Value {
	into.Reset([]byte(s))
	return into.Root()
}

// TestEvaluatedOnce evaluates a policy once for all bindings with the same parameter, and acts
// on the outcome for each of them.
func TestEvaluatedOnce(t *testing.T) {
	v, err := newValidator(&admissionregistrationv1.ValidatingAdmissionPolicy{Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		ParamKind:   &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		Validations: []admissionregistrationv1.Validation{{Expression: "params != null && object.a == params"}},
	}}, false, new(admission.Setup))
	if err != nil {
		t.Fatal(err)
	}
	review := codec.Acquire()
	defer review.Release()
	body := admissiontest.Body(codec.Create, "v1/namespaces", `{"a":"b"}`)
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	d := new(dispatch)
	d.Begin(t.Context(), review, new(policy.Cluster))
	d.Input = policy.NewInput(t.Context(), review, nil)
	defer d.End()
	p, other := &boundPolicy{Name: "p", Evaluator: v}, &boundPolicy{Name: "other", Evaluator: v}
	spent, warnings, bindings := int64(0), 0, 0
	f := func(p *boundPolicy, param *policy.Param, evaluates, warns bool) {
		t.Helper()
		bindings++
		b := &policy.Binding{Name: fmt.Sprint("b", bindings),
			Actions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}}
		if result := d.Evaluate(p, b, []*policy.Param{param}); result != nil {
			t.Fatalf("got %+v", result)
		}
		if warns {
			warnings++
		}
		if got := d.Input.Spent > spent; got != evaluates || len(review.Response.Warnings()) != warnings {
			t.Errorf("%s with %v: evaluated: %v, %d warnings, want %v, %d", p.Name, param, got, len(review.Response.Warnings()),
				evaluates, warnings)
		}
		spent = d.Input.Spent
	}
	b, c := &policy.Param{Name: "b", Object: text(`"b"`)}, &policy.Param{Name: "c", Object: text(`"c"`)}
	f(p, nil, true, true)
	f(p, nil, false, true)
	f(p, b, true, false)
	f(p, b, false, false)
	f(p, c, true, true)
	f(p, nil, true, true)
	f(other, nil, true, true)
	f(p, nil, true, true)
}
