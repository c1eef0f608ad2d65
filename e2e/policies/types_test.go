package policies

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	k8sscheme "k8s.io/client-go/kubernetes/scheme"
	definitions "k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/policy/schemas"
)

// TestTypesWithoutCluster compares the types with which commands check policies without a cluster with those of
// kube-controller-manager's type checker, for all fields of all kinds.
func TestTypesWithoutCluster(t *testing.T) {
	upstream := resolver.NewDefinitionsSchemaResolver(definitions.GetOpenAPIDefinitions, k8sscheme.Scheme)
	table := discovery.NewTable(nil)
	given := schemas.NewGiven(table, nil)
	compared := 0
	for _, version := range table.Versions() {
		for _, resource := range table.Resources(version).APIResources {
			gvk := version.WithKind(resource.Kind)
			ours, err := given.DeclType(t.Context(), gvk, "T")
			if err != nil {
				t.Fatal(err)
			}
			if ours == nil {
				if aggregated := []string{"CustomResourceDefinition", "APIService"}; !slices.Contains(aggregated, gvk.Kind) {
					t.Errorf("%s has no type", gvk)
				}
				continue
			}
			theirs, err := upstream.ResolveSchema(gvk)
			if err != nil {
				t.Errorf("%s: %v", gvk, err)
				continue
			}
			compareFields(t, gvk, gvk.Kind, ours, openapi.SchemaDeclType(theirs, true))
			compared++
		}
	}
	if t.Logf("%d kinds", compared); compared < 80 {
		t.Errorf("got %d kinds, want all of Kubernetes", compared)
	}
}

// compareFields compares the types of a field and of all below it. Upstream has none for a quantity, and an object without fields for
// any JSON: ours can be anything.
func compareFields(t *testing.T, gvk schema.GroupVersionKind, path string, ours, theirs *apiservercel.DeclType) {
	t.Helper()
	switch {
	case ours == nil:
		t.Errorf("%s: %s is missing", gvk, path)
	case ours.CelType() == apiservercel.DynType.CelType():
		if theirs != nil && theirs.CelType() != ours.CelType() && (!theirs.IsObject() || len(theirs.Fields) > 0) {
			t.Errorf("%s: got any type for %s, want %s", gvk, path, theirs.CelType())
		}
	case ours.IsList(), ours.IsMap():
		var element *apiservercel.DeclType
		if theirs != nil {
			element = theirs.ElemType
		}
		if theirs != nil && (ours.IsMap() != theirs.IsMap() || element == nil) {
			t.Errorf("%s: got %s for %s, want %s", gvk, ours.CelType(), path, theirs.CelType())
			return
		}
		compareFields(t, gvk, path+"[*]", ours.ElemType, element)
	case theirs == nil:
		t.Errorf("%s: got %s for %s, want nothing", gvk, ours.CelType(), path)
	case ours.IsObject():
		names := make(map[string]bool)
		for name := range ours.Fields {
			names[name] = true
		}
		for name := range theirs.Fields {
			names[name] = true
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			compareFields(t, gvk, path+"."+name, typeOf(ours.Fields[name]), typeOf(theirs.Fields[name]))
		}
	case ours.CelType() != theirs.CelType():
		t.Errorf("%s: got %s for %s, want %s", gvk, ours.CelType(), path, theirs.CelType())
	}
}

func typeOf(field *apiservercel.DeclField) *apiservercel.DeclType {
	if field == nil {
		return nil
	}
	return field.Type
}
