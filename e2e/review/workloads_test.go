package review

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/workload"
)

// inputVariable names folders with manifests to compare with, in place of those
// in testdata.
const inputVariable = "FASTADMIT_REVIEW_INPUT"

const (
	waitMax = 5 * time.Minute // for the controllers; a CronJob takes a minute

)

// workloads are the kinds that are compared.
var workloads = []string{"Pod", "ReplicationController", "Deployment.apps", "ReplicaSet.apps", "StatefulSet.apps", "DaemonSet.apps",
	"Job.batch", "CronJob.batch"}

// A subject is an object in a namespace of its own.
type subject struct {
	*unstructured.Unstructured
	source    manifest.Source
	namespace string
	labels    map[string]string // of the namespace

	decided bool
	denied  string // the reason; empty if it is allowed
}

// TestWorkloads lets kube-controller-manager run workloads in a cluster with PodSecurity. It
// compares the denied pods with the output of review, and the created ones with those of package
// workload.
func TestWorkloads(t *testing.T) {
	input := []string{"testdata"}
	if given := os.Getenv(inputVariable); given != "" {
		input = filepath.SplitList(given)
	}
	file := cluster.WriteFile(t, "admission.yaml", []byte(cluster.RestrictedPods))
	s := cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{
		On: []string{"PodSecurity"}, Flags: map[string]string{"admission-control-config-file": file},
	})
	ctx := t.Context()
	if _, err := s.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var accepted []*subject
	all := subjects(t, input)
	for _, sub := range all {
		if err := sub.create(ctx, s); err != nil {
			t.Logf("%s: left out: %v", sub.source, err)
			continue
		}
		accepted = append(accepted, sub)
	}
	s.StartControllerManager(t, "deployment-controller", "replicaset-controller", "replicationcontroller-controller",
		"statefulset-controller", "daemonset-controller", "job-controller", "cronjob-controller")
	await(ctx, t, s, accepted)

	ours := reviewed(t, accepted, file)
	denied, compared := 0, 0
	for _, sub := range accepted {
		got, ok := ours[sub.namespace]
		switch {
		case !sub.decided:
			t.Errorf("%s %s: the controllers made no pod, and were denied none", sub.source, sub.GetKind())
		case !ok || got != sub.denied:
			t.Errorf("%s %s: got %q (%t), want what the API server says: %q", sub.source, sub.GetKind(), got, ok, sub.denied)
		case sub.denied != "":
			denied++
		case sub.GetKind() != "Pod":
			compared += compare(ctx, t, s, sub)
		}
	}
	t.Logf("%d objects, %d of which kube-apiserver takes; %d pods denied by both; %d objects that controllers made are the same",
		len(all), len(accepted), denied, compared)
	if denied == 0 || compared == 0 {
		t.Error("got nothing to compare")
	}
}

// subjects reads the workloads. Each gets a namespace with the labels of its original one, and
// creates pods at once.
func subjects(t *testing.T, input []string) []*subject {
	t.Helper()
	labels := make(map[string]map[string]string)
	var all []*subject
	for _, item := range manifest.Read(input, nil, files.Everywhere) {
		if item.Fault != nil {
			t.Logf("left out: %v", item.Fault)
			continue
		}
		object := new(unstructured.Unstructured)
		if err := object.UnmarshalJSON(item.JSON); err != nil {
			t.Logf("%s: left out: %v", item.Source, err)
			continue
		}
		if item.APIVersion == "v1" && item.Kind == "Namespace" {
			labels[item.Metadata.Name] = object.GetLabels()
		}
		gk := item.GroupVersionKind().GroupKind().String()
		if !slices.Contains(workloads, gk) || gk == "CronJob.batch" && os.Getenv(inputVariable) == "" { // a CronJob takes a minute
			continue
		}
		all = append(all, &subject{Unstructured: object, source: item.Source})
	}
	for i, sub := range all {
		sub.namespace, sub.labels = fmt.Sprintf("review-%d", i), labels[sub.GetNamespace()]
		sub.SetNamespace(sub.namespace)
		sub.SetOwnerReferences(nil)
		sub.hasten()
	}
	return all
}

// hasten removes fields that keep controllers from creating pods.
func (sub *subject) hasten() {
	set := func(value any, path ...string) { _ = unstructured.SetNestedField(sub.Object, value, path...) }
	spec, _, _ := unstructured.NestedMap(sub.Object, "spec")
	switch sub.GetKind() {
	case "DaemonSet":
		unstructured.RemoveNestedField(sub.Object, "spec", "template", "spec", "nodeSelector")
		unstructured.RemoveNestedField(sub.Object, "spec", "template", "spec", "affinity")
	case "CronJob":
		set("* * * * *", "spec", "schedule")
		set(false, "spec", "suspend")
	case "Job":
		set(false, "spec", "suspend")
	default:
		unstructured.RemoveNestedField(sub.Object, "spec", "paused") // of a Deployment
		if spec["replicas"] != nil {
			set(int64(1), "spec", "replicas")
		}
	}
}

// create creates the namespace and the object. It returns an error if the API server refuses the
// object for a reason other than PodSecurity.
func (sub *subject) create(ctx context.Context, s *cluster.APIServer) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sub.namespace, Labels: sub.labels}}
	delete(namespace.Labels, corev1.LabelMetadataName)
	if _, err := s.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	client, err := s.Resource(sub.Unstructured)
	if err != nil {
		return err
	}
	stored, err := client.Create(ctx, sub.DeepCopy(), metav1.CreateOptions{})
	if sub.GetKind() == "Pod" {
		sub.decided = true
		if apierrors.IsForbidden(err) {
			sub.denied = violation(err.Error())
			return nil
		}
	}
	if err == nil && sub.GetKind() != "Pod" {
		sub.Unstructured = stored
	}
	return err
}

