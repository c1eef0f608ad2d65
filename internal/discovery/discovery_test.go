package discovery

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestFind(t *testing.T) {
	calls := 0
	table := NewTable(func(version schema.GroupVersion) (*metav1.APIResourceList, error) {
		calls++
		switch version.Group {
		case "down.example.com":
			return nil, errors.New("it is away")
		case "live.example.com":
			return &metav1.APIResourceList{APIResources: []metav1.APIResource{
				{Name: "geese", Kind: "Goose", Namespaced: true}, {Name: "geese/status", Kind: "Goose"}, {Name: "flocks", Kind: "Flock"},
			}}, nil
		}
		return nil, nil
	})
	if err := table.AddCRD([]byte(`{"spec":{"group":"example.com","scope":"Cluster","names":{"kind":"Mouse","plural":"mice"},
		"versions":[{"name":"v1","served":true},{"name":"v2","served":false}]}}`)); err != nil {
		t.Fatal(err)
	}
	calls = 0
	f := func(apiVersion, kind, resource string, namespaced bool) {
		t.Helper()
		got, err := table.Find(schema.FromAPIVersionAndKind(apiVersion, kind))
		if err != nil || got.Resource != resource || got.Namespaced != namespaced || got.GroupVersion().String() != apiVersion {
			t.Errorf("%s %s: got %v, %v, want %s", apiVersion, kind, got, err, resource)
		}
	}
	f("v1", "Pod", "pods", true)
	f("v1", "Namespace", "namespaces", false)
	f("v1", "Endpoints", "endpoints", true)
	f("networking.k8s.io/v1", "Ingress", "ingresses", true)
	f("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", true)
	f("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false)
	f("example.com/v1", "Mouse", "mice", false)
	f("live.example.com/v1", "Goose", "geese", true)
	f("live.example.com/v1", "Flock", "flocks", false)
	if calls != 1 {
		t.Errorf("got %d questions, want one for both kinds of a group version", calls)
	}

	got, err := NewTable(nil).Find(schema.FromAPIVersionAndKind("constraints.gatekeeper.sh/v1beta1", "K8sRequiredLabels"))
	if err != nil || got.Resource != "k8srequiredlabels" || got.Namespaced {
		t.Errorf("a Constraint: got %v, %v", got, err)
	}

	fails := func(apiVersion, kind, want string) {
		t.Helper()
		_, err := table.Find(schema.FromAPIVersionAndKind(apiVersion, kind))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s %s: got %v, want %q", apiVersion, kind, err, want)
		}
	}
	fails("extensions/v1beta1", "Deployment", "it is known in apps/v1")
	fails("batch/v1beta1", "CronJob", "it is known in batch/v1")
	fails("gateway.networking.k8s.io/v1", "Gateway", "give its CustomResourceDefinition too, or name a cluster")
	fails("example.com/v2", "Mouse", "it is known in example.com/v1")
	fails("down.example.com/v1", "Mouse", "it is away")
}

