package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/handlers/validatingadmissionwebhook"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

const (
	storedPath     = "/apis/webhooks.fastadmit.io/v1/validatingwebhookconfigurations"
	namespacesPath = "/api/v1/namespaces"
)

// An apiServer serves custom resources with a watch, and records the statuses that are
// written.
type apiServer struct {
	t *testing.T

	mu       sync.Mutex
	listing  chan struct{} // closed when custom resources may be listed
	stored   []string
	statuses map[string][]string // by the name of the configuration
	events   chan string         // for the watch
	hangs    bool                // status requests are not answered
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	stored := strings.HasPrefix(r.URL.Path, storedPath)
	switch {
	case r.Method == http.MethodPut && a.hangs:
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not see that the client is gone
		<-r.Context().Done()
	case r.Method == http.MethodPut:
		a.noteStatus(w, r)
	case r.URL.Query().Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		for {
			select {
			case event := <-a.eventsOf(stored):
				_, _ = fmt.Fprintln(w, event)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	case r.URL.Path == namespacesPath:
		_, _ = fmt.Fprint(w, `{"kind":"NamespaceList","apiVersion":"v1","metadata":{"resourceVersion":"1"},`+
			`"items":[{"metadata":{"name":"namespace"}}]}`)
	case stored:
		select {
		case <-a.listing:
		case <-r.Context().Done():
		}
		_, _ = fmt.Fprintf(w, `{"kind":"ValidatingWebhookConfigurationList","apiVersion":"webhooks.fastadmit.io/v1",`+
			`"metadata":{"resourceVersion":"1"},"items":[%s]}`,
			strings.Join(a.stored, ","))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (a *apiServer) eventsOf(stored bool) chan string {
	if stored {
		return a.events
	}
	return nil
}

func (a *apiServer) noteStatus(w http.ResponseWriter, r *http.Request) {
	var object struct {
		Metadata struct{ Name string }
		Status   struct {
			ObservedGeneration int64
			Conditions         []struct {
				Type, Status, Reason, Message string
				ObservedGeneration            int64
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&object); err != nil || r.URL.Path != storedPath+"/"+object.Metadata.Name+"/status" {
		a.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	said := fmt.Sprint(object.Status.ObservedGeneration)
	for _, c := range object.Status.Conditions {
		said += fmt.Sprintf("; %s %s %s %d: %s", c.Type, c.Status, c.Reason, c.ObservedGeneration, c.Message)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.statuses[object.Metadata.Name] = append(a.statuses[object.Metadata.Name], said)
	if object.Metadata.Name == "refused" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	_, _ = fmt.Fprintf(w, `{"kind":"ValidatingWebhookConfiguration","apiVersion":"webhooks.fastadmit.io/v1","metadata":{"name":%q}}`,
		object.Metadata.Name)
}

// written returns the statuses that were written.
func (a *apiServer) written(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.statuses[name], "\n")
}

// follow returns a chain of the plugin in the cluster of the API server.
func (a *apiServer) follow(set *metrics.Set) *admission.Chain {
	a.t.Helper()
	server := testserver.Start(a.t, a)
	kubeconfig := filepath.Join(a.t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",`+
		`"contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":%q}}]}`, server.URL),
		0o600); err != nil {
		a.t.Fatal(err)
	}
	plugin := validatingadmissionwebhook.Plugin()
	needs := plugin.AllNeeds([]byte(followConfig))
	state, err := cluster.New(cluster.Options{Kubeconfig: kubeconfig, Kinds: cluster.KindsOf(needs...), Metrics: set})
	if err == nil {
		err = state.Follow(a.t.Context(), needs...)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: {Config: []byte(followConfig)}},
		state, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	return chain
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

// storedConfiguration returns a custom resource with this generation.
func storedConfiguration(name string, generation int, webhooks string) string {
	return fmt.Sprintf(`{"apiVersion":"webhooks.fastadmit.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":%q,`+
		`"uid":%q,"generation":%d,"resourceVersion":"%d"},"webhooks":%s}`,
		name, name, generation, generation, webhooks)
}

// TestLive changes custom resources, and checks which webhooks are called, the rules of the
// plugin, and the statuses.
func TestLive(t *testing.T) {
	b := newReplies(t, func(path string) string {
		return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"UID","allowed":true,"warnings":["` +
			path + `"]}}`
	})
	one := func(path, more string) string {
		return b.webhooks(hook{name: "a.example.com", path: path, more: more,
			rules: `[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]`})
	}
	set := metrics.NewSet()
	a := &apiServer{t: t, statuses: make(map[string][]string), listing: make(chan struct{}), events: make(chan string), stored: []string{
		storedConfiguration("good", 3, one("/good", "")),
		storedConfiguration("bad", 4, one("/bad", `"timeoutSeconds":31,"failurePolicy":"Ignore"`)),
		storedConfiguration("refused", 1, one("/refused", "")),
		storedConfiguration("unread", 1, `{}`),
	}}
	a.stored = append(a.stored, strings.Replace(storedConfiguration("written", 1, `[]`), `"webhooks"`,
		`"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True","reason":"Valid","message":"its webhooks are `+
			`called","observedGeneration":1,"lastTransitionTime":null}]},"webhooks"`, 1))
	chain := a.follow(set)
	rules := func() string { return fmt.Sprint(chain.RulesOf("ValidatingAdmissionWebhook")) }
	if got := rules(); got != fmt.Sprint([]admission.Rule{admission.Any()}) {
		t.Errorf("before they are listed: got rules %s", got)
	}
	brief, end := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer end()
	if r := askIn(brief, t, chain, admission.Validate, pod); !strings.Contains(r.message, "context deadline exceeded") &&
		!strings.Contains(r.message, "not known yet") {
		t.Errorf("before they are listed: got %+v", r)
	}

	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan struct{}, 100)
	chain.Start(ctx, nil, func() { changes <- struct{}{} })
	close(a.listing)
	<-changes
	const own = "{[CREATE UPDATE] [webhooks.fastadmit.io] [*] [validatingwebhookconfigurations] Cluster}"
	if want := "[" + own + strings.Repeat(" {[CREATE] [] [v1] [pods] }", 3) + "]"; rules() != want {
		t.Errorf("got rules %s\nwant %s", rules(), want)
	}
	const ready = "Ready True Valid %[1]d: its webhooks are called"
	eventually(t, func() string { return a.written("good") }, fmt.Sprintf("%[1]d; "+ready, 3))
	eventually(t, func() string { first, _, _ := strings.Cut(a.written("refused"), "\n"); return first },
		fmt.Sprintf("%[1]d; "+ready, 1)) // repeatedly
	const invalid = `4; Ready False Invalid 4: webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 ` +
		`and 30 seconds`
	eventually(t, func() string { return a.written("bad") }, invalid)
	eventually(t, func() string { cut, _, _ := strings.Cut(a.written("unread"), ": json"); return cut },
		`1; Ready False Invalid 1: cannot be read`)
	called := func() string {
		r := ask(t, chain, admission.Validate, pod)
		return strings.Join(r.warnings, " ") + r.message
	}
	eventually(t, called, "/good /refused")
	wantInvalid := func(n string) {
		t.Helper()
		var text strings.Builder
		set.WritePrometheus(&text)
		if want := `fastadmit_webhook_configurations_invalid{plugin="ValidatingAdmissionWebhook"} ` + n +
			"\n"; !strings.Contains(text.String(), want) {
			t.Errorf("got %s\nwant %s", &text, want)
		}
	}
	wantInvalid("2")

	event := func(kind, object string) { a.events <- `{"type":"` + kind + `","object":` + object + `}` }
	event("MODIFIED", storedConfiguration("bad", 5, one("/mended", "")))
	eventually(t, called, "/mended /good /refused")
	eventually(t, func() string { return a.written("bad") }, invalid+fmt.Sprintf("\n%[1]d; "+ready, 5))
	wantInvalid("1")
	event("DELETED", storedConfiguration("good", 3, one("/good", "")))
	eventually(t, called, "/mended /refused")
	<-changes
	if want := "[" + own + strings.Repeat(" {[CREATE] [] [v1] [pods] }", 2) + "]"; rules() != want {
		t.Errorf("got rules %s\nwant %s", rules(), want)
	}
	if got := a.written("written"); got != "" {
		t.Errorf("got %s written, which the status said before", got)
	}
	if got := a.written("good"); strings.Contains(got, "\n") {
		t.Errorf("got %s, want one status", got)
	}
	if got := a.written("refused"); !strings.Contains(got, "\n") {
		t.Errorf("got %s, want what was refused to be tried again", got)
	}
	cancel()
}

// TestRulesWhileWritesHang checks that the rules follow the cluster while the API server
// does not answer writes.
func TestRulesWhileWritesHang(t *testing.T) {
	webhooks := `[{"name":"a.example.com","admissionReviewVersions":["v1"],"sideEffects":"None",` +
		`"clientConfig":{"url":"https://127.0.0.1:1"},` +
		`"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}]`
	a := &apiServer{t: t, hangs: true, listing: make(chan struct{}), events: make(chan string)}
	for i := range 9 { // writing all statuses would take too long
		a.stored = append(a.stored, storedConfiguration(fmt.Sprint("stored-", i), 1, webhooks))
	}
	close(a.listing)
	chain := a.follow(metrics.NewSet())
	var changes atomic.Int64
	chain.Start(t.Context(), nil, func() { changes.Add(1) })
	said := func() string { return fmt.Sprint(changes.Load(), len(chain.RulesOf("ValidatingAdmissionWebhook"))) }
	eventually(t, said, "1 10")
	for i := range 3 {
		a.events <- `{"type":"ADDED","object":` + storedConfiguration(fmt.Sprint("more-", i), 1, webhooks) + `}`
		eventually(t, said, fmt.Sprint(2+i, 11+i))
	}
}

// TestRunEnds checks that the plugin stops following custom resources when its context ends.
func TestRunEnds(t *testing.T) {
	plugin := validatingadmissionwebhook.Plugin()
	needs := plugin.AllNeeds([]byte(followConfig))
	state, err := cluster.New(cluster.Options{Embedded: true, Kinds: cluster.KindsOf(needs...)})
	if err == nil {
		err = state.Follow(t.Context(), needs...)
	}
	if err != nil {
		t.Fatal(err)
	}
	handler, err := plugin.New(admission.Setup{Config: []byte(followConfig), Cluster: state.View(needs...)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		handler.Run(ctx, cancel)
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Error("it goes on")
	}
}
