package manifest

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fastadmit/fastadmit/internal/allocs"
)

// hidden are files in which kubectl finds a Pod "evil", but a less exact reader does not. Each
// has the error that is reported instead of the Pod, "" if the Pod is found.
var hidden = []struct{ content, fault string }{
	{cm + "items:\n- " + evilFlow, `got a member items in the kind "ConfigMap"`},
	{"{\"items\":[" + evilFlow + "],\"kind\":\"Role\",\"apiVersion\":\"v1\"}", `got a member items in the kind "Role"`},
	{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"\u0069tems":[` + evilFlow + `]}`,
		`got a member items in the kind "ConfigMap"`},
	{`{"apiVersion":"v1","kind":"List","it\u0065ms":[` + evilFlow + `]}`, ""},
	{list + "- " + goodFlow + "items:\n- " + evilFlow, `key "items" already set in map`},
	{list + "- " + goodFlow + "other: \"\nitems:\n- x\n\"\nitems :\n- " + evilFlow, `key "items" already set in map`},
	{"kind: List\napiVersion: v1\nx: \"\nitems:\n- " + strings.ReplaceAll(goodFlow, `"`, `'`) + "\"\n\"items\":\n- " + evilFlow, ""},
	{`{"kind":"List","apiVersion":"v1","items":[` + goodFlow + `],"items":[` + evilFlow + `]}`, `duplicate field "items"`},
	{`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"good","name":"evil"}}`, `duplicate field "metadata.name"`},
	{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"evil"},"kind":"Pod"}`, `duplicate field "kind"`},
	{`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"evil"},"spec":{"a":true,"a":false}}`, `duplicate field "spec.a"`},
	{evil + "Kind: ConfigMap\n", `got the member "Kind", want "kind"`},
	{"apiVersion: v1\nkind: Pod\nmetadata: {name: evil, Namespace: kube-system}\n",
		`got the member "Namespace" of metadata, want "namespace"`},
	{`{"apiVersion":"v1","kind":"Pod","Kind":"ConfigMap","metadata":{"name":"evil"}}`, `got the member "Kind", want "kind"`},
	{list + "- " + evilFlow + "Items: []\n", `got the member "Items", want "items"`},
	{"# \r" + strings.ReplaceAll(evil, "\n", "\r"), ""},
	{"# \u2028" + strings.ReplaceAll(evil, "\n", "\u2028"), ""},
	{"%YAML 1.1\r---\r" + strings.ReplaceAll(evil, "\n", "\r"), ""},
	{good + "---#: \"\n" + evil + "#\"", ""},
	{"{} \n---# c\n" + evil, "not a Kubernetes object"},
	{utf16("\ufeff" + good + "---\n" + evil), "no UTF-8"},
	{evil + "...\n" + good, "cannot be read"},
	{good + "\r---\r" + strings.ReplaceAll(evil, "\n", "\r"), "got a second document"},
	{"apiVersion: v1\nkind: Pod\nmetadata: {name: evil, labels: {1: a, \"1\": b}}\n", `key "1" already set in map`},
	{"- &a\n", "not a Kubernetes object"},
	{"kind: PodList\napiVersion: v1\nitems: [{metadata: {name: evil}}]\n", ""},
	{list + "- " + `{"kind": "List", "apiVersion": "v1", "items": [` + evilFlow + "]}\n", ""},
	{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}` + "\n" + evil, "cannot be read"},
}

const (
	cm       = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	list     = "apiVersion: v1\nkind: List\nitems:\n"
	good     = "apiVersion: v1\nkind: Pod\nmetadata: {name: good}\n"
	evil     = "apiVersion: v1\nkind: Pod\nmetadata: {name: evil}\n"
	goodFlow = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "good"}}` + "\n"
	evilFlow = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "evil"}}` + "\n"
)

// utf16 returns ASCII text in UTF-16, little-endian.
func utf16(text string) string {
	var b strings.Builder
	for _, r := range text {
		b.Write([]byte{byte(r), byte(r >> 8)})
	}
	return b.String()
}

func TestHidden(t *testing.T) {
	for _, file := range hidden {
		items := Parse("f", []byte(file.content))
		var faults []string
		found := false
		for i := range items {
			if items[i].Fault != nil {
				faults = append(faults, items[i].Fault.Error())
			} else {
				found = found || items[i].Kind == "Pod" && items[i].Metadata.Name == "evil"
			}
		}
		got := strings.Join(faults, "\n")
		if file.fault == "" && (!found || faults != nil) || file.fault != "" && !strings.Contains(got, file.fault) {
			t.Errorf("%q:\ngot the Pod %t and %s\nwant %q", file.content, found, got, file.fault)
		}
	}
}

