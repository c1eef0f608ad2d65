package review

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/defaults"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
)

// serverSet are the fields that kube-apiserver sets in another way than by defaults. "[]" stands for each element
// of a list. The kind is "" for all.
var serverSet = []struct{ kind, path, why string }{
	{"", "metadata/uid", "it is random"},
	{"", "metadata/resourceVersion", "it comes from etcd"},
	{"", "metadata/creationTimestamp", "it is the time"},
	{"", "metadata/managedFields", "they have the time"},
	{"", "metadata/generation", "it counts changes"},
	{"", "metadata/selfLink", "kube-apiserver writes none"},
	{"", "status", "strategies reset it, and controllers write it"},
	{"Pod", "spec/securityContext/appArmorProfile", "the strategy makes it of annotations"},
	{"Pod", "spec/containers[]/securityContext/appArmorProfile", "the same"},
	{"Pod", "spec/initContainers[]/securityContext/appArmorProfile", "the same"},
	{"Service", "spec/clusterIP", "it is allocated"},
	{"Service", "spec/clusterIPs", "they are allocated"},
	{"Service", "spec/ipFamilies", "they are those of the cluster"},
	{"Service", "spec/ipFamilyPolicy", "it is that of the cluster"},
	{"Service", "spec/ports[]/nodePort", "it is allocated"},
	{"Service", "spec/healthCheckNodePort", "it is allocated"},
	{"Namespace", "spec/finalizers", "the strategy adds one"},
	{"Job", "spec/selector", "it has the uid"},
	{"Job", "spec/template/metadata/labels/controller-uid", "it is the uid"},
	{"Job", "spec/template/metadata/labels/batch.kubernetes.io/controller-uid", "it is the uid"},
	{"Job", "spec/template/metadata/labels/job-name", "the strategy adds it with the uid"},
	{"Job", "spec/template/metadata/labels/batch.kubernetes.io/job-name", "the strategy adds it with the uid"},
	{"Job", "metadata/labels/controller-uid", "the labels may be those of the template"},
	{"Job", "metadata/labels/batch.kubernetes.io/controller-uid", "the same"},
	{"Job", "metadata/labels/job-name", "the same"},
	{"Job", "metadata/labels/batch.kubernetes.io/job-name", "the same"},
	{"PersistentVolumeClaim", "spec/dataSource", "the strategy copies dataSourceRef"},
	{"PersistentVolumeClaim", "spec/dataSourceRef", "the strategy copies dataSource"},
}

// defaultsVariable names folders with manifests, in place of those in the folder defaults.
const defaultsVariable = "FASTADMIT_DEFAULTS_INPUT"

// TestDefaults creates manifests with dry run. The answer must be what package defaults makes of the manifest.
func TestDefaults(t *testing.T) {
	input, own := []string{"defaults"}, true
	if given := os.Getenv(defaultsVariable); given != "" {
		input, own = filepath.SplitList(given), false
	}
	cluster.EachRelease(t, func(t *testing.T, release admission.Version) {
		d := &defaulted{
			APIServer: cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{Release: release}),
			release:   release,
			items:     manifest.Read(input, nil, files.Everywhere),
			defaults:  defaults.New(release),
			taken:     make(map[string]bool),
			unknown:   make(map[string]bool),
		}
		d.define(t)
		for i := range d.items {
			if item := &d.items[i]; item.Fault == nil {
				d.compare(t, item, own && release == admission.Newest())
			}
		}
		t.Logf("%d manifests, %d of which kube-apiserver takes, of %d kinds: %d differ from its answer before defaults, %d after",
			len(d.items), d.accepted, len(d.taken), d.before, d.after)
		if d.before == 0 {
			t.Error("got nothing to compare")
		}
	})
}

// defaulted counts the objects that are compared.
type defaulted struct {
	*cluster.APIServer
	release                 admission.Version
	items                   []manifest.Item
	defaults                *defaults.Defaults
	taken, unknown          map[string]bool // kinds
	accepted, before, after int
}

// define creates the CustomResourceDefinitions.
func (d *defaulted) define(t *testing.T) {
	t.Helper()
	var names []string
	for i := range d.items {
		item := &d.items[i]
		if item.Fault != nil || !discovery.IsCRD(item.GroupVersionKind()) || slices.Contains(names, item.Metadata.Name) {
			continue
		}
		object := new(unstructured.Unstructured)
		if err := object.UnmarshalJSON(item.JSON); err != nil {
			continue
		}
		client, err := d.Resource(object)
		if err == nil {
			_, err = client.Create(t.Context(), object, metav1.CreateOptions{})
		}
		if err != nil {
			t.Logf("%s: left out: %v", item.Source, err)
			continue
		}
		if err := d.defaults.Define(item.JSON); err != nil {
			t.Error(err)
		}
		names = append(names, item.Metadata.Name)
	}
	if len(names) > 0 {
		d.AwaitCRDs(t, names...)
	}
}

