package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds as plugins define them: one of their own, and Namespaces and ConfigMaps again.
var (
	teams = DefineJSON(Definition{Group: "example.com", Version: "v1", Resource: "teams", Kind: "Team", Namespaced: true},
		"spec.owner", "spec.env", "metadata.labels")

	wholeTeams = DefineJSON(Definition{Group: "example.com", Version: "v1", Resource: "teams", Kind: "Team", Namespaced: true})

	optionalTeams = DefineJSON(Definition{Group: "example.com", Version: "v1", Resource: "teams", Kind: "Team",
		Namespaced: true, Optional: true})

	namespacesAsJSON = DefineJSON(Definition{Version: "v1", Resource: "namespaces", Kind: "Namespace"}, "spec")

	wholeConfigMaps = Define(Definition{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true},
		Type[*corev1.ConfigMap]{})
)

// TestTwoDefinitions has three plugins define Namespaces with different cached fields.
func TestTwoDefinitions(t *testing.T) {
	a := newAPIServer(t)
	a.put(namespace("one", "team", "a"))
	set := metrics.NewSet()
	s := a.newState(Options{Metrics: set})
	whole := Define(Definition{Version: "v1", Resource: "namespaces", Kind: "Namespace"},
		Type[*corev1.Namespace]{List: &corev1.NamespaceList{}})
	needs := []Need{Namespaces.Watched(), whole.Watched(), namespacesAsJSON.Watched()}
	if err := s.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := s.View(needs...)
	<-Namespaces.In(v).Synced()
	var told atomic.Bool
	Namespaces.In(v).Subscribe(func() { told.Store(true) })
	builtIn, _ := Namespaces.In(v).Cached("", "one")
	if builtIn == nil || builtIn.OwnerReferences != nil || builtIn.Labels["team"] != "a" {
		t.Errorf("the built-in kind has %v, want labels and no owners", builtIn)
	}
	got, _ := whole.In(v).Cached("", "one")
	if got == nil || got.Generation != 3 || got.OwnerReferences == nil || got.Annotations["kept"] != "yes" ||
		got.ManagedFields != nil || got.Annotations[lastApplied] != "" {
		t.Errorf("the whole kind has %v, want all but managed fields and %s", got, lastApplied)
	}
	j, _ := namespacesAsJSON.In(v).Cached("", "one")
	if j == nil || j.Value().Get("spec", "finalizers", "0").String() != "kubernetes" || j.Value().Get("metadata", "labels").Exists() ||
		j.GetLabels() != nil || j.GetUID() != "1-2" || j.Value().Get("metadata", "name").String() != "one" {
		t.Errorf("the JSON kind has %s, want the spec and the identity", j.text)
	}
	a.put(namespace("two"))
	eventually(t, "all hear of a change", func() bool {
		return told.Load() && len(Namespaces.In(v).List("")) == 2 && len(whole.In(v).List("")) == 2 &&
			len(namespacesAsJSON.In(v).List("")) == 2
	})
	var text strings.Builder
	set.WritePrometheus(&text)
	for _, series := range []string{`fastadmit_cluster_objects{resource="namespaces"} 6`,
		`fastadmit_cluster_synced{resource="namespaces"} 1`} {
		if !strings.Contains(text.String(), series+"\n") {
			t.Errorf("want the series %s in\n%s", series, text.String())
		}
	}
}

// TestJSONKind reads objects in all ways, including live ones.
func TestJSONKind(t *testing.T) {
	a := newAPIServer(t)
	a.put(namespace("one", "team", "a"))
	s := a.newState(Options{})
	need := namespacesAsJSON.Watched()
	if err := s.Follow(t.Context(), need); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	objects := namespacesAsJSON.In(s.View(need))
	live, err := objects.GetLive(t.Context(), "", "one")
	if err != nil || live.Value().Get("metadata", "labels", "team").String() != "a" || live.GetLabels()["team"] != "a" {
		t.Errorf("live: got %v, %v, want all fields", live, err)
	}
	all, err := objects.ListLive(t.Context(), "")
	if err != nil || len(all) != 1 || all[0].GetName() != "one" {
		t.Errorf("live list: got %v, %v, want one", all, err)
	}
	if _, err := objects.GetLive(t.Context(), "", "none"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want that it is not found", err)
	}
	got, err := objects.Get(t.Context(), "", "one")
	if err != nil || got.Value().Get("metadata", "labels").Exists() || !got.Value().Get("spec").Exists() {
		t.Errorf("get: got %v, %v, want what the cache keeps", got, err)
	}
	kept := got.Value().Get("spec", "finalizers", "0").String()
	a.remove(namespace("one"))
	eventually(t, "it is gone", func() bool { _, ok := objects.Cached("", "one"); return !ok })
	if kept != "kubernetes" {
		t.Errorf("a string that was kept is %q now", kept)
	}
}

