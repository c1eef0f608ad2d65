package deploy_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/handlers/podpreset"
	"github.com/fastadmit/fastadmit/handlers/podsecuritypolicy"
)

// TestRemovedKinds checks that the chart installs kinds that Kubernetes has removed only on
// request, with the fields that the plugins read.
func TestRemovedKinds(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		value string
		kind  *cluster.Kind
		spec  any
	}{
		{"podPreset", podpreset.PodPresets.Kind, podpreset.Spec{}},
		{"podSecurityPolicy", podsecuritypolicy.PodSecurityPolicies.Kind, podsecuritypolicy.Spec{}},
	} {
		if got := crdsOf(render(t, somePlugins, "")); len(got) > 0 {
			t.Errorf("got %d CustomResourceDefinitions, want none unless they are asked for", len(got))
		}
		all := crdsOf(render(t, somePlugins+"\ncrds: {"+k.value+": true}\n", ""))
		if len(all) != 1 {
			t.Fatalf("%s: got %d CustomResourceDefinitions, want one", k.value, len(all))
		}
		spec := all[0].Object["spec"].(map[string]any)
		version := spec["versions"].([]any)[0].(map[string]any)
		names := spec["names"].(map[string]any)
		gvr, gvk := k.kind.GroupVersionResource(), k.kind.GroupVersionKind()
		if spec["group"] != gvr.Group || version["name"] != gvr.Version || names["plural"] != gvr.Resource || names["kind"] != gvk.Kind ||
			(spec["scope"] == "Namespaced") != k.kind.IsNamespaced() || all[0].GetName() != k.kind.String() {
			t.Errorf("%s: got %v, want that of %s", k.value, spec, gvk)
		}
		if strings.HasSuffix(gvr.Group, ".k8s.io") && !strings.HasPrefix(all[0].GetAnnotations()["api-approved.kubernetes.io"],
			"unapproved") {
			t.Errorf("%s: got annotations %v, want api-approved.kubernetes.io", k.value, all[0].GetAnnotations())
		}
		schema, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec", "properties")
		var got, want []string
		for name := range schema {
			got = append(got, name)
		}
		for i := range reflect.TypeOf(k.spec).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(k.spec).Field(i).Tag.Get("json"), ",")
			want = append(want, name)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got fields %q, want %q", k.value, got, want)
		}
	}
}

func crdsOf(r release) (all []*unstructured.Unstructured) {
	for _, object := range r {
		if object.GetKind() == "CustomResourceDefinition" {
			all = append(all, object)
		}
	}
	return all
}
