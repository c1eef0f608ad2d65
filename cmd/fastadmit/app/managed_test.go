package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A registry is as much of an API server as certificates and registrations of
// others need: it keeps what it is sent and answers with what is there.
type registry struct {
	mu      sync.Mutex
	objects map[string]json.RawMessage // by path
	writes  []string                   // method, path and body of each
}

// ServeHTTP implements http.Handler.
func (r *registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.URL.Query().Get("watch") != "" {
		w.(http.Flusher).Flush()
		<-request.Context().Done()
		return
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	path := request.URL.Path
	if request.Method != http.MethodGet {
		r.writes = append(r.writes, fmt.Sprintf("%s %s %s", request.Method, request.URL.RequestURI(), body))
	}
	if request.Method == http.MethodPost {
		path += "/certificate"
		r.objects[path] = body
	}
	object, code := r.objects[path], http.StatusOK
	if object == nil {
		object, code = json.RawMessage(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`), http.StatusNotFound
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(object)
}

// wrote returns the writes that begin so.
func (r *registry) wrote(prefix string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.writes), func(write string) bool { return !strings.HasPrefix(write, prefix) })
}

// TestOthersRegister has others register fastadmit: only the caBundle of their
// webhooks for it is written, and nothing is registered beside them.
func TestOthersRegister(t *testing.T) {
	const group = "/apis/admissionregistration.k8s.io/v1/"
	api := &registry{objects: map[string]json.RawMessage{
		group + "validatingwebhookconfigurations/theirs.example.com": json.RawMessage(`{"apiVersion":"admissionregistration.k8s.io/v1",
"kind":"ValidatingWebhookConfiguration","metadata":{"name":"theirs.example.com","resourceVersion":"7"},"webhooks":[
{"name":"ours.example.com","clientConfig":{"service":{"namespace":"fastadmit","name":"fastadmit"}}},
{"name":"theirs.example.com","clientConfig":{"service":{"namespace":"theirs","name":"theirs"}}}]}`),
	}}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close) // after fastadmit, which watches
	kubeconfig := writeTestFile(t, "kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`, server.URL))
	config := writeTestFile(t, "config.yaml", configHead+"enableAdmissionPlugins: [AlwaysPullImages]\n")
	s := serve(t, nil, "--config="+config, "--kubeconfig="+kubeconfig,
		"--cert-secret-name=certificate", "--cert-secret-namespace=fastadmit",
		"--webhook-configurations=mutating/not-yet.example.com,validating/theirs.example.com")
	const patch = "PATCH " + group + "validatingwebhookconfigurations/theirs.example.com?fieldManager=fastadmit-certs&force=true "
	until(t, "a caBundle is written", func() bool { return len(api.wrote(patch)) > 0 })
	var applied struct {
		Metadata map[string]string
		Webhooks []struct {
			Name         string
			ClientConfig map[string]string
		}
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(api.wrote(patch)[0], patch)), &applied); err != nil {
		t.Fatal(err)
	}
	if w := applied.Webhooks; len(w) != 1 || w[0].Name != "ours.example.com" || len(w[0].ClientConfig) != 1 || w[0].ClientConfig["caBundle"] == "" {
		t.Errorf("got webhooks %v, want the caBundle of ours.example.com", applied.Webhooks)
	}
	if applied.Metadata["resourceVersion"] != "7" {
		t.Errorf("got metadata %v, want the version that was read", applied.Metadata)
	}

	// Other plugins are nothing that fastadmit registers.
	write(t, config, configHead+"enableAdmissionPlugins: [AlwaysDeny]\n")
	until(t, "the change takes effect", func() bool {
		return strings.Contains(s.get(t, "/metrics", 200), "\nfastadmit_config_reload_successes_total 1\n")
	})
	if got := len(api.wrote("")) - len(api.wrote(patch)) - len(api.wrote("POST /api/v1/namespaces/fastadmit/secrets ")); got != 0 {
		t.Errorf("got writes %q, want those of the Secret and of one configuration", api.wrote(""))
	}
}

func TestOthersRegisterWrong(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		_, stderr, code := execute("", append([]string{"serve", "--enable-admission-plugins=AlwaysAdmit"}, args...)...)
		if code != 2 || !strings.Contains(stderr, "--webhook-configurations"+want) {
			t.Errorf("%q: got exit code %d, stderr %q, want 2 with %q", args, code, stderr, want)
		}
	}
	managed := "--cert-secret-name=a"
	f(` goes with --cert-secret-name`, "--webhook-configurations=mutating/a")
	for _, wrong := range []string{"a", "mutating", "mutating/", "/a", "mutatings/a", "Mutating/a", "mutating/a/b", "mutating/A", "mutating/.."} {
		f(fmt.Sprintf(`: got %q, want mutating/<name> or validating/<name>`, wrong), managed, "--webhook-configurations=validating/a,"+wrong)
	}
	f(`: got mutating/a twice`, managed, "--webhook-configurations=mutating/a,validating/a,mutating/a")
	f(`: got "x", want`, managed, "--config="+writeTestFile(t, "config.yaml", configHead+"server: {webhookConfigurations: [x]}"))
}
