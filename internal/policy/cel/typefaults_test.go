package cel

import (
	"slices"
	"strings"
	"testing"

	apiservercel "k8s.io/apiserver/pkg/cel"
)

// TestFaults compares the errors of expressions with the fields that objects have.
func TestFaults(t *testing.T) {
	text := apiservercel.StringType
	port := objectType("Thing.ports.@idx", fields{"number": apiservercel.IntType, "name": text})
	spec := objectType("Thing.spec", fields{
		"count": apiservercel.IntType, "ports": apiservercel.NewListType(port, -1), "named": apiservercel.NewMapType(text, port, -1),
	})
	checker, err := NewTypeChecker(objectType("Thing", fields{"spec": spec}),
		objectType("Given", fields{"most": apiservercel.IntType}), true, new(Texts))
	if err != nil {
		t.Fatal(err)
	}
	checker.AddVariable("known", "1")
	f := func(expression string, want ...string) {
		t.Helper()
		var got []string
		for _, fault := range checker.Faults(expression) {
			if fault.Path == "" {
				got = append(got, fault.Message)
			} else {
				got = append(got, fault.Path+" of "+strings.Join(fault.Known, ","))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", expression, got, want)
		}
	}
	const inSpec, inPort = " of count,named,ports", " of name,number"
	f("object.spec.count > params.most && variables.known == 1 && authorizer.requestResource.check('get').allowed()")
	f("object.spec.conut > 1 || oldObject.spec.port.size() > 1", "object.spec.conut"+inSpec, "oldObject.spec.port"+inSpec)
	f("object.?spec.?conut.orValue(1) > 1", "object.?spec.conut"+inSpec)
	f("object.?conut.hasValue()", "object.conut of spec")
	f("has(object.spec.conut)", "object.spec.conut"+inSpec)
	f("object.spec.ports.all(p, p.nam == '')", "p.nam"+inPort)
	f("object.spec.ports.all(p, object.spec.ports.exists(q, q.nam == p.name))", "q.nam"+inPort)
	f("object.spec.ports.all(object, object.nam == '')", "object.nam"+inPort)
	f("object.spec.named.all(p, object.spec.named[p].nam == '')", "object.spec.named[p].nam"+inPort)
	f("object.spec.named.a.nam == object.spec.ports[0].nam", "object.spec.named.a.nam"+inPort, "object.spec.ports[0].nam"+inPort)
	f("object.spec.ports.filter(p, p.name != '')[0].nam == ''", "1:45: undefined field 'nam'") // a macro is no text any more
	f("params.mots > 1 || request.nam == '' || variables.unknown == 1 || namespaceObject.spec.x", "params.mots of most",
		"request.nam of dryRun,kind,name,namespace,operation,options,requestKind,requestResource,requestSubResource,resource,"+
			"subResource,userInfo", "variables.unknown of known", "namespaceObject.spec.x of finalizers")
	f("object.spec.count == 'a'", "1:19: found no matching overload for '_==_' applied to '(int, string)'")
	f("\nobject.spec.count.x", "2:18: type 'int' does not support field selection")
	f("1 +", "1:4: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, "+
		"NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}")
	f("[?object.x]", "object.x of spec", "1:9: expected type 'optional_type(!error!)' but found '!error!'")
	checker.Reset()
	f("variables.known == 1", "variables.known of ")
	checker = new(TypeChecker) // which panics
	f("true", "cannot compile the expression: runtime error: invalid memory address or nil pointer dereference")
}