// TestJSONReaders has many goroutines read one object, for the race detector.
func TestJSONReaders(t *testing.T) {
	j, err := NewJSON([]byte(teamJSON))
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for range 100 {
				v := j.Value()
				if note := v.Get("metadata", "annotations", "note").String(); note != `kept "quoted"` ||
					v.Get("spec", "env", "TEAM").String() != "red" {
					t.Errorf("got the note %q", note)
				}
			}
		})
	}
	readers.Wait()
}

// TestKeptFields compares the kept fields with those that encoding/json decodes.
func TestKeptFields(t *testing.T) {
	f := func(want string, keep ...string) {
		t.Helper()
		kind := DefineJSON(Definition{Group: "example.com", Version: "v1", Resource: "teams", Kind: "Team"}, keep...)
		j, err := NewJSON([]byte(teamJSON))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the reflector trims objects twice
			trimmed, err := kind.trim(j)
			if err != nil {
				t.Fatal(err)
			}
			j = trimmed.(*JSON)
		}
		var got, wanted map[string]any
		if json.Unmarshal(j.text, &got) != nil || json.Unmarshal([]byte(want), &wanted) != nil || !reflect.DeepEqual(got, wanted) {
			t.Errorf("%q:\ngot  %s\nwant %s", keep, j.text, want)
		}
	}
	const start = `{"apiVersion":"example.com/v1","kind":"Team","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z",` +
		`"name":"red","namespace":"one","resourceVersion":"42","uid":"1-2"`
	f(start+`},"spec":{"owner":"ann"}}`, "spec.owner")
	f(start+`},"spec":{"owner":"ann","quota":{"cpu":"4"}}}`, "spec.quota.cpu", "spec.owner", "spec.none", "none.at.all")
	f(start+`,"labels":{"a":"b"}},"status":{"ready":true,"conditions":[{"type":"Ready","status":"True"}]}}`, "metadata.labels",
		"status.ready", "status")
	f(start+`},"spec":{}}`, "spec.owner.name", "spec.members.name") // strings and arrays have no members
	f(start+`},"spec":{"quota":{}}}`, "spec.quota.none.at.all", "spec.nothing")
	f(start + `,"annotations":{"note":"kept \"quoted\""},"generation":3,"labels":{"a":"b"}},"spec":{"owner":"ann",` +
		`"quota":{"cpu":"4","memory":"8Gi"},` +
		`"members":[{"name":"ann","role":"lead"},{"name":"bob","role":"member"},{"name":"cid","role":"member"}],` +
		`"env":{"TEAM":"red","STAGE":"prod"}},` +
		`"status":{"ready":true,"conditions":[{"type":"Ready","status":"True"}]}}`)
}

