package teamlabel

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func TestValidate(t *testing.T) {
	team := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Team", "metadata": map[string]any{"name": "red"},
	}}
	chain := admissiontest.MustChain(t, Plugin(), "", team)
	f := func(labels string, want admission.Outcome) {
		t.Helper()
		body := admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"labels":`+labels+`}}`)
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, body)
	}
	f(`{"team":"red"}`, admission.OutcomeAllowed)
	f(`{"team":"blue"}`, admission.OutcomeDenied)
	f(`{"team":""}`, admission.OutcomeDenied)
	f(`null`, admission.OutcomeDenied)
}
