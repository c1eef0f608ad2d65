package handlers_test

import (
	"testing"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
)

func TestRuleMatches(t *testing.T) {
	f := func(rule handlers.Rule, operation codec.Operation, group, version, resource, sub string, want bool) {
		t.Helper()
		a := handlers.Attributes{
			Operation:   operation,
			Resource:    codec.GroupVersionResource{Group: group, Version: version, Resource: resource},
			SubResource: sub,
		}
		if got := rule.Matches(&a); got != want {
			t.Errorf("%+v matches %+v: got %v, want %v", rule, a, got, want)
		}
	}
	of := func(operation codec.Operation, group, version string, resources ...string) handlers.Rule {
		return handlers.Rule{
			Operations: []codec.Operation{operation},
			Groups:     []string{group}, Versions: []string{version}, Resources: resources,
		}
	}

	pods := handlers.CreateUpdate("pods")
	f(pods, codec.Create, "", "v1", "pods", "", true)
	f(pods, codec.Update, "", "v1", "pods", "", true)
	f(pods, codec.Delete, "", "v1", "pods", "", false)
	f(pods, codec.Create, "apps", "v1", "pods", "", false)
	f(pods, codec.Create, "", "v2", "pods", "", false)
	f(pods, codec.Create, "", "v1", "pod", "", false)
	f(pods, codec.Update, "", "v1", "pods", "status", false)

	f(handlers.Any(), codec.Connect, "a", "b", "c", "d", true)
	f(handlers.Any(), codec.Delete, "", "v1", "pods", "", true)

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