// teamsAPI answers about teams as an API server does that has their CustomResourceDefinition
// while served is true.
func teamsAPI(a *apiServer, served *atomic.Bool) {
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path != "/apis/example.com/v1/teams":
			return false
		case !served.Load():
			http.Error(w, "404 page not found", http.StatusNotFound)
		case r.URL.Query().Get("sendInitialEvents") == "true":
			a.fail(w, r, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
		case isWatch(r):
			w.(http.Flusher).Flush()
			for i := 0; served.Load() && r.Context().Err() == nil && i < 1000; i++ {
				time.Sleep(time.Millisecond)
			}
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind":"TeamList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"1"},"items":[%s]}`, teamJSON)
		}
		return true
	})
}

// TestAbsentKind has a kind without a CustomResourceDefinition that a plugin needs: the
// error says so, and the kind works after the definition was created.
func TestAbsentKind(t *testing.T) {
	a := newAPIServer(t)
	var served atomic.Bool
	teamsAPI(a, &served)
	s := a.newState(Options{})
	if err := s.Follow(t.Context(), teams.Called("get")); err != nil {
		t.Fatal(err)
	}
	s.find(teams.Kind).timing = fastTiming
	need := teams.Watched().By("TeamLabels")
	if err := s.Follow(t.Context(), need); err != nil {
		t.Fatal(err)
	}
	const want = "cluster state: teams.example.com, needed by TeamLabels, are not known yet: " +
		"the API server does not have the resource teams of example.com/v1; if it is one of a CustomResourceDefinition, install that: "
	v := s.View(need)
	eventually(t, "the reason is told", func() bool { err := v.Ready(); return err != nil && strings.HasPrefix(err.Error(), want) })
	served.Store(true)
	eventually(t, "it becomes ready", func() bool { return v.Ready() == nil })
	team, ok := teams.In(v).Cached("one", "red")
	if !ok || team.Value().Get("spec", "owner").String() != "ann" || team.Value().Get("spec", "quota").Exists() {
		t.Errorf("got %v, want a team with its owner and no quota", team)
	}
}

// TestOptionalKind has a kind that a plugin can do without: it appears, disappears, and
// appears again, without failures.
func TestOptionalKind(t *testing.T) {
	a := newAPIServer(t)
	var served atomic.Bool
	teamsAPI(a, &served)
	s := a.newState(Options{})
	if err := s.Follow(t.Context(), optionalTeams.Called("get")); err != nil {
		t.Fatal(err)
	}
	s.find(optionalTeams.Kind).timing = fastTiming
	if err := s.Follow(t.Context(), optionalTeams.Watched()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is ready", func() bool { return s.Ready() == nil })
	objects := optionalTeams.In(s.View(optionalTeams.Watched()))
	for range 2 {
		served.Store(true)
		eventually(t, "the object is known", func() bool { return len(objects.List("")) == 1 })
		served.Store(false)
		eventually(t, "the object is gone", func() bool { return len(objects.List("")) == 0 })
	}
}

const teamYAML = `apiVersion: example.com/v1
kind: Team
metadata: {name: red, namespace: one, labels: {a: b}}
spec: {owner: ann, quota: {cpu: "4"}}
`

// TestOpenKindsInFiles has files instead of an API server.
func TestOpenKindsInFiles(t *testing.T) {
	kinds := []*Kind{teams.Kind, wholeTeams.Kind, wholeConfigMaps.Kind, configMap.Kind, namespacesAsJSON.Kind, teams.Kind}
	dir := folder(t, map[string]string{
		"a.yaml": teamYAML + "---\napiVersion: v1\nkind: List\nitems:\n" +
			"- {apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: one}, data: {k: v}}\n",
		"b.json": `{"apiVersion":"example.com/v1","kind":"TeamList","items":[{"metadata":{"name":"blue","namespace":"one"}}]}`,
		"c.yaml": `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}, "spec": {"finalizers": ["kubernetes"]}}`,
	})
	s, err := New(Options{Dir: dir, Kinds: kinds})
	if err != nil {
		t.Fatal(err)
	}
	var needs []Need
	for _, kind := range append(kinds, Namespaces.Kind) {
		needs = append(needs, kind.Watched())
	}
	if err := s.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	v := s.View(needs...)
	if got := teams.In(v).List("one"); len(got) != 2 || got[1].Value().Get("spec", "owner").String() != "ann" ||
		got[1].Value().Get("spec", "quota").Exists() {
		t.Errorf("teams: got %v, want blue and red with its owner alone", got)
	}
	team, err := wholeTeams.In(v).Get(t.Context(), "one", "red")
	if err != nil || team.Value().Get("spec", "quota", "cpu").String() != "4" || team.GetResourceVersion() == "" ||
		team.GetResourceVersion() != team.Value().Get("metadata", "resourceVersion").String() {
		t.Errorf("whole teams: got %v, %v, want the quota and a resource version", team, err)
	}
	if c, ok := wholeConfigMaps.In(v).Cached("one", "c"); !ok || c.Data["k"] != "v" {
		t.Errorf("config maps: got %v, want its data", c)
	}
	if c, ok := configMap.In(v).Cached("one", "c"); !ok || c.Data != nil {
		t.Errorf("config maps that keep no data: got %v", c)
	}
	if n, ok := namespacesAsJSON.In(v).Cached("", "one"); !ok || !n.Value().Get("spec", "finalizers").Exists() {
		t.Errorf("namespaces: got %v, want the finalizers", n)
	}
	putTeam(t, s, v)

	refused := func(want, file string) {
		t.Helper()
		_, err := New(Options{Dir: folder(t, map[string]string{"a.yaml": file}), Kinds: kinds})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "cluster state:") != 1 {
			t.Errorf("got %v, want one error with %q", err, want)
		}
	}
	refused(`Team "one/red" is also in`, teamYAML+"---\n"+teamYAML)
	refused("Team: metadata.name is missing", `{"apiVersion": "example.com/v1", "kind": "Team"}`)
	refused("metadata.namespace is missing", `{"apiVersion": "example.com/v1", "kind": "Team", "metadata": {"name": "red"}}`)
	refused("got null, want an object", `{"apiVersion": "example.com/v1", "kind": "TeamList", "items": [null]}`)
	refused(`got kind "Crew" of apiVersion "example.com/v1", want one of`,
		`{"apiVersion": "example.com/v1", "kind": "Crew", "metadata": {"name": "red"}}`)
}

// putTeam adds an object to those in the files, and changes one.
func putTeam(t *testing.T, s *State, v *View) {
	t.Helper()
	put, err := s.NewPutter().Put([]byte(strings.Replace(teamJSON, `"ann"`, `"eve"`, 1)))
	if team, _ := teams.In(v).Cached("one", "red"); err != nil || !put || team.Value().Get("spec", "owner").String() != "eve" {
		t.Errorf("put: got %v, %v, %v, want another owner", team, put, err)
	}
	if team, _ := wholeTeams.In(v).Cached("one", "red"); !team.Value().Get("status").Exists() {
		t.Errorf("put: got %v, want the status where it is kept", team)
	}
	need := wholeTeams.Called("create")
	if err := s.Follow(t.Context(), need); err != nil {
		t.Fatal(err)
	}
	created, err := NewJSON([]byte(`{"apiVersion":"example.com/v1","kind":"Team","metadata":{"name":"green",` +
		`"namespace":"one"},"spec":{"owner":"joe"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wholeTeams.In(s.View(need)).Create(context.Background(), created); err != nil {
		t.Error(err)
	}
	if team, ok := wholeTeams.In(v).Cached("one", "green"); !ok || team.Value().Get("spec", "owner").String() != "joe" {
		t.Errorf("create: got %v", team)
	}
}

// noJSON is an object that cannot be encoded.
type noJSON struct {
	metav1.TypeMeta
	Function func()
}

func (n *noJSON) DeepCopyObject() runtime.Object { return n }

// TestObjectsOfOpenKinds has objects as in tests of plugins: typed ones, JSON, and
// unstructured ones of other packages.
func TestObjectsOfOpenKinds(t *testing.T) {
	red, err := NewJSON([]byte(teamJSON))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{
		Objects: []runtime.Object{red, namespace("one", "team", "a")},
		Kinds:   []*Kind{teams.Kind, namespacesAsJSON.Kind},
	})
	if err != nil {
		t.Fatal(err)
	}
	v := s.View(teams.Watched(), namespacesAsJSON.Watched(), Namespaces.Watched())
	if team, ok := teams.In(v).Cached("one", "red"); !ok || team.Value().Get("spec", "env", "TEAM").String() != "red" {
		t.Errorf("got %v, want the team", team)
	}
	if n, ok := namespacesAsJSON.In(v).Cached("", "one"); !ok || !n.Value().Get("spec").Exists() {
		t.Errorf("got %v, want the namespace as JSON", n)
	}
	if n, ok := Namespaces.In(v).Cached("", "one"); !ok || n.Labels["team"] != "a" {
		t.Errorf("got %v, want the namespace", n)
	}
	if _, err := New(Options{Objects: []runtime.Object{&noJSON{}}}); err == nil ||
		!strings.Contains(err.Error(), "object 0: json: unsupported type: func()") {
		t.Errorf("got %v for an object that cannot be encoded", err)
	}
	if _, err := New(Options{Objects: []runtime.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}}}); err == nil ||
		!strings.Contains(err.Error(), "object 0: got a *v1.Secret without apiVersion and kind") {
		t.Errorf("got %v, want an error about the Secret", err)
	}
}

