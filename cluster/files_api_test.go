package cluster

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestVersionsInFiles writes objects in files: versions increase, and an outdated one is a
// conflict.
func TestVersionsInFiles(t *testing.T) {
	old := quota("old")
	old.ResourceVersion = "100"
	s, err := New(Options{Objects: []runtime.Object{old, quota("new")}})
	if err != nil {
		t.Fatal(err)
	}
	needs := []Need{ResourceQuotas.Watched(), ResourceQuotas.CalledStatus("update"), Namespaces.Called("create"), Namespaces.Watched()}
	if err := s.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	quotas := ResourceQuotas.In(s.View(needs...))
	version := func(name, want string) *corev1.ResourceQuota {
		t.Helper()
		q, ok := quotas.Cached(old.Namespace, name)
		if !ok || q.ResourceVersion != want {
			t.Errorf("%s: got %v, want version %s", name, q, want)
		}
		return q
	}
	version("old", "100")
	given := version("new", "101").DeepCopy()
	if got, err := quotas.UpdateStatus(t.Context(), given); err != nil || got.ResourceVersion != "102" {
		t.Errorf("got %v, %v, want version 102", got, err)
	}
	if _, err := quotas.UpdateStatus(t.Context(), given); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	given.ResourceVersion = "" // any current version
	if got, err := quotas.UpdateStatus(t.Context(), given); err != nil || got.ResourceVersion != "103" {
		t.Errorf("got %v, %v, want version 103", got, err)
	}
	made, err := Namespaces.In(s.View(needs...)).Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	if err != nil || made.Labels[corev1.LabelMetadataName] != "n" || made.Status.Phase != corev1.NamespaceActive {
		t.Errorf("got %v, %v, want its defaults", made, err)
	}

	// A verb that is declared for the object is not declared for its status.
	defer func() {
		const want = "cluster state: the plugin calls update for resourcequotas, but does not declare it in its Needs"
		if got := fmt.Sprint(recover()); got != want {
			t.Errorf("got %s", got)
		}
	}()
	quotas.must("update", "")
}

// TestPutEdges puts a document that is not an object, an object of a kind that is not
// followed, and a quota with its own usage.
func TestPutEdges(t *testing.T) {
	a := newAPIServer(t)
	s := a.newState(Options{Kinds: []*Kind{configMap.Kind}})
	need := configMap.Called("get", "list")
	if err := s.Follow(t.Context(), need); err != nil {
		t.Fatal(err)
	}
	if put, err := s.NewPutter().Put([]byte(`{`)); put || err == nil {
		t.Errorf("got %v, %v", put, err)
	}
	if put, err := s.NewPutter().Put([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":5}`)); put || err == nil {
		t.Errorf("got %v, %v", put, err)
	}
	put(t, s, `{"kind":"ResourceQuota","apiVersion":"v1","metadata":{"name":"q","namespace":"shop"}}`, false) // not followed
	for _, name := range []string{"one", "two"} {
		put(t, s, fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop"}}`, name), true)
		if _, err := configMap.In(s.View(need)).ListLive(t.Context(), "shop"); err != nil {
			t.Error(err)
		}
	}
	maps := s.find(configMap.Kind)
	kept := func(what string) {
		t.Helper()
		for _, name := range []string{"one", "two"} {
			if _, ok := maps.lookup("shop", name); !ok || maps.size() != 2 {
				t.Errorf("%s: got %v, %d objects, want what was put", what, ok, maps.size())
			}
		}
	}
	kept("put")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "one"}}
	if err := maps.Delete(object); err != nil {
		t.Error(err)
	}
	kept("deleted in the cluster")
	if err := maps.Add(object); err != nil {
		t.Error(err)
	}
	kept("changed in the cluster")
	if err := maps.Replace(nil, "7"); err != nil {
		t.Error(err)
	}
	kept("nothing in the cluster")

	files, err := New(Options{Objects: []runtime.Object{}})
	if err != nil {
		t.Fatal(err)
	}
	needs := []Need{ResourceQuotas.Watched()}
	if err := files.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	put(t, files, `{"kind":"ResourceQuota","apiVersion":"v1","metadata":{"name":"q","namespace":"shop"},"spec":{"hard":{"pods":"3"}},`+
		`"status":{"hard":{"pods":"2"},"used":{"pods":"1"}}}`, true)
	put(t, files, `{"kind":"ResourceQuota","apiVersion":"v1","metadata":{"name":"r","namespace":"shop"},"spec":{"hard":{"pods":"3"}}}`,
		true)
	quotas := ResourceQuotas.In(files.View(needs...))
	for name, want := range map[string]corev1.ResourceQuotaStatus{
		"q": {Hard: corev1.ResourceList{"pods": resource.MustParse("2")}, Used: corev1.ResourceList{"pods": resource.MustParse("1")}},
		"r": {Hard: corev1.ResourceList{"pods": resource.MustParse("3")}, Used: corev1.ResourceList{"pods": resource.MustParse("0")}},
	} {
		got, err := quotas.GetLive(t.Context(), "shop", name)
		if err != nil {
			t.Fatal(err)
		}
		used, ok := got.Status.Used["pods"]
		if hard := got.Status.Hard["pods"]; !ok || used.Cmp(want.Used["pods"]) != 0 || hard.Cmp(want.Hard["pods"]) != 0 {
			t.Errorf("%s: got %v, want %v", name, got.Status, want)
		}
	}
	if err := (*View)(nil).Ready(); err != nil {
		t.Errorf("got %v of a plugin without needs", err)
	}
}

