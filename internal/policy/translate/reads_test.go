package translate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// TestReads translates policies that read other objects.
func TestReads(t *testing.T) {
	f := func(kind, expression, want, wantExpression, problem string) {
		t.Helper()
		document := celPolicy(kind, fmt.Sprintf("%s  validations: [{expression: %q}]\n", noAuto, expression))
		result := translate.Translate(split(t, document), translate.Options{Reads: true})
		var problems, reads, got string
		for _, p := range result.Problems {
			problems += p.Error()
		}
		for _, p := range result.Policies {
			reads, got = fmt.Sprint(p.Reads), p.Validating.Spec.Validations[0].Expression
		}
		if reads != want || got != wantExpression || problem == "" && problems != "" || !strings.Contains(problems, problem) {
			t.Errorf("%s:\ngot  %s %s %s\nwant %s %s %s", expression, reads, got, problems, want, wantExpression, problem)
		}
	}
	same := func(expression, want string) { t.Helper(); f("ValidatingPolicy", expression, want, expression, "") }
	same("resource.Get('v1', 'configmaps', object.metadata.namespace, variables.name) != null", "[{v1 configmaps  }]")
	same(`resource.get("v1", "configmaps", object.a, "limits") != null`, "[{v1 configmaps  limits}]")
	same("resource.List('apps/v1', 'deployments', 'shop').items == []", "[{apps/v1 deployments shop }]")
	same("resource.list ( 'v1', 'pods', f(object.a, [1, 2]), {'a': ')'} ).items == []", "[{v1 pods  }]")
	same("resource.List('v1', 'pods', '') == resource.List('v1', 'pods', '') && resource.List('v1', 'nodes', '') != null",
		"[{v1 pods  } {v1 nodes  }]")
	same("'resource.List(a)' == ''", "[]")
	same("object.resource.List(1) == ''", "[]")
	f("NamespacedValidatingPolicy", "resource.List('v1', 'pods').items == resource.List('v1', 'pods', {'a': 'b'}).items",
		"[{v1 pods team }]",
		"resource.List('v1', 'pods', 'team').items == resource.List('v1', 'pods', 'team', {'a': 'b'}).items", "")
	f("NamespacedValidatingPolicy", "resource.Get('v1', 'pods', object.a) == null", "[{v1 pods team }]",
		"resource.Get('v1', 'pods', 'team', object.a) == null", "")
	refused := func(expression string) {
		t.Helper()
		f("ValidatingPolicy", expression, "", "",
			"spec.validations[0].expression: apiVersion and resource of resource.Get and resource.List must be texts")
	}
	refused("resource.List(object.apiVersion, 'pods', '') == null")
	refused("resource.List('v1', variables.what, '') == null")
	refused("resource.Get('v1', 'pods/status', 'a', object.b) == null")
	refused("resource.Get('a/b/c', 'pods', 'a', object.b) == null")
	refused("resource.Get(resource.ToGVR('v1', 'Pod'), 'a', 'b') == null")
	f("ValidatingPolicy", "resource.List('v1', 'pods', '') == resource.Post('v1', 'pods', {})", "", "",
		"the function resource.Post of Kyverno has no")
	many := "true"
	for i := range 17 {
		many += fmt.Sprintf(" && resource.List('v1', 'pods', 'n%d') != null", i)
	}
	f("ValidatingPolicy", many, "", "", "it reads more than 16 different")
	same("true"+strings.Repeat(" && resource.List('v1', 'pods', '') != null", 64), "[{v1 pods  }]")
	f("ValidatingPolicy", "true"+strings.Repeat(" && resource.List('v1', 'pods', '') != null", 65), "", "",
		"it may call resource.Get and resource.List at most 64 times")
	document := celPolicy("ValidatingPolicy",
		noAuto+"  validations: [{expression: \"resource.Get('v1', 'pods', object.a, 'a') != null\"}]\n")
	const refusal = "has no translation: expressions of Kubernetes read no"
	if _, problems := translated(t, document, translate.Options{}); !strings.Contains(problems, refusal) {
		t.Errorf("got %s", problems)
	}
}