// compare compares the object that kube-apiserver would store with the one that package defaults makes.
func (d *defaulted) compare(t *testing.T, item *manifest.Item, must bool) {
	t.Helper()
	object := new(unstructured.Unstructured)
	if err := object.UnmarshalJSON(item.JSON); err != nil {
		return
	}
	if plural, _, _ := unstructured.NestedString(object.Object, "spec", "names", "plural"); discovery.IsCRD(item.GroupVersionKind()) {
		object.SetName("other" + object.GetName()) // it exists
		_ = unstructured.SetNestedField(object.Object, "other"+plural, "spec", "names", "plural")
	}
	kind := item.GroupVersionKind().String()
	if d.unknown[kind] {
		return
	}
	client, err := d.Resource(object)
	d.unknown[kind] = meta.IsNoMatchError(err)
	var answer *unstructured.Unstructured
	if err == nil {
		answer, err = client.Create(t.Context(), object.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	switch {
	case err == nil:
		d.compareWith(t, item, object, answer)
	case must:
		t.Errorf("%s %s: %v", item.Source, item.Kind, err)
	}
}

// withoutNulls removes the creationTimestamps of templates, which are null until 1.33.
func withoutNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		if at, is := v["creationTimestamp"]; is && at == nil {
			delete(v, "creationTimestamp")
		}
		for _, field := range v {
			withoutNulls(field)
		}
	case []any:
		for _, element := range v {
			withoutNulls(element)
		}
	}
}

// contains reports whether an answer has all fields and elements of what was sent that are not empty.
func contains(answer, sent any) bool {
	switch v := sent.(type) {
	case map[string]any:
		all, _ := answer.(map[string]any)
		for name, field := range v {
			if !contains(all[name], field) {
				return false
			}
		}
		return true // an answer leaves out what is empty
	case []any:
		all, _ := answer.([]any)
		if len(all) < len(v) {
			return false
		}
		for i := range v {
			if !contains(all[i], v[i]) {
				return false
			}
		}
		return true
	}
	return answer != nil || sent == nil
}

func (d *defaulted) compareWith(t *testing.T, item *manifest.Item, object, answer *unstructured.Unstructured) {
	t.Helper()
	object.SetNamespace(answer.GetNamespace()) // as review does
	object.SetName(answer.GetName())           // it may be generated
	withoutNulls(answer.Object)
	gvk := item.GroupVersionKind()
	d.accepted++
	d.taken[gvk.String()] = true
	text, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	with, err := d.defaults.Apply(gvk, text)
	if err != nil {
		t.Errorf("%s: %v", item.Source, err)
		return
	}
	ours := new(unstructured.Unstructured)
	if err := ours.UnmarshalJSON(with); err != nil {
		t.Fatal(err)
	}
	theirs := shown(answer)
	if !reflect.DeepEqual(shown(object), theirs) {
		d.before++
	}
	if got := shown(ours); !reflect.DeepEqual(got, theirs) {
		if d.release != admission.Newest() && !contains(answer.Object, object.Object) {
			t.Logf("%s: Kubernetes %s drops a field, which it does not know or whose feature gate is off", item.Source, d.release)
			return
		}
		d.after++
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(theirs)
		t.Errorf("%s %s: got\n%s\nwant what kube-apiserver answers:\n%s", item.Source, item.Kind, a, b)
	}
}

// shown returns an object without the fields in serverSet.
func shown(object *unstructured.Unstructured) map[string]any {
	o := object.DeepCopy().Object
	for _, field := range serverSet {
		if field.kind == "" || field.kind == object.GetKind() {
			remove(o, field.path)
		}
	}
	return o
}

// remove removes the field at a path, and objects that are empty without it. The key of a label may have a slash.
func remove(in map[string]any, path string) {
	name, rest, _ := strings.Cut(path, "/")
	if _, ok := in[path]; ok || rest == "" {
		delete(in, path)
		return
	}
	name, isList := strings.CutSuffix(name, "[]")
	switch value := in[name].(type) {
	case map[string]any:
		if remove(value, rest); len(value) == 0 {
			delete(in, name)
		}
	case []any:
		for _, element := range value {
			if inner, ok := element.(map[string]any); ok && isList {
				remove(inner, rest)
			}
		}
	}
}
