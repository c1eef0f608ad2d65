package policy

import (
	"slices"
	"testing"

	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/policy/schemas"
)

// TestTypeWarnings checks policies against the schemas of built-in kinds. Those of a CustomResourceDefinition are in
// package schemas.
func TestTypeWarnings(t *testing.T) {
	types := NewTypes(schemas.NewGiven(discovery.NewTable(nil), nil))
	f := func(rules, more string, want ...string) {
		t.Helper()
		warnings, err := types.Check(t.Context(), policyWith(t, rules, more))
		var got []string
		for _, w := range warnings {
			got = append(got, w.Field+": "+w.Message)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s with %s\ngot  %q, %v\nwant %q", more, rules, got, err, want)
		}
	}
	deployments, both := ruleOf(`"apps"`, `"v1"`, `"deployments"`), ruleOf(`"apps"`, `"v1"`, `"deployments","daemonsets"`)
	const replica, first = "object.spec.replica: no such field, did you mean replicas?", "spec.validations[0].expression: "
	f(deployments, validationOf("object.spec.replicas > 1"))
	f(deployments, validationOf("object.spec.replica > 1 || object.spec.replica == 0"), first+replica)
	f(deployments, validationOf("object.metadata.naem != '' && object.nothing"),
		first+"object.metadata.naem: no such field, did you mean name?", first+"object.nothing: no such field")
	f(deployments, validationOf("object.spec.replicas == 'a'"),
		first+"1:22: found no matching overload for '_==_' applied to '(int, string)'")
	f(deployments, `"validations":[{"expression":"true","messageExpression":"string(object.spec.replica)"}]`,
		"spec.validations[0].messageExpression: "+replica)
	f(deployments, `"matchConditions":[{"name":"a","expression":"object.spec.replica > 1"}],"variables":[{"name":"a",`+
		`"expression":"object.spec.replica"}],"auditAnnotations":[{"key":"a","valueExpression":"string(object.spec.replica)"}]`,
		"spec.matchConditions[0].expression: "+replica, "spec.variables[0].expression: "+replica,
		"spec.auditAnnotations[0].valueExpression: "+replica)
	// Kinds that differ. The status of policies has the errors of each kind in validations only.
	const guarded = "object.kind == 'DaemonSet' ? object.spec.updateStrategy.type : object.spec.strategy.type"
	f(both, validationOf("("+guarded+") == ''"))
	f(both, validationOf("object.kind == 'DaemonSet' || object.spec.replica == 1"), first+replica)
	f(both, validationOf("object.spec.strategy.type != object.spec.updateStrategy.type"),
		first+"object.spec.strategy: no such field in apps/v1 DaemonSet",
		first+"object.spec.updateStrategy: no such field in apps/v1 Deployment")
	f(both, `"variables":[{"name":"a","expression":"`+guarded+`"}],`+validationOf("variables.a == ''"))
	f(both, validationOf("object.spec.templates == ''"), first+"object.spec.templates: no such field, did you mean template?")
	// What the schema does not show, and rules without kinds.
	f(ruleOf(`""`, `"v1"`, `"pods"`), validationOf("object.spec.containers.all(c, c.resources.limits.cpu == '1')"))
	f(ruleOf(`""`, `"v1"`, `"pods"`), validationOf("object.spec.containers.all(c, c.resource.limits.cpu == '1')"),
		first+"c.resource: no such field, did you mean resources?")
	for _, none := range []string{
		ruleOf(`"*"`, `"v1"`, `"deployments"`), ruleOf(`"apps"`, `"v1"`, `"*"`), ruleOf(`"example.com"`, `"v1"`, `"things"`),
	} {
		f(none, validationOf("object.spec.replica > 1"))
	}
	// Parameters, and a policy whose variables are not those of the last one.
	f(deployments, paramMaps+validationOf("params.dta.a == ''"), first+"params.dta: no such field, did you mean data?")
	f(deployments, `"variables":[{"name":"a","expression":"1"}],`+validationOf("variables.a == 1"))
	f(deployments, validationOf("variables.a == 1"), first+"variables.a: no such field")
}
