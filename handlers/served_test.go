package handlers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/registration"
)

// served are the resources that the rules of plugins name and that API servers of all releases serve by
// default, and servedSince those that they serve since a release (k8s.io/kubernetes
// pkg/controlplane/instance.go DefaultAPIResourceConfigSource).
var (
	served = []string{
		"v1 pods pods/attach pods/binding pods/ephemeralcontainers pods/eviction pods/exec pods/resize pods/status",
		"v1 nodes nodes/status namespaces persistentvolumes persistentvolumeclaims persistentvolumeclaims/status",
		"v1 replicationcontrollers services serviceaccounts serviceaccounts/token podtemplates",
		"apps/v1 deployments daemonsets replicasets statefulsets", "batch/v1 jobs cronjobs",
		"certificates.k8s.io/v1 certificatesigningrequests certificatesigningrequests/approval certificatesigningrequests/status",
		"coordination.k8s.io/v1 leases", "networking.k8s.io/v1 ingresses ingressclasses", "node.k8s.io/v1 runtimeclasses",
		"scheduling.k8s.io/v1 priorityclasses", "storage.k8s.io/v1 csinodes storageclasses",
	}
	servedSince = map[string][]string{
		"1.37": {"certificates.k8s.io/v1 clustertrustbundles podcertificaterequests"},
		"1.34": {"resource.k8s.io/v1 deviceclasses resourceclaims resourceslices", "storage.k8s.io/v1 volumeattributesclasses"},
	}
)

// A release has the resources that the API servers of a release serve.
type release map[schema.GroupVersion][]string

func releaseOf(version admission.Version) release {
	all := slices.Clone(served)
	for since, lines := range servedSince {
		if version.Has(since) {
			all = append(all, lines...)
		}
	}
	r := make(release)
	for _, line := range all {
		words := strings.Fields(line)
		gv, _ := schema.ParseGroupVersion(words[0])
		r[gv] = append(r[gv], words[1:]...)
	}
	return r
}

// Versions implements registration.Discovery.
func (r release) Versions(_ context.Context, group string) (versions []string, err error) {
	for gv := range r {
		if gv.Group == group {
			versions = append(versions, gv.Version)
		}
	}
	return versions, nil
}

// Resources implements registration.Discovery.
func (r release) Resources(_ context.Context, version schema.GroupVersion) (*metav1.APIResourceList, error) {
	list := new(metav1.APIResourceList)
	for _, name := range r[version] {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

// TestServed checks the rules of the plugins that are on by default. For each release, they name a
// version that its API servers serve, so that no request bypasses a plugin. Only plugins for resources
// behind feature gates have no rules.
func TestServed(t *testing.T) {
	f := func(text string, idle ...string) {
		t.Helper()
		version, known, err := admission.ParseVersion(text)
		if err != nil || !known {
			t.Fatalf("%s: %v", text, err)
		}
		var plugins []*admission.Plugin
		table := handlers.InTree(handlers.Options{Version: version})
		for i := range table {
			if table[i].OnByDefault {
				plugins = append(plugins, &table[i])
			}
		}
		found, err := registration.FindUnserved(t.Context(), releaseOf(version), plugins)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range found {
			if u.Passes {
				t.Errorf("%s: %s: %s", text, u.Plugin, u.About)
			}
			got = append(got, u.Plugin)
		}
		if fmt.Sprint(got) != fmt.Sprint(idle) {
			t.Errorf("%s: got plugins %s without resources, want %s", text, got, idle)
		}
	}
	f("1.33", "ClusterTrustBundleAttest")
	f("1.34", "ClusterTrustBundleAttest")
	f("1.35", "ClusterTrustBundleAttest")
	f("1.36", "PodGroupProtection", "ClusterTrustBundleAttest", "PodGroupWorkloadExists")
	f("1.37", "PodGroupProtection")
}