// violation is the part of a message that says what is wrong with a pod.
func violation(message string) string {
	_, after, _ := strings.Cut(message, "violates PodSecurity")
	return after
}

// await waits until the controllers have made a pod of each subject, or were
// denied to.
func await(ctx context.Context, t *testing.T, s *cluster.APIServer, subjects []*subject) {
	t.Helper()
	byNamespace := make(map[string]*subject)
	for _, sub := range subjects {
		byNamespace[sub.namespace] = sub
	}
	for end := time.Now().Add(waitMax); time.Now().Before(end); time.Sleep(time.Second) {
		pods, err := s.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range pods.Items {
			if sub := byNamespace[pods.Items[i].Namespace]; sub != nil && sub.denied == "" {
				sub.decided = true
			}
		}
		events, err := s.Client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range events.Items {
			why := violation(events.Items[i].Message)
			if sub := byNamespace[events.Items[i].Namespace]; sub != nil && why != "" && sub.GetKind() != "Pod" {
				sub.decided, sub.denied = true, why
			}
		}
		if !slices.ContainsFunc(subjects, func(sub *subject) bool { return !sub.decided }) {
			return
		}
	}
}

// reviewed returns review's reason to deny the pods of each namespace, empty if it allows them.
func reviewed(t *testing.T, subjects []*subject, admissionFile string) map[string]string {
	t.Helper()
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for _, sub := range subjects {
		namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
		namespace.SetName(sub.namespace)
		namespace.SetLabels(sub.labels)
		list.Items = append(list.Items, *sub.Unstructured, *namespace)
	}
	text, err := list.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Results []*report.Result }
	out := run(t, 1, cluster.WriteFile(t, "input.json", text), "--enable-admission-plugins=PodSecurity",
		"--admission-control-config-file="+admissionFile, "-o", "json")
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	why := make(map[string]string)
	for _, result := range got.Results {
		result.Walk(func(r *report.Result, _ int) {
			switch {
			case r.Kind != "Pod":
			case r.Decision == report.Denied:
				why[r.Namespace] = violation(r.Message)
			case r.Decision == report.Allowed:
				why[r.Namespace] = ""
			default:
				t.Errorf("%s: %s", r.Object(), r.Said())
			}
		})
	}
	return why
}

// compare compares the objects that controllers created for a subject with those of package
// workload, and returns their number.
func compare(ctx context.Context, t *testing.T, s *cluster.APIServer, sub *subject) (n int) {
	t.Helper()
	owner := sub.Unstructured
	for owner != nil {
		text, err := owner.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		children, err := workload.Paths(nil).Children(owner.GroupVersionKind(), "", text)
		if err != nil {
			t.Errorf("%s: %v", sub.source, err)
			return n
		}
		owner = nil
		for _, child := range children {
			made := new(unstructured.Unstructured)
			if err := made.UnmarshalJSON(child.JSON); err != nil {
				t.Fatal(err)
			}
			client, err := s.Resource(made)
			if err != nil {
				t.Fatal(err)
			}
			list, err := client.List(ctx, metav1.ListOptions{})
			if err != nil || len(list.Items) == 0 {
				t.Errorf("%s: got no %s from the controllers, %v", sub.source, made.GetKind(), err)
				continue
			}
			if name := made.GetName(); name != "" {
				made.SetName("ours-" + name)
			}
			dry, err := client.Create(ctx, made, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				t.Errorf("%s: kube-apiserver does not take what is made: %v", sub.source, err)
				continue
			}
			if child.Kind.Kind != "Pod" && child.Kind.Kind != "PersistentVolumeClaim" {
				owner = list.Items[0].DeepCopy()
			}
			ours, theirs := normalized(dry), normalized(&list.Items[0])
			if n++; !reflect.DeepEqual(ours, theirs) {
				a, _ := json.Marshal(ours)
				b, _ := json.Marshal(theirs)
				t.Errorf("%s: %s: got\n%s\nwant\n%s", sub.source, made.GetKind(), a, b)
			}
		}
	}
	return n
}

// normalized returns an object without values that only a cluster knows: uids, times, hashes, and
// names that contain them.
func normalized(object *unstructured.Unstructured) map[string]any {
	o := object.DeepCopy().Object
	remove := func(path ...string) { unstructured.RemoveNestedField(o, path...) }
	for _, name := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "name", "generateName",
		"ownerReferences"} {
		remove("metadata", name)
	}
	remove("status")
	for _, hash := range []string{"pod-template-hash", "controller-revision-hash", "controller-uid", "batch.kubernetes.io/controller-uid",
		"job-name", "batch.kubernetes.io/job-name"} {
		for _, at := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"},
			{"spec", "selector", "matchLabels"}} {
			remove(append(at, hash)...)
		}
	}
	for _, computed := range []string{"deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas",
		"batch.kubernetes.io/cronjob-scheduled-timestamp"} {
		remove("metadata", "annotations", computed)
	}
	remove("spec", "suspend")
	for _, empty := range [][]string{{"spec", "template", "metadata"}, {"metadata", "annotations"}, {"metadata", "labels"}} {
		if m, ok, _ := unstructured.NestedMap(o, empty...); ok && len(m) == 0 {
			remove(empty...)
		}
	}
	return o
}
