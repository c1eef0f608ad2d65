package discovery

import (
	"errors"
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
	if err := table.AddCRD([]byte(`{"spec":1}`)); err == nil {
		t.Error("got no error for a CustomResourceDefinition that is none")
	}
}
