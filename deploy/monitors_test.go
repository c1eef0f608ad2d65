package deploy_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// A monitor contains how a ServiceMonitor or a PodMonitor finds what Prometheus scrapes.
type monitor struct {
	selector                       labels.Selector
	jobLabel, port, path, interval string
}

// readMonitor reads the only object of a kind. Its endpoint is in the named list.
func readMonitor(t *testing.T, r release, kind, list string) (m monitor) {
	t.Helper()
	i := slices.IndexFunc(r, func(object *unstructured.Unstructured) bool { return object.GetKind() == kind })
	if i < 0 {
		t.Fatalf("got no %s", kind)
	}
	endpoints, _, err := unstructured.NestedSlice(r[i].Object, "spec", list)
	if err != nil || len(endpoints) != 1 {
		t.Fatalf("%s: got %s %v, %v, want one", kind, list, endpoints, err)
	}
	matched, _, err := unstructured.NestedStringMap(r[i].Object, "spec", "selector", "matchLabels")
	if err != nil || len(matched) == 0 {
		t.Fatalf("%s: got matchLabels %v, %v", kind, matched, err)
	}
	m.selector = labels.SelectorFromSet(matched)
	m.jobLabel, _, _ = unstructured.NestedString(r[i].Object, "spec", "jobLabel")
	endpoint := endpoints[0].(map[string]any)
	m.port, _ = endpoint["port"].(string)
	m.path, _ = endpoint["path"].(string)
	m.interval, _ = endpoint["interval"].(string)
	return m
}

// TestServiceMonitor checks that Prometheus scrapes the port of the Service without an address alone, behind which
// each pod is scraped.
func TestServiceMonitor(t *testing.T) {
	t.Parallel()
	r := render(t, somePlugins, "monitoring.yaml")
	m := readMonitor(t, r, "ServiceMonitor", "endpoints")
	for _, s := range only[corev1.Service](t, r, "Service") {
		if got, want := m.selector.Matches(labels.Set(s.Labels)), s.Spec.ClusterIP == corev1.ClusterIPNone; got != want {
			t.Errorf("Service %s: got selected %v, want %v", s.Name, got, want)
		} else if got && (s.Spec.Ports[0].Name != m.port || s.Labels[m.jobLabel] != "fastadmit") {
			t.Errorf("got port %s and job %s of ServiceMonitor, want those of Service %v", m.port, s.Labels[m.jobLabel], s)
		}
	}
	if m.path != "/metrics" || m.interval != "" {
		t.Errorf("got %+v, want /metrics at Prometheus' interval", m)
	}
}

// TestPodMonitor checks that Prometheus scrapes the pods that serve, and no others of the release, by a port that they have.
func TestPodMonitor(t *testing.T) {
	t.Parallel()
	r := render(t, somePlugins+podMonitor+"audit: {enabled: true}\n", "")
	m := readMonitor(t, r, "PodMonitor", "podMetricsEndpoints")
	others := 0
	for _, object := range r {
		for _, path := range [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}} {
			of, ok, _ := unstructured.NestedStringMap(object.Object, append(path, "metadata", "labels")...)
			if !ok {
				continue
			}
			serves := object.GetKind() == "Deployment"
			if got := m.selector.Matches(labels.Set(of)); got != serves {
				t.Errorf("pod of %s with labels %v: got selected %v, want %v", object.GetKind(), of, got, serves)
			}
			if serves && of[m.jobLabel] != "fastadmit" {
				t.Errorf("got job %q, want fastadmit", of[m.jobLabel])
			} else if !serves {
				others++
			}
		}
	}
	if others < 2 {
		t.Errorf("got %d other pods, want those of the audit and of the check of the registration", others)
	}
	ports := one[appsv1.Deployment](t, r, "Deployment").Spec.Template.Spec.Containers[0].Ports
	if !slices.ContainsFunc(ports, func(p corev1.ContainerPort) bool { return p.Name == m.port && p.ContainerPort == 8080 }) {
		t.Errorf("got port %s, want that of the metrics of %v", m.port, ports)
	}
	if m.path != "/metrics" || m.interval != "30s" {
		t.Errorf("got %+v, want /metrics every 30s", m)
	}
	for _, object := range r {
		if object.GetKind() == "PodMonitor" && object.GetLabels()["team"] != "monitoring" {
			t.Errorf("got labels %v, want those of the values", object.GetLabels())
		}
	}
}