func TestAddCRD(t *testing.T) {
	table := NewTable(func(version schema.GroupVersion) (*metav1.APIResourceList, error) {
		switch version.Group {
		case "down.example.com":
			return nil, errors.New("it is away")
		case "live.example.com":
			return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "geese", Kind: "Goose", Namespaced: true}}}, nil
		}
		return nil, nil
	})
	f := func(group, version, kind, plural, scope, want string) {
		t.Helper()
		got := ""
		definition := fmt.Sprintf(`{"spec":{"group":%q,"scope":%q,"names":{"kind":%q,"plural":%q},"versions":[{"name":%q,"served":true}]}}`,
			group, scope, kind, plural, version)
		if err := table.AddCRD([]byte(definition)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", definition, got, want)
		}
	}
	f("", "v1", "Pod", "harmless", "Namespaced", `CustomResourceDefinition: spec.group: got "", want a domain with at least one dot`)
	f("apps", "v1", "Deployment", "harmless", "Namespaced", `CustomResourceDefinition: spec.group: got "apps", want a domain with at `+
		`least one dot`)
	const is = "CustomResourceDefinition: got the "
	f("networking.k8s.io", "v1", "Ingress", "harmless", "Namespaced",
		is+"namespaced resource harmless.networking.k8s.io for networking.k8s.io/v1, Kind=Ingress, which is the namespaced resource "+
			"ingresses.networking.k8s.io already")
	f("networking.k8s.io", "v1", "Ingress", "ingresses", "Cluster",
		is+"cluster-scoped resource ingresses.networking.k8s.io for networking.k8s.io/v1, Kind=Ingress, which is the namespaced resource "+
			"ingresses.networking.k8s.io already")
	f("live.example.com", "v1", "Goose", "harmless", "Namespaced",
		is+"namespaced resource harmless.live.example.com for live.example.com/v1, Kind=Goose, which is the namespaced resource "+
			"geese.live.example.com already")
	f("down.example.com", "v1", "Goose", "geese", "Namespaced", `cannot ask the cluster for the resources of "down.example.com/v1": it `+
		`is away`)
	f("example.com", "v1", "Mouse", "mice", "Namespaced", "")
	f("example.com", "v1", "Mouse", "mice", "Namespaced", "") // two files may define the same resource
	if got, err := table.Find(schema.FromAPIVersionAndKind("v1", "Pod")); err != nil || got.Resource != "pods" {
		t.Errorf("got %v, %v, want pods", got, err)
	}
	if err := table.AddCRD([]byte(`{"spec":{},"status":{"acceptedNames":{"kind":"Pod","plural":"harmless"}}}`)); err != nil {
		t.Errorf("a status to compare with: got %v", err)
	}
	if err := table.AddCRD([]byte(`{"spec":1}`)); err == nil {
		t.Error("got no error for a CustomResourceDefinition that is none")
	}
}

func TestIsCRD(t *testing.T) {
	f := func(apiVersion, kind string, want bool) {
		t.Helper()
		if got := IsCRD(schema.FromAPIVersionAndKind(apiVersion, kind)); got != want {
			t.Errorf("%s %s: got %t, want %t", apiVersion, kind, got, want)
		}
	}
	f("apiextensions.k8s.io/v1", "CustomResourceDefinition", true)
	f("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", true)
	f("example.com/v1", "CustomResourceDefinition", false)
	f("apiextensions.k8s.io/v1", "Pod", false)
}

// TestServed returns only the versions of a CustomResourceDefinition that are
// served.
func TestServed(t *testing.T) {
	table := NewTable(nil)
	if err := table.AddCRD([]byte(`{"spec":{"group":"example.com","version":"v1","Group":"","names":{"kind":"Mouse","plural":"mice"},
		"versions":[{"name":"v2"},{"name":"v3","served":false},{"name":"v10","served":true}]}}`)); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1", "v2", "v10"} {
		if _, err := table.Find(schema.FromAPIVersionAndKind("example.com/"+version, "Mouse")); err != nil {
			t.Error(err)
		}
	}
	_, err := table.Find(schema.FromAPIVersionAndKind("example.com/v3", "Mouse"))
	const want = `unknown kind "Mouse" of apiVersion "example.com/v3"; it is known in example.com/v1, example.com/v10, example.com/v2`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	// Kinds of the same name in other groups are suggested only if these are
	// groups of Kubernetes.
	for apiVersion, want := range map[string]string{
		"networking.k8s.io/v9": "it is known in example.com/v1", "extensions/v1beta1": "it is known in example.com/v1",
		"example.org/v1": "give its CustomResourceDefinition too",
	} {
		if _, err := table.Find(schema.FromAPIVersionAndKind(apiVersion, "Mouse")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", apiVersion, err, want)
		}
	}
	for kind, want := range map[string]string{
		"Deploymnt": `of apiVersion "apps/v1", did you mean Deployment?`, "Mouse": "it is known in",
		"Other": "give its CustomResourceDefinition",
	} {
		if _, err := table.Find(schema.FromAPIVersionAndKind("apps/v1", kind)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", kind, err, want)
		}
	}
}

