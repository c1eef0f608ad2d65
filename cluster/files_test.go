package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// folder writes files, by name.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// fromDir returns a State of namespaces and ConfigMaps in a folder, ready.
func fromDir(t *testing.T, dir string) (*State, *Objects[*corev1.Namespace]) {
	t.Helper()
	s, err := New(Options{Dir: dir, Kinds: []*Kind{configMap.Kind}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Follow(t.Context(), followed()...); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, namespacesIn(s)
}

func TestDir(t *testing.T) {
	dir := folder(t, map[string]string{
		"a.yaml": `# what one would send
apiVersion: v1
kind: Namespace
metadata:
  name: one
  labels: {team: a}
---
# nothing
---
apiVersion: v1
kind: Namespace
metadata: {name: two, annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}", kept: "yes"}}
status: {phase: Terminating}
--- # as kubectl get -o yaml writes it
apiVersion: v1
kind: List
metadata: {resourceVersion: ""}
items:
- apiVersion: v1
  kind: Namespace
  metadata:
    name: three
    resourceVersion: "7"
    managedFields: [{manager: kubectl, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:metadata": {}}}]
- {apiVersion: v1, kind: ConfigMap, metadata: {namespace: one, name: c}, data: {k: v}}
`,
		"b.json": "{\n\t\"apiVersion\": \"v1\", \"kind\": \"NamespaceList\",\n" +
			"\t\"items\": [{\"metadata\": {\"name\": \"four\"}}]\n}\n",
		"c.yml":         "---\r\napiVersion: v1\r\nkind: Namespace\r\nmetadata:\r\n  name: five\r\n",
		"empty.yaml":    "# nothing\n",
		"README.md":     "not read",
		"below/d.yaml":  "not read",
		"e.yaml.swp":    "not read",
		"folder.yaml/x": "not read",
	})
	if err := os.Symlink(filepath.Join(dir, "link"), filepath.Join(dir, "f.yaml")); err != nil { // a mounted ConfigMap has such links
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "link"), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: six}"),
		0o644); err != nil {
		t.Fatal(err)
	}
	s, n := fromDir(t, dir)
	if all := all(n.List("")); len(all) != 6 {
		t.Fatalf("got %d namespaces, want 6", len(all))
	}
	f := func(name string, want labels.Set, phase corev1.NamespacePhase) {
		t.Helper()
		got, err := n.Get(t.Context(), "", name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		want[corev1.LabelMetadataName] = name
		if labels := labels.Set(got.Labels); !labels.AsSelectorPreValidated().Matches(want) || len(want) != len(labels) ||
			got.Status.Phase != phase {
			t.Errorf("%s: got labels %v and phase %s, want %v and %s", name, labels, got.Status.Phase, want, phase)
		}
		if got.ManagedFields != nil || got.Annotations[lastApplied] != "" || name == "two" && got.Annotations["kept"] != "yes" {
			t.Errorf("%s: got %+v, want what is kept and no more", name, got)
		}
	}
	f("one", labels.Set{"team": "a"}, corev1.NamespaceActive)
	f("two", labels.Set{}, corev1.NamespaceTerminating)
	f("three", labels.Set{}, corev1.NamespaceActive)
	f("four", labels.Set{}, corev1.NamespaceActive)
	f("five", labels.Set{}, corev1.NamespaceActive)
	f("six", labels.Set{}, corev1.NamespaceActive)

	if _, err := n.Get(t.Context(), "", "seven"); !apierrors.IsNotFound(err) || err.Error() != `namespaces "seven" not found` {
		t.Errorf("got %v, want what kube-apiserver would say", err)
	}
	maps := configMap.In(s.View(followed()...))
	if c, err := maps.Get(t.Context(), "one", "c"); err != nil || c.Data != nil {
		t.Errorf("got %v, %v, want a ConfigMap without data", c, err)
	}
	if c, err := maps.GetLive(t.Context(), "one", "c"); err != nil || c.Data["k"] != "v" {
		t.Errorf("got %v, %v, want the whole ConfigMap", c, err)
	}
}

func TestDirIsWrong(t *testing.T) {
	f := func(content, want string) {
		t.Helper()
		dir := folder(t, map[string]string{"a.yaml": content})
		_, err := New(Options{Dir: dir, Kinds: []*Kind{configMap.Kind}})
		if err == nil {
			t.Errorf("%q: got no error, want %q", content, want)
			return
		}
		known := (&reader{state: &State{kinds: append(Kinds(), configMap.Kind)}}).supportedKinds()
		if got := strings.NewReplacer(dir, "DIR", known, "KINDS").Replace(err.Error()); got != want {
			t.Errorf("%q: got\n%s\nwant\n%s", content, got, want)
		}
	}
	const ns = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: one\n"
	f(ns+"spec: {foo: 1}\n---\n"+ns,
		`cluster state: DIR/a.yaml:1: document 1: strict decoding error: unknown field "spec.foo"`)
	f(ns+"---\n"+ns+"---\n# x\n"+ns,
		`cluster state: DIR/a.yaml:5: document 2: Namespace "one" is also in DIR/a.yaml:1: document 1`+"\n"+
			`cluster state: DIR/a.yaml:10: document 3: Namespace "one" is also in DIR/a.yaml:1: document 1`)
	f(ns+"---\n"+ns+"  name: two\n",
		"cluster state: DIR/a.yaml:5: document 2: yaml: unmarshal errors:\n  line 10: key \"name\" already set in map")
	f("{apiVersion: v1, kind: Namespace, metadata: {name: one}}\n---\n{kind: Namespace",
		"cluster state: DIR/a.yaml:2: document 2: yaml: line 3: did not find expected ',' or '}'")
	f(ns+"...\n# x\n"+ns+"...\n",
		`cluster state: DIR/a.yaml:6: document 2: Namespace "one" is also in DIR/a.yaml:1: document 1`)
	f(ns+"---\nkind: [\n",
		"cluster state: DIR/a.yaml:5: document 2: yaml: line 6: did not find expected node content")
	f("apiVersion: v1\nkind: Secret\nmetadata: {name: one}\n",
		`cluster state: DIR/a.yaml:1: document 1: got kind "Secret" of apiVersion "v1", want one of KINDS, or a list of them`)
	f("apiVersion: v2\nkind: Namespace\n",
		`cluster state: DIR/a.yaml:1: document 1: got kind "Namespace" of apiVersion "v2", want one of KINDS, or a list of them`)
	f("kind: Namespace\nmetadata: {name: one, labels: {password: secret}}\n",
		`cluster state: DIR/a.yaml:1: document 1: got kind "Namespace" of apiVersion "", want one of KINDS, or a list of them`)
	f("apiVersion: v1\nkind: Status\n",
		`cluster state: DIR/a.yaml:1: document 1: got kind "Status" of apiVersion "v1", want one of KINDS, or a list of them`)
	f("apiVersion: a/b/c\nkind: Namespace\n",
		`cluster state: DIR/a.yaml:1: document 1: unexpected GroupVersion string: a/b/c`)
	f("apiVersion: v1\nkind: Namespace\n",
		`cluster state: DIR/a.yaml:1: document 1: Namespace: metadata.name is missing`)
	f("apiVersion: v1\nkind: Namespace\nmetadata: {name: one, namespace: two}\n",
		`cluster state: DIR/a.yaml:1: document 1: Namespace "two/one": got a metadata.namespace, want none: the kind is not namespaced`)
	f("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n",
		`cluster state: DIR/a.yaml:1: document 1: ConfigMap "one": metadata.namespace is missing`)
	f("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: one}}\n"+
		"- {apiVersion: v1, kind: Namespace, metadata: {name: two}, bad: 1}\n",
		`cluster state: DIR/a.yaml:1: document 1: items[1]: strict decoding error: unknown field "bad"`)
	f("apiVersion: v1\nkind: NamespaceList\nitems:\n- metadata: {name: one}\n- metadata: {name: one}\n",
		`cluster state: DIR/a.yaml:1: document 1: items[1]: Namespace "one" is also in DIR/a.yaml:1: document 1: items[0]`)
	f("one\n",
		`cluster state: DIR/a.yaml:1: document 1: couldn't get version/kind; json parse error: json: cannot unmarshal `+
			`string into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string `+
			`"json:\"kind,omitempty\"" }`)
	f(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one", "name": "two"}}`,
		`cluster state: DIR/a.yaml:1: document 1: strict decoding error: duplicate field "metadata.name"`)
	f(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}} {}`,
		`cluster state: DIR/a.yaml:1: document 1: couldn't get version/kind; json parse error: invalid character '{' after `+
			`top-level value`)
}

