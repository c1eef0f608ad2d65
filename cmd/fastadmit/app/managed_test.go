package app

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// A registry is a small API server for Secrets and webhook configurations: it
// stores what clients write, and serves it.
type registry struct {
	mu      sync.Mutex
	objects map[string]json.RawMessage // by path
	writes  []string                   // method, path and body of each
	refuses bool                       // changes stored objects
	changed chan struct{}              // for the watches of clients
}

const theirs = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/theirs.example.com"

// ServeHTTP implements http.Handler.
func (r *registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if request.URL.Query().Get("watch") != "" {
		w.(http.Flusher).Flush()
		select {
		case <-request.Context().Done():
		case <-r.changed:
			_, _ = io.WriteString(w, "{}") // the content does not matter
		}
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
	switch {
	case request.Method == http.MethodGet:
	case r.refuses:
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"no","code":403}`)
		return
	case request.Method == http.MethodPost:
		path += "/certificate"
		r.objects[path] = body
	case request.Method == http.MethodPatch:
		if r.objects[path] == nil {
			r.objects[path] = body
			break
		}
		bundle := regexp.MustCompile(`"caBundle":"[^"]*"`)
		r.objects[path] = bundle.ReplaceAll(r.objects[path], bundle.Find(body))
	}
	if request.Method != http.MethodGet {
		r.writes = append(r.writes, fmt.Sprintf("%s %s %s", request.Method, request.URL.RequestURI(), body))
	}
	object := r.objects[path]
	if object == nil {
		w.WriteHeader(http.StatusNotFound)
		object = json.RawMessage(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}
	_, _ = w.Write(object)
}

// register stores a webhook configuration that somebody else made, with that
// bundle in the webhook for fastadmit.
func (r *registry) register(bundle []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects[theirs] = fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1",
"kind":"ValidatingWebhookConfiguration","metadata":{"name":"theirs.example.com","resourceVersion":"7"},"webhooks":[
{"name":"ours.example.com","clientConfig":{"caBundle":%q,"service":{"namespace":"fastadmit","name":"fastadmit"}}},
{"name":"theirs.example.com","clientConfig":{"service":{"namespace":"theirs","name":"theirs"}}}]}`,
		base64.StdEncoding.EncodeToString(bundle))
}

// serveManaged starts a server that keeps its certificates in a registry.
func serveManaged(t *testing.T, config string) (*running, *registry) {
	t.Helper()
	api := &registry{objects: make(map[string]json.RawMessage), changed: make(chan struct{})}
	api.register(nil)
	return serve(t, nil, "--config="+config, "--kubeconfig="+api.start(t),
		"--cert-secret-name=certificate", "--cert-secret-namespace=fastadmit",
		"--webhook-configurations=mutating/not-yet.example.com,validating/theirs.example.com"), api
}

// start makes the registry serve until the test ends, and returns a kubeconfig
// file for it.
func (r *registry) start(t *testing.T) string {
	t.Helper()
	server := testserver.Start(t, r)
	return servertest.TempFile(t, "kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`, server.URL))
}

// wrote returns the writes that start with the prefix.
func (r *registry) wrote(prefix string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.writes), func(write string) bool { return !strings.HasPrefix(write, prefix) })
}

// TestOthersRegister tests webhooks that somebody else registers: fastadmit
// writes only the caBundle of those that call it, and registers none of its own.
func TestOthersRegister(t *testing.T) {
	config := servertest.TempFile(t, "config.yaml", configHead+"enableAdmissionPlugins: [AlwaysPullImages]\n")
	s, api := serveManaged(t, config)
	const patch = "PATCH " + theirs + "?fieldManager=fastadmit-certs&force=true "
	servertest.Until(t, "a caBundle is written", func() bool { return len(api.wrote(patch)) > 0 })
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
	if w := applied.Webhooks; len(w) != 1 || w[0].Name != "ours.example.com" || len(w[0].ClientConfig) != 1 ||
		w[0].ClientConfig["caBundle"] == "" {
		t.Errorf("got webhooks %v, want the caBundle of ours.example.com", applied.Webhooks)
	}
	if applied.Metadata["resourceVersion"] != "7" {
		t.Errorf("got metadata %v, want the version that was read", applied.Metadata)
	}

	servertest.Until(t, "it says that one is missing, and is ready", func() bool {
		code, about := s.Readyz(t)
		return code == http.StatusOK &&
			strings.Contains(about,
				"[-]registration failed without affecting readiness, because webhooks are registered when their Service has "+
					"pods that are ready: "+
					"there is no MutatingWebhookConfiguration not-yet.example.com\n") &&
			strings.Contains(s.Get(t, "/metrics", 200), "\nfastadmit_registered 0\n")
	})

	// With other plugins, fastadmit still registers nothing.
	servertest.WriteFile(t, config, configHead+"enableAdmissionPlugins: [AlwaysDeny]\n")
	servertest.Until(t, "the change takes effect", func() bool {
		return strings.Contains(s.Get(t, "/metrics", 200), "\nfastadmit_config_reload_successes_total 1\n")
	})
	if got := len(api.wrote("")) - len(api.wrote(patch)) - len(api.wrote("POST /api/v1/namespaces/fastadmit/secrets ")); got != 0 {
		t.Errorf("got writes %q, want those of the Secret and of one configuration", api.wrote(""))
	}
}

