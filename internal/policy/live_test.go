package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
	"github.com/fastadmit/fastadmit/internal/testserver"
	"github.com/fastadmit/fastadmit/internal/wake"
)

const (
	policiesPath = "/apis/policies.fastadmit.io/v1/validatingadmissionpolicies"
	customConfig = `{"apiVersion":"fastadmit.io/v1alpha1","kind":"ValidatingAdmissionPolicyConfiguration","customResources":true}`
)

// An apiServer serves custom resources and ConfigMaps, which do not change, and records the statuses that clients
// write.
type apiServer struct {
	t     *testing.T
	lists map[string]string // the items, by path

	mu       sync.Mutex
	statuses map[string]string // written statuses, by the name of the policy
	written  map[string]int    // how often
	watching int               // requests that watch ConfigMaps
	broken   atomic.Bool       // requests for schemas fail
	aborts   atomic.Bool       // requests for schemas end with a closed connection
	later    atomic.Bool       // the group is not served yet
	listing  chan struct{}     // closed when lists of ConfigMaps may be answered
	events   chan string       // events of policies, for watches
	put      http.HandlerFunc  // answers writes; nil for noteStatus
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fail := func(code int, reason string) {
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	}
	items, known := a.lists[r.URL.Path]
	switch {
	case r.Method == http.MethodPut && a.put != nil:
		a.put(w, r)
	case r.Method == http.MethodPut:
		a.noteStatus(w, r)
	case r.URL.Query().Get("sendInitialEvents") != "":
		fail(http.StatusUnprocessableEntity, "Invalid")
	case r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		a.watches(r, 1)
		a.watch(w, r)
		a.watches(r, -1)
	case r.URL.Path == "/api/v1":
		_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[` +
			`{"name":"configmaps","singularName":"configmap","namespaced":true,"kind":"ConfigMap","verbs":["get","list","watch"]},` +
			`{"name":"secrets","singularName":"secret","namespaced":true,"kind":"Secret","verbs":["get","list","watch"]},` +
			// and does not list them
			`{"name":"nodes","singularName":"node","namespaced":false,"kind":"Node","verbs":["get","list","watch"]}]}`))
	case r.URL.Path == "/apis/later/v1" && a.later.Load():
		_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"later/v1","resources":[` +
			`{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get","list","watch"]}]}`))
	case r.URL.Path == "/apis/later/v1/things":
		_, _ = w.Write([]byte(`{"kind":"ThingList","apiVersion":"later/v1","metadata":{"resourceVersion":"1"},"items":[]}`))
	case r.URL.Path == "/apis/failing/v1":
		fail(http.StatusForbidden, "Forbidden")
	case r.URL.Path == "/openapi/v3":
		if a.aborts.Load() {
			panic(http.ErrAbortHandler)
		}
		if a.broken.Load() {
			fail(http.StatusInternalServerError, "InternalError")
			return
		}
		_, _ = w.Write([]byte(`{"paths":{}}`))
	case !known:
		fail(http.StatusNotFound, "NotFound")
	default:
		if r.URL.Path == "/api/v1/configmaps" {
			select {
			case <-a.listing:
			case <-r.Context().Done():
			}
		}
		version, kind := "", "" // of the first item
		_, _ = fmt.Sscanf(items, `{"apiVersion":%q,"kind":%q,`, &version, &kind)
		_, _ = fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[%s]}`, kind+"List", version, items)
	}
}

// watch sends events until the request ends.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	events := a.events
	if r.URL.Path != policiesPath {
		events = nil
	}
	for {
		select {
		case event := <-events:
			_, _ = fmt.Fprintln(w, event)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (a *apiServer) noteStatus(w http.ResponseWriter, r *http.Request) {
	var object struct {
		Kind     string
		Metadata struct{ Name string }
		Status   struct {
			ObservedGeneration int64
			Conditions         []struct{ Type, Status, Reason, Message string }
			TypeChecking       *struct{ ExpressionWarnings []struct{ Warning string } }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&object); err != nil || !strings.HasSuffix(r.URL.Path, object.Metadata.Name+"/status") {
		a.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	said := fmt.Sprint(object.Status.ObservedGeneration)
	for _, c := range object.Status.Conditions {
		if c.Type == conditionEnforced { // see TestEnforced
			continue
		}
		said += fmt.Sprintf("; %s %s %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	if object.Status.TypeChecking != nil {
		said += "; types checked"
		for _, w := range object.Status.TypeChecking.ExpressionWarnings {
			said += " " + w.Warning
		}
	}
	a.mu.Lock()
	a.statuses[object.Metadata.Name] = said
	if a.written == nil {
		a.written = make(map[string]int)
	}
	a.written[object.Metadata.Name]++
	a.mu.Unlock()
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "policies.fastadmit.io/v1", "kind": object.Kind,
		"metadata": object.Metadata})
}

func (a *apiServer) status(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.statuses[name]
}

// watches counts the requests that watch ConfigMaps.
func (a *apiServer) watches(r *http.Request, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.URL.Path == "/api/v1/configmaps" {
		a.watching += n
	}
}

// watched returns their number.
func (a *apiServer) watched() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprint(a.watching)
}

// count returns how often a status was written.
func (a *apiServer) count(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.written[name]
}

// kubeconfigOf starts an API server, and returns a kubeconfig file for it.
func kubeconfigOf(t *testing.T, apiServer http.Handler) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: testserver.Start(t, apiServer).URL}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "x"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// follow returns the view of a plugin with custom resources, in a cluster with this API server.
func (a *apiServer) follow() *cluster.View {
	a.t.Helper()
	return a.view(true)
}

// view does what follow does. It waits for the lists if wanted.
func (a *apiServer) view(wait bool) *cluster.View {
	a.t.Helper()
	kubeconfig := kubeconfigOf(a.t, a)
	needs := append(ValidatingKind.NeedsOf([]byte(customConfig)), cluster.Namespaces.Watched(),
		cluster.SubjectAccessReviews.Called("create"))
	state, err := cluster.New(cluster.Options{Kubeconfig: kubeconfig, Kinds: cluster.KindsOf(needs...)})
	if err == nil {
		err = state.Follow(a.t.Context(), needs...)
	}
	if err == nil && wait {
		ctx, cancel := context.WithTimeout(a.t.Context(), 5*time.Minute)
		defer cancel()
		err = state.Wait(ctx)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return state.View(needs...)
}

func eventually(t *testing.T, what func() string, want string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if got := what(); got == want {
			return
		} else if time.Now().After(end) {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

// customPolicy returns a policy about pods, with parameters of that kind if there is one.
func customPolicy(name, paramKind, more string) string {
	if paramKind != "" {
		paramKind = fmt.Sprintf(`"paramKind":{"apiVersion":"v1","kind":%q},`, paramKind)
	}
	return fmt.Sprintf(`{"apiVersion":"policies.fastadmit.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":%q,"uid":%q,`+
		`"generation":3},`+
		`"spec":{%s%s"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],`+
		`"resources":["pods"]}]},`+
		`"validations":[{"expression":"true"}]}}`, name, name, paramKind, more)
}

