package admission_test

import (
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

func TestRuleMatches(t *testing.T) {
	f := func(rule admission.Rule, operation codec.Operation, group, version, resource, sub string, want bool) {
		t.Helper()
		a := admission.Attributes{
			Operation:   operation,
			Resource:    codec.GroupVersionResource{Group: group, Version: version, Resource: resource},
			SubResource: sub,
		}
		if got := rule.Matches(&a); got != want {
			t.Errorf("%+v matches %+v: got %v, want %v", rule, a, got, want)
		}
	}
	of := func(operation codec.Operation, group, version string, resources ...string) admission.Rule {
		return admission.Rule{
			Operations: []codec.Operation{operation},
			Groups:     []string{group}, Versions: []string{version}, Resources: resources,
		}
	}

	pods := admission.CreateUpdate("pods")
	f(pods, codec.Create, "", "v1", "pods", "", true)
	f(pods, codec.Update, "", "v1", "pods", "", true)
	f(pods, codec.Delete, "", "v1", "pods", "", false)
	f(pods, codec.Create, "apps", "v1", "pods", "", false)
	f(pods, codec.Create, "", "v2", "pods", "", false)
	f(pods, codec.Create, "", "v1", "pod", "", false)
	f(pods, codec.Update, "", "v1", "pods", "status", false)

	f(admission.Any(), codec.Connect, "a", "b", "c", "d", true)
	f(admission.Any(), codec.Delete, "", "v1", "pods", "", true)

	// The vectors of k8s.io/apiserver pkg/admission/plugin/webhook/predicates/rules.
	f(of("*", "*", "*", "*"), codec.Create, "g", "v", "r", "", true)
	f(of("*", "*", "*", "*"), codec.Create, "g", "v", "r", "exec", false)
	f(of("*", "*", "*", "r/*"), codec.Create, "g", "v", "r", "exec", true)
	f(of("*", "*", "*", "r/*"), codec.Create, "g", "v", "r", "", true)
	f(of("*", "*", "*", "r/*"), codec.Create, "g", "v", "other", "exec", false)
	f(of("*", "*", "*", "*/exec"), codec.Create, "g", "v", "r", "exec", true)
	f(of("*", "*", "*", "*/exec"), codec.Create, "g", "v", "r", "", false)
	f(of("*", "*", "*", "a", "r/exec"), codec.Create, "g", "v", "r", "exec", true)
	f(of("*", "g", "*", "r"), codec.Create, "G", "v", "r", "", false)
	f(of(codec.Create, "*", "*", "r"), codec.Update, "g", "v", "r", "", false)
}
