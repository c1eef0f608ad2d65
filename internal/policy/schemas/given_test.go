package schemas

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/fastadmit/fastadmit/internal/discovery"
)

// gadgets is a CustomResourceDefinition whose version v1 has a schema.
const gadgets = `{"spec":{"group":"example.com","names":{"kind":"Gadget","plural":"gadgets"},"versions":[
	{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","properties":{"metadata":{"type":"object"},
		"spec":{"type":"object","properties":{"parts":{"type":"array","items":{"type":"object","properties":{
			"name":{"type":"string"},"size":{"x-kubernetes-int-or-string":true}}}},
		"when":{"type":"string","format":"date-time"},"ratio":{"type":"number"},
		"any":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
		"more":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"a":{"type":"string"}}},
		"template":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}}}}},
	{"name":"v2"},{"name":"v3","served":false},
	{"name":"v4","schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// given returns the schemas of built-in kinds and of a CustomResourceDefinition.
func given(t *testing.T, definition string) *Given {
	t.Helper()
	table := discovery.NewTable(nil)
	if err := table.AddCRD([]byte(definition)); err != nil {
		t.Fatal(err)
	}
	return NewGiven(table, [][]byte{[]byte("x"), []byte(definition), []byte(`{"spec":{"group":"example.com","names":{"kind":"Gadget"}}}`)})
}

// typeAt returns the name of the type of a field, with "*" for elements; "" if there is none.
func typeAt(of *apiservercel.DeclType, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		switch {
		case of == nil:
			return ""
		case name == "*":
			of = of.ElemType
		case of.Fields[name] == nil:
			return ""
		default:
			of = of.Fields[name].Type
		}
	}
	return of.TypeName()
}

// TestGiven has types of fields of built-in kinds and of custom ones.
func TestGiven(t *testing.T) {
	g := given(t, gadgets)
	f := func(apiVersion, kind, path, want string) {
		t.Helper()
		of, err := g.DeclType(t.Context(), schema.FromAPIVersionAndKind(apiVersion, kind), kind+"0")
		got := "nothing"
		if of != nil {
			got = typeAt(of, path)
		}
		if err != nil || got != want {
			t.Errorf("%s of %s %s: got %q, %v, want %q", path, apiVersion, kind, got, err, want)
		}
	}
	f("apps/v1", "Deployment", "spec.replicas", "int")
	f("apps/v1", "Deployment", "spec.replica", "")
	f("apps/v1", "Deployment", "spec", "Deployment0.spec")
	f("apps/v1", "Deployment", "spec.strategy.rollingUpdate.maxSurge", "dyn")
	f("apps/v1", "Deployment", "metadata.creationTimestamp", "timestamp")
	f("apps/v1", "Deployment", "metadata.labels.*", "string")
	f("v1", "Pod", "spec.containers.*.resources.limits.*", "dyn")
	f("v1", "Pod", "spec.containers.*.securityContext.privileged", "bool")
	f("v1", "Secret", "data.*", "bytes")
	f("apps/v1", "ControllerRevision", "data", "dyn")
	f("apps/v1", "Pod", "spec", "nothing")
	f("example.com/v1", "Gadget", "spec.parts.*.name", "string")
	f("example.com/v1", "Gadget", "spec.parts.*.size", "dyn")
	f("example.com/v1", "Gadget", "spec.when", "timestamp")
	f("example.com/v1", "Gadget", "spec.ratio", "double")
	f("example.com/v1", "Gadget", "spec.any", "dyn")
	f("example.com/v1", "Gadget", "spec.more.a", "string")
	f("example.com/v1", "Gadget", "spec.more.b", "")
	f("example.com/v1", "Gadget", "spec.template.metadata.labels.*", "string")
	f("example.com/v1", "Gadget", "metadata.annotations.*", "string")
	f("example.com/v1", "Gadget", "metadata.ownerReferences.*.uid", "string")
	f("example.com/v1", "Gadget", "kind", "string")
	f("example.com/v2", "Gadget", "spec", "nothing")
	f("example.com/v4", "Gadget", "spec", "nothing")
	versions, err := g.Versions(t.Context())
	if err != nil || !slices.Contains(versions, schema.GroupVersion{Version: "v1"}) ||
		!slices.Contains(versions, schema.GroupVersion{Group: "example.com", Version: "v1"}) ||
		slices.Contains(versions, schema.GroupVersion{Group: "example.com", Version: "v3"}) {
		t.Errorf("got the versions %v, %v", versions, err)
	}
	list, err := g.Resources(t.Context(), schema.GroupVersion{Group: "example.com", Version: "v1"})
	if err != nil || list == nil || len(list.APIResources) != 1 ||
		list.APIResources[0].Name != "gadgets" || list.APIResources[0].Kind != "Gadget" {
		t.Errorf("got the resources %v, %v", list, err)
	}
	if list, err = g.Resources(t.Context(), schema.GroupVersion{Group: "example.com", Version: "v3"}); list != nil || err != nil {
		t.Errorf("got the resources %v, %v of a version that is not served", list, err)
	}
}

// TestGivenBounds has a schema that is too deep, and definitions that are too long or not a schema.
func TestGivenBounds(t *testing.T) {
	version := func(schema, more string) string {
		return fmt.Sprintf(`{"spec":{"group":"example.com","names":{"kind":"Gadget","plural":"gadgets"},"versions":[{"name":"v1",`+
			`"schema":{"openAPIV3Schema":%s}}]}%s}`, schema, more)
	}
	gadget := schema.FromAPIVersionAndKind("example.com/v1", "Gadget")
	const levels = 2 * schemaDepthMax
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, levels) + `{"type":"string"}` + strings.Repeat("}}", levels)
	of, err := given(t, version(deep, "")).DeclType(t.Context(), gadget, "Gadget0")
	if err != nil {
		t.Fatal(err)
	}
	if got := typeAt(of, strings.Repeat("a.", schemaDepthMax-1)+"a"); got != "dyn" {
		t.Errorf("got the type %q at the greatest depth, want dyn", got)
	}
	for _, test := range [][2]string{
		{version("{}", `,"more":"`+strings.Repeat("a", definitionBytesMax)+`"`), "the CustomResourceDefinition has "},
		{version(`{"type":7}`, ""), "the schema of example.com/v1, Kind=Gadget cannot be read: "},
	} {
		of, err := given(t, test[0]).DeclType(t.Context(), gadget, "Gadget0")
		if of != nil || err == nil || !strings.Contains(err.Error(), test[1]) {
			t.Errorf("got %v, %v, want %s", of, err, test[1])
		}
	}
}
