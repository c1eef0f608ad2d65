package twins

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/handlers"
)

// ofRelease ends the name of a row of the table, unless the release is the newest one.
func ofRelease(test string, release admission.Version) string {
	if release == admission.Newest() {
		return test
	}
	return test + ", Kubernetes " + release.String()
}

// A setting is a value of a flag of API servers that is off by default. The releases since First know it, before Until.
type setting struct{ value, first, until string }

func (s setting) isIn(release admission.Version) bool {
	return release.Has(s.first) && (s.until == "" || !release.Has(s.until))
}

// gates and served switch on what plugins need: feature gates, and the resources that they decide about.
var (
	gates = []setting{
		{value: "ClusterTrustBundle", first: "1.33"},
		{value: "DynamicResourceAllocation", first: "1.33", until: "1.34"},
		{value: "MutatingAdmissionPolicy", first: "1.33", until: "1.36"},
		{value: "PodTopologyLabelsAdmission", first: "1.33", until: "1.35"},
		{value: "PodCertificateRequest", first: "1.34"},
		{value: "GenericWorkload", first: "1.35"},
		{value: "NodeDeclaredFeatures", first: "1.35", until: "1.36"},
		{value: "InPlacePodVerticalScalingInitContainers", first: "1.36"},
		{value: "ManifestBasedAdmissionControlConfig", first: "1.36"},
		{value: "WorkloadWithJob", first: "1.36", until: "1.37"},
	}
	served = []setting{
		{value: "certificates.k8s.io/v1beta1/clustertrustbundles", first: "1.33"},
		{value: "admissionregistration.k8s.io/v1alpha1", first: "1.33", until: "1.34"},
		{value: "resource.k8s.io/v1beta1", first: "1.33", until: "1.34"},
		{value: "admissionregistration.k8s.io/v1beta1", first: "1.34", until: "1.36"},
		{value: "certificates.k8s.io/v1alpha1/podcertificaterequests", first: "1.34", until: "1.35"},
		{value: "certificates.k8s.io/v1beta1/podcertificaterequests", first: "1.35", until: "1.37"},
		{value: "scheduling.k8s.io/v1alpha1", first: "1.35", until: "1.36"},
		{value: "scheduling.k8s.io/v1alpha2", first: "1.36", until: "1.37"},
		{value: "scheduling.k8s.io/v1alpha3", first: "1.37"},
		{value: "scheduling.k8s.io/v1beta1", first: "1.37"},
	}
)

// flagsOf returns flags for API servers of a release.
func flagsOf(release admission.Version) map[string]string {
	value := func(settings []setting) string {
		var on []string
		for _, s := range settings {
			if s.isIn(release) {
				on = append(on, s.value+"=true")
			}
		}
		return strings.Join(on, ",")
	}
	return map[string]string{"feature-gates": value(gates), "runtime-config": value(served)}
}

// pluginsOf returns the plugins of kube-apiserver as fastadmit has them when it emulates a release.
func pluginsOf(release admission.Version) []admission.Plugin {
	options := handlers.DefaultOptions()
	options.Version = release
	return handlers.InTree(options)
}

// wantRelease checks that fastadmit emulates the release of its API server.
func wantRelease(t *testing.T, f *cluster.Fastadmit, release admission.Version) {
	t.Helper()
	if got, want := f.Metric(t, "fastadmit_emulated_version_minor"), release.Minor(); got != want {
		t.Fatalf("got the emulated version 1.%d, want 1.%d, that of the API server", got, want)
	}
}

// serve gives an object the version in which the API server serves its kind, if it does not serve the object's own one.
// It reports whether it serves the kind.
func serve(s *cluster.APIServer, object *unstructured.Unstructured) bool {
	version, served := s.Served(object.GroupVersionKind())
	if served {
		object.SetAPIVersion(version.String())
	}
	return served
}
