package twins

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/tables"
	"github.com/fastadmit/fastadmit/e2e/tally"
)

const (
	workloadPods  = 9 // the pods that the controllers and the test make of workloads.yaml
	workloadsMax  = 5 * time.Minute
	workloadsHome = "workloads"
)

// workloads compares the pods that kube-controller-manager makes, with all plugins
// about pods enabled at once, in their order. ImagePolicyWebhook is left out: its
// backend denies by the hash of the request, and controllers try again forever.
func (tw *twins) workloads(t *testing.T) {
	cases, err := tables.Read("../testdata/workloads.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var about []admission.Plugin
	for _, p := range pluginsOf(tw.release) {
		if p.IsIn(tw.release) && p.Name != "ImagePolicyWebhook" &&
			slices.ContainsFunc(p.Rules, func(r admission.Rule) bool { return slices.Contains(r.Resources, "pods") }) {
			about = append(about, p)
		}
	}
	for _, s := range tw.off {
		for _, object := range []string{"Namespace " + workloadsHome, "Node node", "ServiceAccount default"} {
			kind, name, _ := strings.Cut(object, " ")
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
			u.SetName(name)
			// This replaces the list in PodTolerationRestriction's configuration,
			// which lacks the tolerations of DaemonSets.
			u.SetAnnotations(map[string]string{"scheduler.alpha.kubernetes.io/tolerationsWhitelist": "[]"})
			if isNamespaced(u) {
				u.SetNamespace(workloadsHome)
			}
			if err := create(s, u); err != nil {
				t.Fatal(err)
			}
		}
	}
	on := tw.with(t, about...)
	row := tally.Row{Plugin: "all about pods", Test: ofRelease("workloads", tw.release)}
	for _, s := range on {
		s.StartControllerManager(t, "deployment-controller", "replicaset-controller", "statefulset-controller", "daemonset-controller",
			"job-controller", "cronjob-controller", "replicationcontroller-controller")
		for _, c := range cases {
			if err := createWithStatus(s, c.New()); err != nil {
				t.Fatalf("%s: %v", c.About, err)
			}
		}
	}
	in, out := pods(t, on[0]), pods(t, on[1])
	for i := range in {
		row.Cases++
		if in[i] != out[i] {
			t.Errorf("with fastadmit %s\nin-tree %s", out[i], in[i])
			row.Different = append(row.Different, in[i])
		}
	}
	mustWrite(t, row)
}

// createWithStatus creates an object and, if it has a status, writes that too.
func createWithStatus(s *cluster.APIServer, object *unstructured.Unstructured) error {
	resource, err := s.Resource(object)
	if err != nil {
		return err
	}
	created, err := resource.Create(context.Background(), object, metav1.CreateOptions{})
	if err != nil || object.Object["status"] == nil {
		return err
	}
	created.Object["status"] = object.Object["status"]
	_, err = resource.UpdateStatus(context.Background(), created, metav1.UpdateOptions{})
	return err
}

// pods returns the pods of the workloads, without their random parts, sorted.
func pods(t *testing.T, s *cluster.APIServer) []string {
	t.Helper()
	resource := s.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(workloadsHome)
	for deadline := time.Now().Add(workloadsMax); ; time.Sleep(100 * time.Millisecond) {
		list, err := resource.List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) == workloadPods {
			var all []string
			for i := range list.Items {
				pod := &list.Items[i]
				all = append(all, fmt.Sprintf("%s %s", pod.GetLabels()["app"], cluster.Shown(pod, nil, pod.GetGenerateName())))
			}
			slices.Sort(all)
			return all
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %d pods after %s, want %d", len(list.Items), workloadsMax, workloadPods)
		}
	}
}
