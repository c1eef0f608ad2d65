package validatingadmissionpolicy

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
)

// TestOutcomeOwnsItsMemory has a message and an annotation that are read from the object.
func TestOutcomeOwnsItsMemory(t *testing.T) {
	const name = "string(object.metadata.name)"
	v, err := newValidator(&admissionregistrationv1.ValidatingAdmissionPolicy{Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		Validations:      []admissionregistrationv1.Validation{{Expression: "false", MessageExpression: name}},
		AuditAnnotations: []admissionregistrationv1.AuditAnnotation{{Key: "a", ValueExpression: name}},
	}}, false, new(admission.Setup))
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range []string{"a-pod", `\u0061-pod`} {
		admissiontest.CheckOwned(t, admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"`+pod+`"}}`),
			func(review *codec.Review) any {
				in := cel.NewInput(t.Context(), review)
				defer in.Release()
				o := v.validate(in)
				if len(o.decisions) != 1 || o.decisions[0].message != "a-pod" || len(o.audited) != 1 || o.audited[0].value != "a-pod" {
					t.Errorf("got %+v, want a denial and an annotation with the name", o)
				}
				return &o
			})
	}
}
