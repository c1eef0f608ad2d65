package policies

import (
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// typed returns a policy that is evaluated on Gadgets, in lines of their own.
func typed(name, expression string) string {
	return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: " + name +
		"}\nspec:\n  matchConstraints:\n" +
		"    resourceRules: [{apiGroups: [example.com], apiVersions: [v1], resources: [gadgets], operations: ['*']}]\n" +
		"  validations:\n  - expression: " + expression + "\n"
}

// gadgets is a CustomResourceDefinition.
const gadgets = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets}
  versions:
  - name: v1
    served: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
`

// TestFieldNotes checks policies of a kind whose CustomResourceDefinition is among the items.
func TestFieldNotes(t *testing.T) {
	t.Chdir(t.TempDir())
	both := typed("a", "object.spec.size > 1") + "---\n" + typed("b", "object.spec.sise > 1")
	servertest.WriteFile(t, "p.yaml", both)
	const note = `p.yaml:17: ValidatingAdmissionPolicy "b": spec.validations[0].expression: ` +
		"object.spec.sise: no such field, did you mean size?"
	var all AllFieldNotes
	f := func(apply bool, definitions string, want ...string) {
		t.Helper()
		items := manifest.Parse("p.yaml", []byte(both))
		s := new(Set)
		s.Add(items)
		s.Enable()
		s.UseParams(slices.Concat(items, parse(definitions)), "default")
		if apply {
			s.Apply(make(map[string]admission.Enabled), nil, []string{"ValidatingAdmissionPolicy"})
		}
		all.Add(t.Context(), s)
		var got []string
		for _, n := range s.FieldNotes(t.Context()) {
			text, _, _ := strings.Cut(n.String(), " cannot be read: ")
			got = append(got, text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	f(true, gadgets, note)
	f(true, gadgets, note)
	f(true, configMap("c", "", ""))
	f(false, gadgets) // the expressions may not compile
	const unread = ": its types are not checked: the schema of example.com/v1, Kind=Gadget"
	f(true, strings.Replace(gadgets, "type: integer", "type: 7", 1),
		`p.yaml:1: ValidatingAdmissionPolicy "a"`+unread, `p.yaml:10: ValidatingAdmissionPolicy "b"`+unread)
	// Neither policy has a binding.
	if got := all.Sorted(); len(got) != 5 || got[4].String() != note || !strings.Contains(got[2].Text, `"b" has no binding`) {
		t.Errorf("got %v, want each note once, by file and line", got)
	}
}