// TestReadyNeedsTrust has /readyz call the server by the caBundle that is
// registered.
func TestReadyNeedsTrust(t *testing.T) {
	s, api := serveManaged(t, servertest.TempFile(t, "config.yaml", configHead+"enableAdmissionPlugins: [AlwaysPullImages]\n"))
	servertest.Until(t, "it is ready", func() bool {
		code, about := s.Readyz(t)
		return code == http.StatusOK && strings.Contains(about, "[+]certificate ok\n") && len(api.wrote("PATCH")) > 0
	})
	other := servertest.NewAuthority(t)
	api.mu.Lock()
	api.refuses = true
	api.mu.Unlock()
	api.register([]byte(servertest.CertPEM(other.Cert)))
	api.changed <- struct{}{}
	servertest.Until(t, "it is not ready while nobody trusts it", func() bool {
		code, about := s.Readyz(t)
		return code == http.StatusServiceUnavailable && strings.Contains(about, "[-]certificate failed: ") &&
			strings.Contains(about, "not valid for fastadmit.fastadmit.svc by the caBundle")
	})
	api.mu.Lock()
	api.refuses = false
	api.mu.Unlock()
	servertest.Until(t, "it is ready again", func() bool { code, _ := s.Readyz(t); return code == http.StatusOK })
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
	f(` needs --cert-secret-name`, "--webhook-configurations=mutating/a")
	for _, wrong := range []string{"a", "mutating", "mutating/", "/a", "mutatings/a", "Mutating/a", "mutating/a/b",
		"mutating/A", "mutating/.."} {
		f(fmt.Sprintf(`: got %q, want mutating/<name> or validating/<name>`, wrong), managed,
			"--webhook-configurations=validating/a,"+wrong)
	}
	f(`: got mutating/a twice`, managed, "--webhook-configurations=mutating/a,validating/a,mutating/a")
	f(`: got "x", want`, managed, "--config="+servertest.TempFile(t, "config.yaml", configHead+"server: {webhookConfigurations: [x]}"))
}

// TestManagedPathToken registers fastadmit with a path token, keeps it in the
// Secret, and takes no calls without it.
func TestManagedPathToken(t *testing.T) {
	config := servertest.TempFile(t, "config.yaml",
		configHead+"enableAdmissionPlugins: [AlwaysPullImages]\nregistration: {clientConfig: {url: 'https://ADDRESS'}}\n")
	s, api := serveRegistered(t, config)
	var token string
	servertest.Until(t, "both are registered", func() bool {
		registered := api.wrote("PATCH /apis/admissionregistration.k8s.io/v1/")
		for _, w := range registered {
			match := regexp.MustCompile(`"url":"https://` + s.Address + `/([a-z0-9]{26})/(mutate|validate)/fail"`).FindStringSubmatch(w)
			if match == nil || token != "" && match[1] != token {
				t.Fatalf("got %s, want one token in all paths", w)
			}
			token = match[1]
		}
		return len(registered) == 2
	})
	call := func(path string) int {
		response, _ := s.Open(t).Send(servertest.Request(path, corpus.MustRead(servertest.PodCreate)))
		return response.StatusCode
	}
	if got := call("/" + token + "/mutate/fail?timeout=5s"); got != http.StatusOK {
		t.Errorf("with the token: got %d, want 200", got)
	}
	for _, path := range []string{"/mutate/fail", "/validate", "/" + strings.Repeat("a", 26) + "/mutate"} {
		if got := call(path); got != http.StatusUnauthorized {
			t.Errorf("%s: got %d, want 401", path, got)
		}
	}
	secret := strings.Join(api.wrote("POST /api/v1/namespaces/fastadmit/secrets "), "")
	if !strings.Contains(secret, base64.StdEncoding.EncodeToString([]byte(token))[:32]) {
		t.Errorf("got Secret %s, want the token in it", secret)
	}
	for _, text := range []string{s.Log.String(), s.Get(t, "/metrics", 200), s.Get(t, "/readyz?verbose", 200)} {
		if strings.Contains(text, token) {
			t.Errorf("got the token in %s", text)
		}
	}
}

// serveRegistered starts a server that registers itself in a registry by its URL,
// which is ADDRESS in the configuration.
func serveRegistered(t *testing.T, config string) (*running, *registry) {
	t.Helper()
	address := testserver.FreeAddress(t)
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	servertest.WriteFile(t, config, strings.ReplaceAll(string(text), "ADDRESS", address))
	host, port, _ := net.SplitHostPort(address)
	api := &registry{objects: make(map[string]json.RawMessage), changed: make(chan struct{})}
	return serve(t, nil, "--config="+config, "--kubeconfig="+api.start(t), "--bind-address="+host, "--secure-port="+port,
		"--cert-secret-name=certificate", "--cert-secret-namespace=fastadmit"), api
}