// TestStoreForgets adds objects twice to a store, and deletes them.
func TestStoreForgets(t *testing.T) {
	a := newAPIServer(t)
	s := a.newState(Options{})
	if err := s.Follow(t.Context(), Namespaces.Called("get"), Namespaces.Called("list").By("A"),
		Namespaces.Called("get").By("B"), Namespaces.Called("get").By("A")); err != nil {
		t.Fatal(err)
	}
	namespaces := s.find(Namespaces.Kind)
	if err := namespaces.unsynced(); !strings.Contains(err.Error(), "namespaces, needed by A, B, are not known yet") {
		t.Errorf("got %v", err)
	}
	for range 2 {
		if err := namespaces.Add(namespace("one")); err != nil || namespaces.size() != 1 {
			t.Errorf("got %d objects, %v, want 1", namespaces.size(), err)
		}
	}
	if err := namespaces.Delete(namespace("one")); err != nil || namespaces.size() != 0 || len(namespaces.now.buckets) != 0 {
		t.Errorf("got %d objects in %d buckets, %v, want none", namespaces.size(), len(namespaces.now.buckets), err)
	}
	s.addMetrics(namespaces)
	if err := namespaces.Replace([]any{new(corev1.Pod)}, ""); err == nil || namespaces.fault.Load() == nil {
		t.Errorf("got %v, want an error that is noted", err)
	}
	if err := namespaces.Replace([]any{namespace("two")}, ""); err != nil || namespaces.fault.Load() != nil || namespaces.size() != 1 {
		t.Errorf("got %v, %d objects, want the fault forgotten", err, namespaces.size())
	}
}

// TestKubeconfigFiles has kubeconfigs that name files relative to themselves, and files that
// nobody should write to.
func TestKubeconfigFiles(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skip(err)
	}
	f := func(cluster, user, context string, want string) {
		t.Helper()
		dir := folder(t, map[string]string{"token": "secret", "ca": "",
			"kubeconfig": fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x",`+
				`"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"%s}}],"users":[{"name":"u","user":{%s}}],`+
				`"contexts":[{"name":"x","context":{%s}}]}`, cluster, user, context)})
		config, err := RESTConfig(filepath.Join(dir, "kubeconfig"), "")
		switch {
		case want == "" && (err != nil || user != "" && config.BearerTokenFile != filepath.Join(dir, "token")):
			t.Errorf("%s %s: got %+v, %v", cluster, user, config, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s %s: got %v, want %q", cluster, user, err, want)
		}
	}
	const both = `"cluster":"c","user":"u"`
	f("", `"tokenFile":"token"`, both, "")
	f(`,"certificate-authority":"ca"`, "", `"cluster":"c"`, "")
	f("", `"tokenFile":"none"`, both, "none")
	f(fmt.Sprintf(`,"certificate-authority":%q`, fifo), "", both, fifo)
	f(fmt.Sprintf(`,"certificate-authority":%q`, fifo), `"tokenFile":"token"`, `"cluster":"c","user":"other"`, fifo)
	for _, field := range []string{"client-certificate", "client-key", "tokenFile"} {
		f("", fmt.Sprintf("%q:%q", field, fifo), both, fifo)
	}
	f("", "", `"cluster":"other"`, `the cluster of context "x": got "other", want one of c`)

	// Several files are those of KUBECONFIG: client-go decides which entry counts.
	names := []string{filepath.Join(t.TempDir(), "none")}
	for i, current := range []string{"", "y", "x"} {
		dir := folder(t, map[string]string{"kubeconfig": fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":%q,`+
			`"clusters":[{"name":"c%[2]d","cluster":{"server":"https://own:%[2]d"}},`+
			`{"name":"c","cluster":{"server":"https://same:%[2]d"}}],`+
			`"users":[{"name":"u","user":{"tokenFile":"token%[2]d"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}},`+
			`{"name":"y","context":{"cluster":"c%[2]d","user":"u"}},{"name":"z%[2]d","context":{"cluster":"c%[2]d"}}]}`, current, i),
			fmt.Sprintf("token%d", i): ""})
		names = append(names, filepath.Join(dir, "kubeconfig"))
	}
	for _, context := range []string{"", "x", "y", "z0", "z1", "z2"} {
		got, err := RESTConfig(strings.Join(names, string(filepath.ListSeparator)), context)
		want, wantErr := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{Precedence: names},
			&clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
		if err != nil || wantErr != nil || got.Host != want.Host || got.BearerTokenFile != want.BearerTokenFile {
			t.Errorf("%q: got %+v, %v, want %+v, %v", context, got, err, want, wantErr)
		}
	}

	// The client sends its user agent.
	a := newAPIServer(t)
	for agent, want := range map[string]string{"": rest.DefaultKubernetesUserAgent(), "fastadmit/1": "fastadmit/1"} {
		s, err := New(Options{Kubeconfig: writeKubeconfig(t, &clientcmdapi.Cluster{Server: "http://" + a.addr}), UserAgent: agent})
		if err != nil {
			t.Fatal(err)
		}
		need := Namespaces.Called("get")
		asJSON := namespacesAsJSON.Called("get")
		if err := s.Follow(t.Context(), need, asJSON); err != nil {
			t.Fatal(err)
		}
		lastRequest := func() *http.Request {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.requests[len(a.requests)-1]
		}
		if _, err := namespacesAsJSON.In(s.View(asJSON)).GetLive(t.Context(), "", "none"); !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
		if accept := lastRequest().Header.Get("Accept"); accept != "application/json" {
			t.Errorf("accepts %q, want JSON", accept)
		}
		if _, err := Namespaces.In(s.View(need)).GetLive(t.Context(), "", "none"); !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
		last := lastRequest()
		if got, accept := last.UserAgent(), last.Header.Get("Accept"); got != want ||
			accept != "application/vnd.kubernetes.protobuf,application/json" {
			t.Errorf("got %q, accepting %q, want %q", got, accept, want)
		}
	}
}