// TestAdd adds a resource unless it exists already.
func TestAdd(t *testing.T) {
	asked := 0
	table := NewTable(func(schema.GroupVersion) (*metav1.APIResourceList, error) { asked++; return nil, nil })
	mice := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "mice"}
	table.Add("Mouse", Resource{mice, true})
	table.Add("Mouse", Resource{mice.GroupVersion().WithResource("others"), false})
	if got, err := table.Find(mice.GroupVersion().WithKind("Mouse")); err != nil || got != (Resource{mice, true}) || asked != 0 {
		t.Errorf("got %v, %v after %d questions", got, err, asked)
	}
	for range 3 {
		if _, err := table.Find(mice.GroupVersion().WithKind("Rat")); err == nil {
			t.Error("got no error for an unknown kind")
		}
	}
	if asked != 1 {
		t.Errorf("got %d questions, want one for a group version that is not served", asked)
	}
}

// TestCustom expects a table in order without mistakes of the pen, and that a cluster which is asked
// decides instead of it.
func TestCustom(t *testing.T) {
	last := ""
	for line := range strings.Lines(customs) {
		fields := strings.Fields(line)
		if len(fields) != 4 || line <= last || !strings.Contains(fields[0], ".") || strings.ToLower(fields[2]) != fields[2] ||
			fields[3] != "Namespaced" && fields[3] != "Cluster" {
			t.Errorf("got %q behind %q, want the group, kind, resource and scope, in order", line, last)
		}
		last = line
	}
	monitor := schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}
	want := Resource{schema.GroupVersionResource{Group: monitor.Group, Version: "v1", Resource: "servicemonitors"}, true}
	if got, err := NewTable(nil).Find(monitor); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	none := func(schema.GroupVersion) (*metav1.APIResourceList, error) { return nil, nil }
	if got, err := NewTable(none).Find(monitor); err == nil {
		t.Errorf("got %v from a cluster that does not have it, want an error", got)
	}
}

// TestResources lists the resources of group versions.
func TestResources(t *testing.T) {
	table := NewTable(nil)
	widgets := schema.GroupVersion{Group: "example.com", Version: "v1"}
	if list := table.Resources(widgets); list != nil || slices.Contains(table.Versions(), widgets) {
		t.Errorf("got %v of a group that is not there", list)
	}
	table.Add("Widget", Resource{widgets.WithResource("widgets"), true})
	list := table.Resources(widgets)
	if list == nil || len(list.APIResources) != 1 || !slices.Contains(table.Versions(), widgets) {
		t.Fatalf("got %v, want one resource", list)
	}
	if r := list.APIResources[0]; r.Name != "widgets" || r.Kind != "Widget" || !r.Namespaced {
		t.Errorf("got %v, want the resource widgets", r)
	}
	versions := table.Versions()
	slices.SortFunc(versions, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	if all := len(versions); all < 30 || len(slices.Compact(versions)) != all {
		t.Errorf("got the versions %v, want each of Kubernetes once", versions)
	}
}

func TestCanServe(t *testing.T) {
	f := func(group, version, resource string, want bool) {
		t.Helper()
		if got := CanServe(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}); got != want {
			t.Errorf("%s/%s %s: got %v, want %v", group, version, resource, got, want)
		}
	}
	f("", "v1", "pods", true)
	f("", "v2", "pods", false)
	f("autoscaling", "v2", "horizontalpodautoscalers", true)
	f("autoscaling", "v2beta2", "horizontalpodautoscalers", false)
	f("storage.k8s.io", "v1alpha1", "volumeattributesclasses", true) // 1.33 and 1.34 do
	f("storage.k8s.io", "v1alpha1", "storageclasses", false)
	f("example.com", "v7", "gadgets", true)
}