// TestWrongDefinition checks that an invalid definition fails at once.
func TestWrongDefinition(t *testing.T) {
	f := func(want string, define func()) {
		t.Helper()
		defer func() {
			t.Helper()
			if got := fmt.Sprint(recover()); got != want && !strings.Contains(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}()
		define()
	}
	team := Definition{Group: "example.com", Version: "v1", Resource: "teams", Kind: "Team"}
	f("<nil>", func() { DefineJSON(team, "spec") })
	f(`kind Team: got the field "spec."`, func() { DefineJSON(team, "spec.") })
	f(`kind Team: got the field ""`, func() { DefineJSON(team, "") })
	for field, change := range map[string]func(d *Definition){
		"Group": func(d *Definition) { d.Group = "Example" }, "Version": func(d *Definition) { d.Version = "" },
		"Resource": func(d *Definition) { d.Resource = "Teams" }, "Kind": func(d *Definition) { d.Kind = "" },
	} {
		d := team
		change(&d)
		f("the definition of a kind: "+field+": got", func() { DefineJSON(d) })
	}
	f("the definition of a kind: Version: got", func() { DefineJSON(Definition{Version: "V", Resource: "teams", Kind: "Team"}) })
	f("<nil>", func() { DefineJSON(Definition{Version: "v1", Resource: "teams", Kind: "Team"}) })
}

// TestInWithoutNeeds has a plugin that reads objects without declaring a need.
func TestInWithoutNeeds(t *testing.T) {
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "the plugin reads teams.example.com, but declares no Needs") {
			t.Errorf("got %s", got)
		}
	}()
	teams.In(nil)
}