// withWarning returns a policy whose types were checked in a generation.
func withWarning(name string, generation int) string {
	return fmt.Sprintf(`%s,"status":{"observedGeneration":%d,"typeChecking":{"expressionWarnings":[{"fieldRef":"spec",`+
		`"warning":"found by another replica"}]}}}`,
		strings.TrimSuffix(customPolicy(name, "", ""), "}"), generation)
}

// livePolicies returns an API server that has policies of all kinds, bindings of some of them, and objects that they
// use as parameters. It does not answer lists of ConfigMaps until listing is closed.
func livePolicies(t *testing.T) *apiServer {
	a := &apiServer{t: t, statuses: make(map[string]string), listing: make(chan struct{}), lists: map[string]string{
		"/api/v1/namespaces": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`,
		"/api/v1/configmaps": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop",` +
			`"labels":{"env":"prod"}}},` +
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"shop"}},` +
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"other","labels":{"env":"prod"}}}`,
		"/api/v1/nodes": `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`,
		policiesPath: strings.Join([]string{
			customPolicy("good", "", ""), customPolicy("invalid", "", `"failurePolicy":"Sometimes",`), customPolicy("uncompiled", "", ""),
			customPolicy("maps", "ConfigMap", ""), customPolicy("nodes", "Node", ""), customPolicy("ships", "Ship", ""),
			customPolicy("unbound", "Secret", ""),
			withWarning("checked", 3), withWarning("before", 2),
			strings.Replace(customPolicy("unreadable", "", ""), `[{"expression":"true"}]`, "1", 1),
		}, ","),
	}}
	var bindings []string
	for _, name := range []string{"good", "maps", "nodes", "ships"} {
		bindings = append(bindings, fmt.Sprintf(`{"apiVersion":"policies.fastadmit.io/v1","kind":"ValidatingAdmissionPolicyBinding",`+
			`"metadata":{"name":%q},`+
			`"spec":{"policyName":%q,"validationActions":["Deny"]%s}}`, name, name, map[bool]string{
			true: `,"paramRef":{"selector":{},"parameterNotFoundAction":"Allow"}`,
		}[name != "good"]))
	}
	a.lists[policiesPath[:len(policiesPath)-len("policies")]+"policybindings"] = strings.Join(bindings, ",")
	return a
}

