package deploy_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// TestTracing checks the file that the pods get, that a change of it restarts them, and that the NetworkPolicy lets them reach the
// collector.
func TestTracing(t *testing.T) {
	t.Parallel()
	const policy = "networkPolicy: {apiServerCIDRs: [10.0.0.1/32], tracingTo: [{namespaceSelector: {}}]}\n"
	const shipped = "policies: {shipped: {no-default-namespace: {}}}\n"
	f := func(values, file, egress string) (annotation string) {
		t.Helper()
		r := render(t, values+policy, "")
		d := one[appsv1.Deployment](t, r, "Deployment")
		for _, c := range only[corev1.ConfigMap](t, r, "ConfigMap") {
			if got := c.Data["tracing.yaml"]; c.Name == d.Name && got != file {
				t.Errorf("%s: got the file %q, want %q", values, got, file)
			}
		}
		path, given := argument(d.Spec.Template.Spec.Containers[0].Args, "tracing-config-file")
		if given != (file != "") || given && path != "/etc/fastadmit/configuration/tracing.yaml" {
			t.Errorf("%s: got --tracing-config-file=%s, %v", values, path, given)
		}
		for _, v := range d.Spec.Template.Spec.Volumes {
			if items := v.ConfigMap.Items; given && len(items) > 0 &&
				!slices.Contains(items, corev1.KeyToPath{Key: "tracing.yaml", Path: "tracing.yaml"}) {
				t.Errorf("%s: got the volume %v, want the file in it", values, items)
			}
		}
		var got string
		for _, rule := range only[networkingv1.NetworkPolicy](t, r, "NetworkPolicy")[0].Spec.Egress {
			for _, port := range rule.Ports {
				if port.Port.IntVal != 0 {
					got += fmt.Sprintf("%d to %d; ", port.Port.IntVal, len(rule.To))
				}
			}
		}
		if got != egress {
			t.Errorf("%s: got egress %q, want %q", values, got, egress)
		}
		return d.Spec.Template.Annotations["fastadmit.io/tracing"]
	}
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"
	const open = "4317 to 1; 53 to 0; 53 to 0; "
	if got := f(somePlugins, "", ""); got != "" {
		t.Errorf("got the annotation %q without tracing", got)
	}
	digests := map[string]bool{
		f(somePlugins+"tracing: {endpoint: \"a:4317\"}\n", head+"endpoint: \"a:4317\"\nsamplingRatePerMillion: 0\n", open): true,
		f(somePlugins+shipped+"tracing: {endpoint: \"[::1]:4317\", samplingRatePerMillion: 1000000}\n",
			head+"endpoint: \"[::1]:4317\"\nsamplingRatePerMillion: 1000000\n", open): true,
	}
	if len(digests) != 2 || digests[""] {
		t.Errorf("got the annotations %q, want two", slices.Collect(maps.Keys(digests)))
	}
	for _, endpoint := range []string{"http://a:4317", "a", "a:b", "a b:1"} {
		values := somePlugins + fmt.Sprintf("tracing: {endpoint: %q}", endpoint)
		if _, _, err := try(t, "", tool(t, "helm"), helm(t, "template", values, "")...); err == nil {
			t.Errorf("accepts the endpoint %q", endpoint)
		}
	}
}
