package admission_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// TestDecodeConfig decodes configurations in YAML and JSON, valid and invalid
// ones.
func TestDecodeConfig(t *testing.T) {
	type config struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	f := func(text, want string) {
		t.Helper()
		var c config
		err := admission.DecodeConfig([]byte(text), &c, func() field.ErrorList {
			return admission.ValidateConfigType(c.APIVersion, "v1", c.Kind, "Config")
		})
		got := "none"
		if err != nil {
			got = err.Error()
		}
		if got != want || err == nil && (c != config{"v1", "Config"}) {
			t.Errorf("%s:\n got %s, %v\nwant %s", text, got, c, want)
		}
	}
	f("apiVersion: v1\nkind: Config\n", "none")
	f(`{"apiVersion":"v1","kind":"Config"}`, "none")
	f("apiVersion: v2\nkind: Config", `apiVersion: Unsupported value: "v2": supported values: "v1"`)
	f("apiVersion: v1\nkind: Other", `kind: Unsupported value: "Other": supported values: "Config"`)
	f("apiVersion: v2\nkind: Other",
		`[apiVersion: Unsupported value: "v2": supported values: "v1", kind: Unsupported value: "Other": supported values: "Config"]`)
	f("apiVersion: v1\nkind: Config\nkindd: x", `unknown field "kindd", did you mean kind?`)
	f("apiVersion: v1\nkind: [", "cannot decode configuration: yaml: line 2: did not find expected node content")
	f(`{"apiVersion":`, "cannot decode configuration: unexpected end of JSON input")
	f(`{"kind":1}`, "cannot decode configuration: json: cannot unmarshal number into Go struct field config.kind of type string")
	if err := admission.DecodeConfig([]byte("kind: a"), new(config), nil); err != nil { // there is nothing to validate
		t.Error(err)
	}
}

// TestWithOperations writes a rule as a webhook configuration has it.
func TestWithOperations(t *testing.T) {
	all, namespaced := admissionregistrationv1.AllScopes, admissionregistrationv1.NamespacedScope
	for scope, want := range map[admissionregistrationv1.ScopeType]*admissionregistrationv1.ScopeType{"": &all, namespaced: &namespaced} {
		rule := admission.Rule{Operations: []codec.Operation{codec.Create, codec.Delete}, Groups: []string{""},
			Versions: []string{"v1"}, Resources: []string{"pods"}, Scope: scope}
		got := rule.WithOperations()
		if !reflect.DeepEqual(got, admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"CREATE", "DELETE"},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
				Resources: []string{"pods"}, Scope: want},
		}) {
			t.Errorf("%q: got %v", scope, got)
		}
	}
	if reason := errors.New("no"); !errors.Is(fmt.Errorf("all: %w", &admission.EnableError{Plugin: "P", Err: reason}), reason) {
		t.Error("the reason of an EnableError is lost")
	}
}

// TestUpdatesMayBePatched tests that plugins may change the object of an update.
func TestUpdatesMayBePatched(t *testing.T) {
	_, outcome, err := run(t, mustChain(t, mutating("P", label("x"))), admission.Mutate, "pods-update-v1-1.json")
	if err != nil || outcome != admission.OutcomePatched {
		t.Errorf("got %v, %v", outcome, err)
	}
}