// compileLive compiles all policies but one.
func compileLive(p *admissionregistrationv1.ValidatingAdmissionPolicy, _ bool) (string, error) {
	if p.Name == "uncompiled" {
		return "", errors.New("no such variable")
	}
	return "", nil
}

// TestLive follows custom resources. It checks the statuses that are written, and the parameters of policies that
// have bindings.
func TestLive(t *testing.T) {
	a := livePolicies(t)
	source, err := NewSource(ValidatingKind, admission.Setup{Config: []byte(customConfig), Cluster: a.follow()}, compileLive)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(source.Handler().Rules()); got != fmt.Sprint([]admission.Rule{admission.Any()}) {
		t.Errorf("before they are followed: got rules %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		source.Handler().Run(ctx, func() {})
		close(done)
	}()

	const compiled = "3; Compiled True Compiled: all expressions compile"
	f := func(name, want string) {
		t.Helper()
		eventually(t, func() string { return a.status(name) }, want)
	}
	const checked = "; types checked"
	f("good", compiled+checked)
	f("unbound", compiled+checked)
	f("checked", compiled+checked+" found by another replica")
	f("before", compiled+checked)
	f("uncompiled", "3; Compiled False CompilationFailed: no such variable")
	f("invalid", `3; Compiled False Invalid: spec.failurePolicy: Unsupported value: "Sometimes": supported values: "Fail", "Ignore"`)
	f("unreadable", `3; Compiled False Invalid: cannot be read: json: cannot unmarshal number into Go struct field `+
		`ValidatingAdmissionPolicySpec.spec.validations of type []v1.Validation`)
	f("nodes", compiled+"; ParametersKnown True Watched: nodes are watched"+checked)
	f("ships", compiled+"; ParametersKnown False CannotWatch: failed to find resource referenced by paramKind: '/v1, Kind=Ship'"+checked)
	f("maps", compiled+"; ParametersKnown Unknown NotListed: waiting for the API server"+checked)
	maps, nodes := admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "Node"}
	if source.resources.writeStatus(ctx) {
		t.Error("while parameters are not listed: all is settled, want the status to be written once more")
	}
	source.refresh(ctx)
	if got, want := fmt.Sprint(source.resources.enforced()), []string{"good", "nodes"}; strings.Count(got, "{") != 2 ||
		!strings.Contains(got, "{good 3 ") || !strings.Contains(got, "{nodes 3 ") {
		t.Errorf("while parameters are not listed: got reports of %s, want of %s", got, want)
	}
	refreshed, changed := make(wake.Signal), wake.NewSignal()
	go source.resources.runStatus(ctx, refreshed, changed)
	for range 2 { // it receives the second event after it has processed the first
		refreshed <- struct{}{}
	}
	brief, stop := context.WithTimeout(ctx, 10*time.Millisecond)
	defer stop()
	early, known, err := source.resources.params.OfKind(brief, maps)
	if err == nil {
		_, err = early.Get(brief, "shop", "a")
	}
	if err == nil || !known ||
		!strings.HasPrefix(err.Error(), "paramKind kind `&ParamKind{APIVersion:v1,Kind:ConfigMap,}` not yet synced to use for admission") {
		t.Errorf("before they are listed: got %v, %v", known, err)
	}
	close(a.listing)
	f("maps", compiled+"; ParametersKnown True Watched: configmaps are watched"+checked)
	eventually(t, func() string { return fmt.Sprint(len(changed)) }, "1") // after settlePause
	checkParams(t, source.resources.params, maps, nodes)
	checkWatched(t, source.resources.params, maps)
	if !source.resources.writeStatus(ctx) {
		t.Error("once they are: not all is settled")
	}
	const own = "{[CREATE UPDATE] [policies.fastadmit.io] [*] [validatingadmissionpolicies validatingadmissionpolicybindings " +
		"policyexceptions] Cluster}"
	if got, want := fmt.Sprint(source.Handler().Rules()), "["+own+strings.Repeat(" {[CREATE] [] [v1] [pods] }", 4)+"]"; got != want {
		t.Errorf("got rules %s\nwant %s", got, want)
	}
	if got := a.count("good"); got != 1 {
		t.Errorf("the same status was written %d times, want once", got)
	}
	eventually(t, a.watched, "1")
	source.resources.checkTypes(ctx, nil, "none") // a policy that was deleted meanwhile
	if _, due, settled := source.resources.due("none", reports{}); due || !settled {
		t.Errorf("got %v, %v of a policy that is gone", due, settled)
	}
	cancel()
	<-done
	eventually(t, a.watched, "0")
	if _, known, err := source.resources.params.OfKind(t.Context(), nodes); known || err != nil {
		t.Errorf("in the end: got %v, %v, want parameters not to be watched", known, err)
	}
}

