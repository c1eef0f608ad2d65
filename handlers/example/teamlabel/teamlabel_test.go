package teamlabel

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

func TestValidate(t *testing.T) {
	team := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Team", "metadata": map[string]any{"name": "red"},
	}}
	chain := handlertest.MustChain(t, Plugin(), "", team)
	f := func(labels string, want handlers.Outcome) {
		t.Helper()
		body := handlertest.Body(codec.Create, "v1/pods", `{"metadata":{"labels":`+labels+`}}`)
		handlertest.CheckOutcome(t, chain, handlers.Validate, want, body)
	}
	f(`{"team":"red"}`, handlers.OutcomeAllowed)
	f(`{"team":"blue"}`, handlers.OutcomeDenied)
	f(`{"team":""}`, handlers.OutcomeDenied)
	f(`null`, handlers.OutcomeDenied)
}