func TestDirIsNone(t *testing.T) {
	f := func(dir, want string) {
		t.Helper()
		_, err := New(Options{Dir: dir})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", dir, err, want)
		}
	}
	f(filepath.Join(t.TempDir(), "none"), "none: no such file or directory")
	f(folder(t, map[string]string{"a.yaml": ""})+"/a.yaml", "a.yaml: ")
	large := folder(t, map[string]string{"a.yaml": ""})
	if err := os.Truncate(filepath.Join(large, "a.yaml"), stateBytesMax+1); err != nil {
		t.Fatal(err)
	}
	f(large, "got 536870913 bytes, want at most 536870912")
	f(folder(t, map[string]string{"below/a.yaml": "", "b.txt": ""}), `has no file that ends in one of [".yaml" ".yml" ".json"]`)
}

// FuzzDir checks that no file causes a panic.
func FuzzDir(f *testing.F) {
	f.Add([]byte("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: one}\n---\n"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[null,{},{"apiVersion":"v1","kind":"NamespaceList","items":[{}]}]}`))
	f.Add([]byte("--- |\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		_, _ = New(Options{Dir: folder(t, map[string]string{"a.yaml": string(content)}), Kinds: []*Kind{configMap.Kind}})
	})
}

func TestEmbedded(t *testing.T) {
	s, err := New(Options{Embedded: true})
	if err != nil {
		t.Fatal(err)
	}
	n := namespacesIn(s)
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		if got, ok := n.Cached("", name); !ok || got.Labels[corev1.LabelMetadataName] != name {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	if got, err := n.Get(t.Context(), "", "shop"); err != nil || got.Name != "shop" || got.Labels[corev1.LabelMetadataName] != "shop" {
		t.Errorf("got %v, %v, want each namespace to exist", got, err)
	}
	accounts := ServiceAccounts.In(s.View(ServiceAccounts.Watched()))
	if got, err := accounts.GetLive(t.Context(), "shop", "default"); err != nil || got.Namespace != "shop" || got.Name != "default" {
		t.Errorf("got %v, %v, want each namespace to have its account", got, err)
	}
	if got, err := accounts.GetLive(t.Context(), "shop", "web"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, %v, want no other account", got, err)
	}
}

func TestOptionsAreWrong(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	f := func(o Options, want string) {
		t.Helper()
		_, err := New(o)
		if err == nil || !strings.HasPrefix(err.Error(), "cluster state: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error with %q", o, err, want)
		}
	}
	f(Options{}, "does not run in a Pod; name a kubeconfig with --kubeconfig")
	f(Options{Kubeconfig: "a", Dir: "b"}, "got more than one of")
	f(Options{Kubeconfig: "a", Embedded: true}, "got more than one of")
	f(Options{Kubeconfig: "a", Objects: []runtime.Object{}}, "got more than one of")
	f(Options{Dir: "a", Objects: []runtime.Object{}}, "got more than one of")
	f(Options{Embedded: true, Objects: []runtime.Object{}}, "got more than one of")
	f(Options{Kubeconfig: "/does/not/exist"}, "cannot read kubeconfig /does/not/exist: ")
	f(Options{Kubeconfig: filepath.Join(folder(t, map[string]string{"k": "{"}), "k")}, "cannot read kubeconfig ")
	f(Options{Kubeconfig: filepath.Join(folder(t, map[string]string{"k": "{}"}), "k")},
		`current-context: got "", but the kubeconfig has none`)

	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	f(Options{}, "/var/run/secrets/kubernetes.io/serviceaccount/token")
}

// TestUndeclared reads kinds that are not among the needs.
func TestUndeclared(t *testing.T) {
	s, _ := fromDir(t, folder(t, map[string]string{"a.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: one}"}))
	f := func(want string, ask func()) {
		t.Helper()
		defer func() {
			if got := fmt.Sprint(recover()); got != want {
				t.Errorf("got panic %s, want %s", got, want)
			}
		}()
		ask()
	}
	const not = ", but does not declare it in its Needs"
	f("cluster state: the plugin reads namespaces, but does not declare them in its Needs",
		func() { Namespaces.In(s.View(configMap.Watched())) })
	called := Namespaces.In(s.View(Namespaces.Called("create")))
	f("cluster state: the plugin calls watch for namespaces"+not, func() { called.Cached("", "one") })
	f("cluster state: the plugin calls watch for namespaces"+not, func() { called.List("") })
	f("cluster state: the plugin calls watch for namespaces"+not, func() { called.Subscribe(func() {}) })
	f("cluster state: the plugin calls delete for namespaces"+not, func() { _ = called.Delete(t.Context(), "", "one") })
	f("cluster state: the plugin calls get for namespaces"+not, func() { _, _ = called.GetLive(t.Context(), "", "one") })
	f("cluster state: the plugin calls list for namespaces"+not, func() { _, _ = called.ListLive(t.Context(), "") })
	f("cluster state: the plugin calls update for namespaces/status"+not,
		func() { _, _ = called.UpdateStatus(t.Context(), &corev1.Namespace{}) })
	f("cluster state: the plugin calls create for namespaces"+not, func() {
		_, _ = Namespaces.In(s.View(Namespaces.Watched())).Create(t.Context(), &corev1.Namespace{})
	})
}