// FuzzParse compares the results of Parse with the objects that kubectl reads. If Parse reports
// no error, kubectl finds the same objects, or fewer if it refuses a part of the file.
func FuzzParse(f *testing.F) {
	for _, file := range hidden {
		f.Add([]byte(file.content))
	}
	f.Add([]byte(good + "--- # c\n" + evil + "...\n"))
	f.Add([]byte(goodFlow + evilFlow))
	f.Add([]byte("\ufeff" + evil))
	f.Add([]byte("a: &a [*a]\n<<: {b: 0x1F, c: 1e3, d: .inf, e: 2001-01-01, f: ~, g: !!binary aGk=}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		var got []*unstructured.Unstructured
		for _, item := range Parse("f", content) {
			if item.Fault != nil {
				return
			}
			object := decodeObject(t, item.JSON)
			if object.GetKind() != item.Kind || object.GetAPIVersion() != item.APIVersion || object.GetName() != item.Metadata.Name ||
				object.GetNamespace() != item.Metadata.Namespace || object.GetGenerateName() != item.Metadata.GenerateName {
				t.Fatalf("got %+v of %s", item.Head, item.JSON)
			}
			got = append(got, object)
		}
		want, err := kubectlReads(bytes.TrimPrefix(content, []byte("\ufeff")))
		if len(want) > len(got) || len(want) < len(got) && err == nil {
			t.Fatalf("%q: got %d objects, want %d (%v)", content, len(got), len(want), err)
		}
		for i := range want {
			if !reflect.DeepEqual(got[i].Object, want[i].Object) {
				t.Fatalf("%q: got object %d\n%v\nwant\n%v", content, i, got[i].Object, want[i].Object)
			}
		}
	})
}

func decodeObject(t *testing.T, text []byte) *unstructured.Unstructured {
	object := new(unstructured.Unstructured)
	if err := object.UnmarshalJSON(text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return object
}

// kubectlReads returns the objects that kubectl finds before its first error
// (k8s.io/cli-runtime pkg/resource StreamVisitor and FlattenListVisitor).
func kubectlReads(content []byte) (found []*unstructured.Unstructured, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		var raw runtime.RawExtension
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return found, err
		}
		raw.Raw = bytes.TrimSpace(raw.Raw)
		if len(raw.Raw) == 0 || bytes.Equal(raw.Raw, []byte("null")) {
			continue
		}
		object, _, err := unstructured.UnstructuredJSONScheme.Decode(raw.Raw, nil, nil)
		if err != nil {
			return found, err
		}
		queue := []runtime.Object{object}
		for i := 0; i < len(queue); i++ {
			if meta.IsListType(queue[i]) {
				items, err := meta.ExtractList(queue[i])
				if err != nil {
					return found, err
				}
				queue = append(queue, items...)
				continue
			}
			object := queue[i].(*unstructured.Unstructured) //nolint:forcetypeassert // of this scheme
			if object.GetKind() == "" || object.GetAPIVersion() == "" {
				return found, errors.New("no kind") // the API server has no such kind
			}
			found = append(found, object)
		}
	}
}

// TestBrokenDocuments reads many broken documents. The file must not be read again for each of
// them: that took minutes.
func TestBrokenDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("with the race detector, the pools of package regexp drop their memory")
	}
	const n, most = 20_000, 16 << 10
	var items []Item
	if took := allocs.Bytes(func() { items = Parse("f", []byte(strings.Repeat("---\n[\n", n))) }); took > n*most {
		t.Errorf("took %d bytes for a document, want at most %d", took/n, most)
	}
	if last := items[len(items)-1]; len(items) != n || last.Line != 2*n || last.Fault == nil {
		t.Errorf("got %d items, the last in line %d with %v", len(items), last.Line, last.Fault)
	}
}

// TestListDepth reads nested lists.
func TestListDepth(t *testing.T) {
	for depth, want := range map[int]string{
		1: "f:1 v1 Pod/evil", listDepthMax: "f:1 v1 Pod/evil", listDepthMax + 1: "f:1: got lists in lists, 5 deep, want at most 4",
		2000: "f:1: got lists in lists, 5 deep, want at most 4",
	} {
		content := strings.Repeat(`{"kind":"List","apiVersion":"v1","items":[`, depth) + evilFlow + strings.Repeat("]}", depth)
		if got := shown(Parse("f", []byte(content))); got != want {
			t.Errorf("%d deep: got %s, want %s", depth, got, want)
		}
	}
}
