package ownerreferencespermissionenforcement

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// An apiServer serves apps/v1, and answers each access review with status.
type apiServer struct {
	status     string
	finalizers string // status for the finalizers of one kind; status if empty
	broken     string // requests with this text in the body fail; none if empty
	asked      []string
	bodies     []string
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.asked = append(a.asked, r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	body, err := io.ReadAll(r.Body)
	a.bodies = append(a.bodies, string(body))
	switch {
	case err != nil || a.broken != "" && bytes.Contains(body, []byte(a.broken)):
		http.Error(w, "broken", http.StatusInternalServerError)
	case a.status == "" || r.URL.Path == "/apis/broken/v1":
		http.Error(w, "broken", http.StatusInternalServerError)
	case r.Method == http.MethodPost:
		status := a.status
		if a.finalizers != "" && bytes.Contains(body, []byte("replicasets")) {
			status = a.finalizers
		}
		fmt.Fprintf(w, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":%s}`, status)
	case r.URL.Path == "/apis/apps/v1":
		w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[` +
			`{"name":"replicasets","namespaced":true,"kind":"ReplicaSet"},{"name":"replicasets/scale","kind":"Scale"},` +
			`{"name":"shops","kind":"Shop"}]}`))
	default:
		http.NotFound(w, r)
	}
}

// state returns a State of the server's cluster.
func (a *apiServer) state(t testing.TB) *cluster.State {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig,
		fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],`+
			`"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`, server.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	state, err := cluster.New(cluster.Options{Kubeconfig: kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Follow(t.Context(), Plugin().Needs...); err != nil {
		t.Fatal(err)
	}
	return state
}

// chain returns a chain of the plugin that asks the server.
func (a *apiServer) chain(t testing.TB) *admission.Chain {
	t.Helper()
	state, plugin := a.state(t), Plugin()
	chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: {}}, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

const (
	review = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	none   = `{"metadata":{"name":"p"}}`
)

// owned returns an object with these owner references.
func owned(references string) string {
	return `{"metadata":{"name":"p","ownerReferences":[` + references + `]}}`
}

func ownedBy(version, kind string, blocking bool) string {
	return owned(fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":"o","uid":"1","blockOwnerDeletion":%t}`, version, kind, blocking))
}

// from returns a review of a request by jane.
func from(body []byte, more string) []byte {
	return bytes.Replace(body, []byte(`"operation"`), []byte(`"userInfo":{"username":"jane"},`+more+`"operation"`), 1)
}

func create(object string) []byte {
	return from(admissiontest.Body(codec.Create, "v1/pods", object), "")
}

func update(object, old string) []byte {
	return from(admissiontest.UpdateBody("v1/pods", object, old), "")
}

// TestAsked checks which access reviews are sent, and the results.
func TestAsked(t *testing.T) {
	const allowed, denied = `{"allowed":true}`, `{"allowed":false,"reason":"no","evaluationError":"lost"}`
	f := func(status string, body []byte, want string, wantAsked ...string) {
		t.Helper()
		a := &apiServer{status: status}
		got, _ := admissiontest.Respond(t, a.chain(t), admission.Validate, body, nil)
		if !strings.Contains(string(got), want) || !slices.Equal(a.asked, wantAsked) {
			t.Errorf("%s, %s\ngot  %s of %q\nwant %s of %q", status, body, got, a.asked, want, wantAsked)
		}
	}
	const yes, cannotDelete, cannotBlock = `"allowed":true`,
		`pods \"name\" is forbidden: cannot set an ownerRef on a resource you can't delete: no, lost`,
		`pods \"name\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set ` +
			`finalizers on: no, lost`
	plain, blocking := ownedBy("apps/v1", "ReplicaSet", false), ownedBy("apps/v1", "ReplicaSet", true)

	f(denied, create(none), yes)
	f(denied, create(plain), yes)
	f(denied, update(plain, plain), yes)
	f(denied, update(plain, strings.ReplaceAll(plain, `,"kind"`, `, "kind"`)), yes)
	f(denied, update(plain, none), cannotDelete, review)
	f(denied, update(none, plain), cannotDelete, review)
	f(denied, update(blocking, plain), cannotDelete, review)
	f(allowed, update(plain, blocking), yes, review)
	f(allowed, create(blocking), yes, review)
	f(allowed, update(blocking, plain), yes, review, review)
	f(denied, create(blocking), cannotBlock, review, "/apis/apps/v1", review)
	f(denied, create(ownedBy("apps/v1", "Scale", true)),
		`cannot find RESTMapping for APIVersion apps/v1 Kind Scale: no matches for kind \"Scale\" in version \"apps/v1\"`,
		review, "/apis/apps/v1")
	f(denied, create(ownedBy("apps/v2", "ReplicaSet", true)), `no matches for kind \"ReplicaSet\" in version \"apps/v2\"`,
		review, "/apis/apps/v2")
	f(denied, create(ownedBy("", "ReplicaSet", true)),
		`APIVersion  Kind ReplicaSet: no matches for kind \"ReplicaSet\" in version \"\"`, review, "/api/v1")
	f(denied, create(ownedBy("a/b/c", "ReplicaSet", true)), "unexpected GroupVersion string: a/b/c", review)
	f(`{"allowed":true,"denied":true}`, create(blocking), "can't set finalizers on", review, "/apis/apps/v1", review)

	// References that differ, and references that only look as if they did.
	absent := owned(`{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"o","uid":"1"}`)
	f(denied, update(absent, plain), cannotDelete, review)
	both := owned(`{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"o","uid":"1",` +
		`"blockOwnerDeletion":true},{"apiVersion":"v1","kind":"Pod","name":"q","uid":"2"}`)
	f(allowed, update(both, blocking), yes, review)
	f(`{"allowed":false,"reason":"no"}`, update(plain, none), `you can't delete: no, <nil>`, review)

	// The API server does not answer.
	a := new(apiServer)
	admissiontest.CheckOutcome(t, a.chain(t), admission.Validate, admission.OutcomeErrored, create(blocking))
	admissiontest.CheckOutcome(t, a.chain(t), admission.Validate, admission.OutcomeErrored, update(plain, none))
	a = &apiServer{status: denied}
	admissiontest.CheckOutcome(t, a.chain(t), admission.Validate, admission.OutcomeErrored, create(ownedBy("broken/v1", "Shop", true)))

	admissiontest.CheckOutcome(t, admissiontest.MustChain(t, Plugin(), ""), admission.Validate, admission.OutcomeErrored,
		create(blocking)) // files
	admissiontest.CheckOutcome(t, a.chain(t), admission.Validate, admission.OutcomeErrored,
		admissiontest.Body(codec.Create, "v1/pods", blocking)) // without a user

	// No API server sends these.
	for _, odd := range []string{`null`, `{}`, `{"metadata":null}`, `{"metadata":{"ownerReferences":null}}`,
		`{"metadata":{"ownerReferences":{}}}`} {
		f(denied, create(odd), yes)
	}
	for _, odd := range []string{`null`, `1`, `{}`, `{"blockOwnerDeletion":"yes"}`, `{"blockOwnerDeletion":null}`} {
		f(denied, create(owned(odd)), yes)
		f(denied, update(owned(odd), none), cannotDelete, review)
	}
}

// TestOwnersScope has namespaced and cluster-scoped owners.
func TestOwnersScope(t *testing.T) {
	f := func(kind, want string, namespaced bool) {
		t.Helper()
		a := &apiServer{status: `{"allowed":true}`, finalizers: `{"allowed":false,"reason":"no"}`, broken: "\x01*"}
		chain := a.chain(t)
		body := create(ownedBy("apps/v1", kind, true))
		admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeErrored,
			body) // the answer about all permissions is not known
		a.broken, a.status = "", `{"allowed":false,"reason":"no"}`
		admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeDenied, body)
		last := a.bodies[len(a.bodies)-1]
		if !strings.Contains(last, want) || strings.Contains(last, "namespace") != namespaced {
			t.Errorf("%s: asked %q, want %s", kind, last, want)
		}
	}
	f("ReplicaSet", "replicasets", true)
	f("Shop", "shops", false)
}

// TestRemembered has two requests with the same questions, which are asked once.
func TestRemembered(t *testing.T) {
	a := &apiServer{status: `{"allowed":false}`}
	chain := a.chain(t)
	body := create(ownedBy("apps/v1", "ReplicaSet", true))
	for range 3 {
		admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeDenied, body)
	}
	if want := []string{review, "/apis/apps/v1", review}; !slices.Equal(a.asked, want) {
		t.Errorf("asked %q, want %q", a.asked, want)
	}
}

// TestManyOwners checks that there is one access review for each owner, and no more than fit
// into a second.
func TestManyOwners(t *testing.T) {
	f := func(status string, names int, copies int, want string, wantAsked int) {
		t.Helper()
		var references []string
		for i := range names {
			for range copies {
				references = append(references,
					fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"o%d","uid":"%d","blockOwnerDeletion":true}`,
						i, len(references)))
			}
		}
		a := &apiServer{status: `{"allowed":false,"reason":"no"}`, finalizers: status}
		got, outcome := admissiontest.Respond(t, a.chain(t), admission.Validate, create(owned(strings.Join(references, ","))), nil)
		if !strings.Contains(string(got), want) || outcome == admission.OutcomeErrored || len(a.asked) != wantAsked {
			t.Errorf("%d owners, %d times, %s\ngot  %s, asked %d times\nwant %s, %d times", names, copies, status, got,
				len(a.asked), want, wantAsked)
		}
	}
	const all, discovery = 1, 1 // other requests to the API server
	const ownersMax = 50
	const yes, tooMany = `"allowed":true`, `cannot set blockOwnerDeletion for 51 owners in one request: want at most 50`
	const allowed, denied = `{"allowed":true}`, `{"allowed":false,"reason":"no"}`
	f(allowed, 1, 1000, yes, all+discovery+1)
	f(allowed, ownersMax-1, 20, yes, all+discovery+ownersMax-1)
	f(allowed, ownersMax, 20, yes, all+discovery+ownersMax)
	f(allowed, ownersMax+1, 1, tooMany, all)
	f(denied, ownersMax, 1, "can't set finalizers on: no", all+discovery+1)

	// A user with all permissions may set any number of owners.
	a := &apiServer{status: allowed}
	var references []string
	for i := range 10 * ownersMax {
		references = append(references,
			fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"o%d","uid":"%d","blockOwnerDeletion":true}`, i, i))
	}
	admissiontest.CheckOutcome(t, a.chain(t), admission.Validate, admission.OutcomeAllowed, create(owned(strings.Join(references, ","))))
}

func TestPodStatus(t *testing.T) {
	a := &apiServer{status: `{"allowed":false}`}
	chain := a.chain(t)
	f := func(resource, subResource string, want admission.Outcome) {
		t.Helper()
		body := from(admissiontest.UpdateBody(resource, ownedBy("v1", "Pod", false), none), `"subResource":"`+subResource+`",`)
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, body)
	}
	f("v1/pods", "status", admission.OutcomeAllowed)
	f("v1/pods", "ephemeralcontainers", admission.OutcomeDenied)
	f("example.com/v1/pods", "status", admission.OutcomeDenied)
	f("apps/v1/deployments", "status", admission.OutcomeDenied)
	f("v1/services", "status", admission.OutcomeDenied)
}

func TestMapper(t *testing.T) {
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	mapper := mapperOf(apps, &metav1.APIResourceList{APIResources: []metav1.APIResource{
		{Name: "replicasets", SingularName: "replicaset", Namespaced: true, Kind: "ReplicaSet"}, {Name: "shops", Kind: "Shop"},
	}})
	f := func(kind, want string) {
		t.Helper()
		got := ""
		mappings, err := mapper.RESTMappings(apps.WithKind(kind).GroupKind(), "v1")
		if err != nil {
			got = err.Error()
		}
		for _, m := range mappings {
			got += fmt.Sprint(m.Resource.Resource, " ", m.Scope.Name())
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", kind, got, want)
		}
	}
	f("ReplicaSet", "replicasets namespace")
	f("replicaset", "replicasets namespace")
	f("ReplicaSetList", "replicasetlists namespace")
	f("Shop", "shops root")
	f("List", "lists root")
	f("Other", `no matches for kind "Other" in version "apps/v1"`)
}

// TestLongVersions has an owner with the longest possible group version, and longer ones,
// which are neither looked up nor cached.
func TestLongVersions(t *testing.T) {
	a := new(apiServer)
	a.status = `{"allowed":false}`
	m := newMapper(cluster.DiscoveryIn(a.state(t).View(Plugin().Needs...)))
	f := func(version string, wantAsked int) {
		t.Helper()
		mappings, err := m.mappings(t.Context(), &metav1.OwnerReference{APIVersion: version, Kind: "Shop"})
		if len(mappings) != 0 || !meta.IsNoMatchError(err) {
			t.Errorf("%d bytes: got %v, %.200v, want that there is no such kind", len(version), mappings, err)
		}
		if known := m.known.Keys(); len(known) != wantAsked || len(a.asked) != wantAsked {
			t.Errorf("%d bytes: got %d requests, %d group versions remembered, want %d", len(version), len(a.asked), len(known), wantAsked)
		}
	}
	longest := strings.Repeat("a.", 126) + "a/v" + strings.Repeat("1", 62)
	f(longest+"1", 0)
	f(strings.Repeat("a", 1<<20)+"/v1", 0)
	f("example.com/"+strings.Repeat("v", 1<<20), 0)
	f(strings.Repeat("v", 1<<20), 0)
	f(longest, 1)
}

func TestUser(t *testing.T) {
	r := codec.Acquire()
	defer r.Release()
	decode := func(user string) (*permissions, error) {
		text := strings.Replace(string(admissiontest.Body(codec.Create, "v1/pods", none)), `"operation"`,
			`"userInfo":`+user+`,"operation"`, 1)
		if err := r.Decode([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return newPermissions(t.Context(), nil, r)
	}
	a, err := decode(`{"username":"jane","uid":"7","groups":["g","h"],"extra":{"scopes":["x"],"none":null}}`)
	got, _ := json.Marshal(a.user)
	if want := `{"user":"jane","groups":["g","h"],"extra":{"none":null,"scopes":["x"]},"uid":"7"}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if _, err := decode(`{"username":"jane","groups":"all"}`); err == nil {
		t.Error("groups that are none were read")
	}
	if !errors.Is(&undiscoveredError{os.ErrDeadlineExceeded}, os.ErrDeadlineExceeded) {
		t.Error("the reason of a failure is lost")
	}
}

// TestNoAllocations has a review as nearly all are, and one of a Pod of a controller.
func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	for _, name := range []string{"configmaps-create-v1-1.json", "deployments-create-v1-1.json", "pods-update-v1-1.json",
		"pods-status-update-v1-1.json"} {
		admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, corpus.MustRead(name))
	}
}

func BenchmarkNoOwner(b *testing.B) {
	admissiontest.Benchmark(b, admissiontest.MustChain(b, Plugin(), ""), admission.Validate, admission.OutcomeAllowed,
		corpus.MustRead("deployments-create-v1-1.json"))
}

func BenchmarkSameOwner(b *testing.B) {
	admissiontest.Benchmark(b, admissiontest.MustChain(b, Plugin(), ""), admission.Validate, admission.OutcomeAllowed,
		corpus.MustRead("pods-update-v1-1.json"))
}

func BenchmarkRemembered(b *testing.B) {
	a := &apiServer{status: `{"allowed":true}`}
	chain := a.chain(b)
	admissiontest.Benchmark(b, chain, admission.Validate, admission.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"))
}