// TestTypesLater checks types once the API server answers.
func TestTypesLater(t *testing.T) {
	a := &apiServer{t: t, statuses: make(map[string]string), lists: map[string]string{
		"/api/v1/namespaces": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`,
		policiesPath:         customPolicy("p", "", ""), policiesPath[:len(policiesPath)-len("policies")] +
			"policybindings": binding("b", "p", 1),
	}}
	a.broken.Store(true)
	source, err := NewSource(ValidatingKind, admission.Setup{Config: []byte(customConfig), Cluster: a.follow()},
		func(*admissionregistrationv1.ValidatingAdmissionPolicy, bool) (string, error) { return "", nil })
	if err != nil {
		t.Fatal(err)
	}
	f := func(want string) {
		t.Helper()
		source.refresh(t.Context())
		source.resources.writeStatus(t.Context())
		if got := a.status("p"); got != "3; Compiled True Compiled: all expressions compile"+want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	f("")
	a.broken.Store(false)
	f("; types checked")
	a.broken.Store(true)
	if err := source.resources.checkTypes(t.Context(), nil, "p"); err != nil {
		t.Errorf("got %v, want nobody to ask again", err)
	}
}

// TestGivenParams tests parameters from files.
func TestGivenParams(t *testing.T) {
	object := func(namespace, name, env string) admission.ParamObject {
		return admission.ParamObject{
			Namespace: namespace, Name: name, Labels: map[string]string{"env": env},
			JSON: fmt.Appendf(nil, `{"metadata":{"namespace":%q,"name":%q}}`, namespace, name),
		}
	}
	given := GivenParams([]admission.ParamKind{
		{APIVersion: "v1", Kind: "ConfigMap", Namespaced: true, Objects: []admission.ParamObject{
			object("shop", "b", "dev"), object("other", "a", "prod"), object("shop", "a", "prod"),
		}},
		{APIVersion: "v1", Kind: "Node", Objects: []admission.ParamObject{object("", "n", "prod")}},
	})
	checkParams(t, given, admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "Node"})
	for _, kind := range []admissionregistrationv1.ParamKind{{APIVersion: "v2", Kind: "Node"}, {APIVersion: "v1", Kind: "Ship"}} {
		if _, known, err := given.OfKind(t.Context(), kind); known || err != nil {
			t.Errorf("%v: got %v, %v", kind, known, err)
		}
	}
	if GivenParams(nil) != nil {
		t.Error("got parameters where none are given")
	}
}

// nameIn returns the name that the variable params has.
func nameIn(p *Param) any {
	object, _ := view.ValueOf(p.Object.Read(new(codec.Object))).Value().(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	return metadata["name"]
}

// checkParams looks parameters up: ConfigMaps shop/a and other/a, with the label env=prod, and shop/b, and the Node
// n.
func checkParams(t *testing.T, params Params, maps, nodes admissionregistrationv1.ParamKind) {
	t.Helper()
	of := func(kind admissionregistrationv1.ParamKind) ParamObjects {
		t.Helper()
		objects, known, err := params.OfKind(t.Context(), kind)
		if err != nil || !known {
			t.Fatalf("%v: got %v, %v", kind, known, err)
		}
		return objects
	}
	if !of(maps).Namespaced() || of(nodes).Namespaced() {
		t.Error("only ConfigMaps are in namespaces")
	}
	f := func(kind admissionregistrationv1.ParamKind, namespace, name string, want bool) {
		t.Helper()
		p, err := of(kind).Get(t.Context(), namespace, name)
		if found := err == nil && p.Namespace == namespace && p.Name == name && nameIn(p) == name; found != want || !want &&
			!apierrors.IsNotFound(err) {
			t.Errorf("%s %s/%s: got %v, %v, want it to be there: %v", kind.Kind, namespace, name, p, err, want)
		}
	}
	f(maps, "shop", "a", true)
	f(maps, "shop", "b", true)
	f(maps, "other", "a", true)
	f(maps, "other", "b", false)
	f(maps, "", "a", false)
	f(nodes, "", "n", true)
	f(nodes, "", "m", false)
	list := func(kind admissionregistrationv1.ParamKind, namespace, selector string, want int) {
		t.Helper()
		parsed, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		if all, err := of(kind).List(t.Context(), namespace, parsed); err != nil || len(all) != want {
			t.Errorf("%s in %q with %q: got %d, %v, want %d", kind.Kind, namespace, selector, len(all), err, want)
		}
	}
	list(maps, "shop", "", 2)
	list(maps, "shop", "env=prod", 1)
	list(maps, "other", "", 1)
	list(maps, "none", "", 0)
	list(nodes, "", "", 1)
}

// checkWatched tests cases that only watched parameters have: reviews that end, and unknown kinds.
func checkWatched(t *testing.T, params Params, maps admissionregistrationv1.ParamKind) {
	t.Helper()
	objects, _, err := params.OfKind(t.Context(), maps)
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if all, err := objects.List(ended, "shop", labels.Everything()); len(all) != 0 || err == nil {
		t.Errorf("got %v, %v of a review that ended", all, err)
	}
	for _, kind := range []string{"Ship", "Secret"} {
		unknown := admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: kind}
		if _, known, err := params.OfKind(t.Context(), unknown); known || err != nil {
			t.Errorf("%s: got %v, %v, want a kind that nobody knows", kind, known, err)
		}
	}
}
