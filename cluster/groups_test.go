package cluster

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/VictoriaMetrics/metrics"
)

var animals = DefineGroup("animals.example.com", "cats", "dogs")

// A groupAPI serves a group whose versions, resources and objects change.
type groupAPI struct {
	mu       sync.Mutex
	versions map[string]string // resources by version, with spaces between them
	order    []string
	broken   bool
}

func (g *groupAPI) set(order []string, versions map[string]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.order, g.versions = order, versions
}

func (g *groupAPI) fail(broken bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.broken = broken
}

// answer answers requests for the group. An object has the version with which it is read.
func (g *groupAPI) answer(w http.ResponseWriter, r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.URL.Path, "/apis/"+animals.name)
	if !ok {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	version, resource, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	resources, served := g.versions[version]
	switch {
	case g.broken:
		w.WriteHeader(http.StatusForbidden)
	case version == "" && len(g.order) > 0:
		var all []string
		for _, v := range g.order {
			all = append(all, fmt.Sprintf(`{"groupVersion":"animals.example.com/%s","version":%q}`, v, v))
		}
		fmt.Fprintf(w, `{"kind":"APIGroup","apiVersion":"v1","name":%q,"versions":[%s]}`, animals.name, strings.Join(all, ","))
	case resource == "" && served:
		var all []string
		for _, name := range strings.Fields(resources) {
			all = append(all, fmt.Sprintf(`{"name":%q,"kind":%q,"namespaced":true,"verbs":["get","list","watch"]}`, name, "K"+name),
				fmt.Sprintf(`{"name":"%s/status","kind":%q,"namespaced":true,"verbs":["get"]}`, name, "K"+name))
		}
		fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"animals.example.com/%s","resources":[%s]}`,
			version, strings.Join(all, ","))
	case served && slices.Contains(strings.Fields(resources), resource) && r.URL.Query().Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case served && slices.Contains(strings.Fields(resources), resource):
		fmt.Fprintf(w, `{"kind":"K%[1]sList","apiVersion":"animals.example.com/%[2]s","metadata":{"resourceVersion":"1"},"items":[`+
			`{"apiVersion":"animals.example.com/%[2]s","kind":"K%[1]s","metadata":{"name":"a","namespace":"one","labels":{"l":"x"},`+
			`"managedFields":[{}],"generation":4},"spec":{"s":1},"status":{"t":1}}]}`, resource, version)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}
	return true
}

// shownGroup returns the objects of the group and what is missing.
func shownGroup(o *GroupObjects) string {
	objects, missing := o.List()
	text := ""
	for _, object := range objects {
		json, _ := object.MarshalJSON()
		text += string(json) + " "
	}
	for _, err := range missing {
		text += err.Error() + " "
	}
	return strings.TrimSpace(text)
}

func animal(resource, version string) string {
	return fmt.Sprintf(`{"apiVersion":"animals.example.com/%s","kind":"K%s","metadata":{"name":"a","namespace":"one","labels":{"l":"x"},`+
		`"generation":4},"spec":{"s":1}}`, version, resource)
}

// newGroup returns the objects of the group and the State.
func newGroup(t *testing.T, g *groupAPI) (*State, *GroupObjects) {
	t.Helper()
	a := newAPIServer(t)
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") != "" && r.URL.Query().Get("sendInitialEvents") == "" && strings.HasPrefix(r.URL.Path,
			"/apis/animals") {
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
			case <-t.Context().Done():
			}
			return true
		}
		return g.answer(w, r)
	})
	s := a.newState(Options{Metrics: metrics.NewSet()})
	if err := s.Follow(t.Context(), Discovered()); err != nil {
		t.Fatal(err)
	}
	s.find(discovered).timing = fastTiming
	needs := []Need{animals.Watched(), animals.Watched(), Discovered()}
	if err := s.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	return s, animals.In(s.View(needs...))
}

// TestGroup follows kinds that appear, change their version and disappear.
func TestGroup(t *testing.T) {
	g := new(groupAPI)
	s, o := newGroup(t, g)
	eventually(t, "an absent group is ready", func() bool { return s.Ready() == nil && s.View(animals.Watched()).Ready() == nil })
	if got := shownGroup(o); got != "" {
		t.Errorf("got %s, want no objects", got)
	}
	changes := make(chan struct{}, 1)
	defer o.Subscribe(func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	})()
	becomes := func(want string) {
		t.Helper()
		got := ""
		eventually(t, want, func() bool { got = shownGroup(o); return got == want })
		<-changes
	}
	g.set([]string{"v1beta1"}, map[string]string{"v1beta1": "cats mice"})
	becomes(animal("cats", "v1beta1"))
	// v2 has no cats: they are read in the first version that has them.
	g.set([]string{"v2", "v1", "v1beta1"}, map[string]string{"v2": "dogs", "v1": "cats dogs", "v1beta1": "cats"})
	becomes(animal("cats", "v1") + " " + animal("dogs", "v2"))
	g.set([]string{"v2"}, map[string]string{"v2": "dogs"})
	becomes(animal("dogs", "v2"))
	g.fail(true)
	eventually(t, "the fault is said", func() bool {
		got := shownGroup(o)
		return strings.HasPrefix(got, animal("dogs", "v2")+" cluster state: the kinds of animals.example.com may be outdated: ")
	})
	g.fail(false)
	g.set(nil, nil)
	becomes("")
	if got := s.Ready(); got != nil {
		t.Errorf("got %v, want that it stays ready", got)
	}
}

// TestGroupUnknown is not ready while the kinds of the group are unknown.
func TestGroupUnknown(t *testing.T) {
	g := &groupAPI{broken: true}
	s, o := newGroup(t, g)
	eventually(t, "the fault is said", func() bool {
		err := s.Ready()
		return err != nil && strings.Contains(err.Error(), "cannot get discovery")
	})
	select {
	case <-o.Synced():
		t.Error("it is synced")
	default:
	}
	g.set([]string{"v1"}, map[string]string{"v1": "cats"})
	g.fail(false)
	<-o.Synced()
	eventually(t, "it is ready", func() bool { return s.Ready() == nil })
	if got, want := shownGroup(o), animal("cats", "v1"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestGroupKindsMax watches groupKindsMax kinds and says which it does not.
func TestGroupKindsMax(t *testing.T) {
	names := make([]string, groupKindsMax+1)
	for i := range names {
		names[i] = fmt.Sprintf("r%03d", i)
	}
	o := newGroupObjects(animals, newAPIServer(t).newState(Options{Metrics: metrics.NewSet()}), nil)
	watched, refused := bounded(names[:groupKindsMax])
	if len(watched) != groupKindsMax || refused != nil {
		t.Errorf("got %d and %v, want all", len(watched), refused)
	}
	if watched, refused = bounded(names); len(watched) != groupKindsMax || !o.use(nil, nil, refused) {
		t.Errorf("got %d and %v, want that the last one is refused", len(watched), refused)
	}
	if got := shownGroup(o); !strings.Contains(got, "cannot watch r256.animals.example.com: 256 kinds of the group are watched "+
		"already, the maximum") {
		t.Errorf("got %s", got)
	}
}

// TestGroupRules asks for the resources of the group.
func TestGroupRules(t *testing.T) {
	const want = "[{[get list watch] [animals.example.com] [cats] [] []} {[get list watch] [animals.example.com] [dogs] [] []}]"
	if got := fmt.Sprint(Rules(animals.Watched(), animals.Watched())); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	need := animals.Watched()
	if writes := need.Writes(); writes != nil {
		t.Errorf("got %v, want no writes", writes)
	}
	defer func() {
		if got := fmt.Sprint(recover()); got != "cluster state: the plugin reads animals.example.com, but does not declare them in "+
			"its Needs" {
			t.Errorf("got %s", got)
		}
	}()
	animals.In(new(View))
}

// TestGroupInFiles has no objects.
func TestGroupInFiles(t *testing.T) {
	s, err := New(Options{Embedded: true, Kinds: KindsOf(animals.Watched())})
	if err == nil {
		err = s.Follow(t.Context(), animals.Watched())
	}
	if err == nil {
		err = s.Ready()
	}
	if err != nil || shownGroup(animals.In(s.View(animals.Watched()))) != "" {
		t.Errorf("got %v, want none", err)
	}
}
