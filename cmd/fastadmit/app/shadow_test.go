package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
	"github.com/fastadmit/fastadmit/internal/shadow"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// tried returns the page of a server's shadow.
func (s *running) tried(t testing.TB) (report shadow.Report) {
	t.Helper()
	if err := json.Unmarshal([]byte(s.Get(t, "/shadow", 200)), &report); err != nil {
		t.Fatal(err)
	}
	return report
}

// compared waits until the shadow has compared as many reviews.
func (s *running) compared(t testing.TB, want int64) shadow.Report {
	t.Helper()
	servertest.Until(t, "the reviews are compared", func() bool { return s.tried(t).Reviews >= want })
	return s.tried(t)
}

const triedDeny = "shadow:\n  enableAdmissionPlugins: [AlwaysDeny]\n  processorPercent: 100\n"

// TestShadow tries a plugin, looks at the differences, and then moves its line to its place.
func TestShadow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	servertest.WriteFile(t, file, configHead+"enableAdmissionPlugins: [AlwaysAdmit]\n")
	s := serve(t, nil, "--config="+file)
	address := strings.TrimPrefix(s.Ops, "http://")
	if _, stderr, code := execute("", "shadow", "--metrics-address="+address); code != 1 ||
		!strings.Contains(stderr, "the configuration has no shadow") {
		t.Errorf("without a shadow: got %d %s", code, stderr)
	}
	if strings.Contains(s.Get(t, "/metrics", 200), "fastadmit_shadow") {
		t.Error("got metrics without a shadow")
	}

	servertest.WriteFile(t, file, configHead+"enableAdmissionPlugins: [AlwaysAdmit]\n"+triedDeny)
	servertest.Until(t, "there is a shadow", func() bool { return strings.Contains(s.Log.String(), "configuration reloaded") })
	x := s.Open(t)
	for range 3 {
		if _, body := x.Answer("/validate/ignore"); !strings.Contains(body, `"allowed":true`) {
			t.Fatalf("got %s", body)
		}
	}
	report := s.compared(t, 3)
	if len(report.Differences) != 1 || report.Differing != 3 {
		t.Fatalf("got %+v", report)
	}
	if d := report.Differences[0]; d.Plugin != "AlwaysDeny" || d.From != "allowed" || d.To != "denied" || d.Reviews != 3 ||
		d.Resource != "pods" {
		t.Errorf("got %+v", d)
	}
	servertest.Until(t, "it is counted", func() bool {
		return strings.Contains(s.Get(t, "/metrics", 200),
			`fastadmit_shadow_differences_total{plugin="AlwaysDeny",policy="",from="allowed",to="denied"} 3`+"\n")
	})
	stdout, stderr, code := execute("", "shadow", "--metrics-address="+address)
	if want := "pods in shop: 3 reviews, allowed to denied by AlwaysDeny, last at "; code != 0 || !strings.HasPrefix(stdout, want) ||
		!strings.Contains(stdout, ": 3 reviews, 3 with another answer\n") {
		t.Errorf("got %d %s %s, want %s", code, stdout, stderr, want)
	}
	if stdout, _, code := execute("", "shadow", "--metrics-address="+address, "-o", "json"); code != 0 ||
		stdout != s.Get(t, "/shadow", 200) {
		t.Errorf("got %d %s", code, stdout)
	}

	servertest.WriteFile(t, file, configHead+"enableAdmissionPlugins: [AlwaysAdmit, AlwaysDeny]\n")
	servertest.Until(t, "the plugin denies", func() bool {
		_, body := x.Answer("/validate/fail")
		return strings.Contains(body, `"allowed":false`)
	})
	s.Get(t, "/shadow", http.StatusNotFound)
}

// TestShadowRefused has errors in what is to be tried. They are reported with their place, and nothing changes.
func TestShadowRefused(t *testing.T) {
	f := func(want, text string) {
		t.Helper()
		file := servertest.TempFile(t, "config.yaml", configHead+"enableAdmissionPlugins: [AlwaysAdmit]\nshadow:\n"+text)
		if _, stderr, code := execute("", "config", "--config="+file); code != exitBroken || !strings.Contains(stderr, want) {
			t.Errorf("%s: got %d %s, want %s", text, code, stderr, want)
		}
	}
	f("shadow: MutatingAdmissionWebhook cannot run there, because it calls other servers",
		"  enableAdmissionPlugins: [MutatingAdmissionWebhook]\n")
	f("config.yaml:10: shadow.admissionConfiguration.plugins[0].configuration.limits: plugin EventRateLimit: ",
		"  enableAdmissionPlugins: [EventRateLimit]\n  admissionConfiguration:\n    plugins:\n    - name: EventRateLimit\n"+
			"      configuration: "+
			"{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration,\n        limits: []}\n")
	f(`unknown plugin "AlwaysAdmits"`, "  enableAdmissionPlugins: [AlwaysAdmits]\n")
}

// TestShadowRegisters prints webhooks for a plugin that is only in the shadow: kube-apiserver goes on if it cannot call
// them. The ClusterRole has what the plugin reads and nothing that it would write.
func TestShadowRegisters(t *testing.T) {
	file := servertest.TempFile(t, "config.yaml", configHead+"enableAdmissionPlugins: [AlwaysPullImages]\nshadow:\n"+
		"  enableAdmissionPlugins: [NamespaceAutoProvision, PodSecurity]\n")
	stdout, stderr, code := execute("", "manifests", "--config="+file, "--kind=ValidatingWebhookConfiguration")
	if code != 0 || strings.Count(stdout, "failurePolicy: Fail") != 1 || strings.Count(stdout, "failurePolicy: Ignore") != 1 ||
		!strings.Contains(stdout, "path: /validate/ignore") || !strings.Contains(stdout, "- statefulsets") {
		t.Errorf("got %d %s %s", code, stdout, stderr)
	}
	stdout, _, code = execute("", "manifests", "--config="+file, "--kind=MutatingWebhookConfiguration")
	if code != 0 || !strings.Contains(stdout, "sideEffects: None\n") || strings.Contains(stdout, "NoneOnDryRun") {
		t.Errorf("got %d %s", code, stdout)
	}
	stdout, _, code = execute("", "manifests", "--config="+file, "--kind=ClusterRole")
	if code != 0 || !strings.Contains(stdout, "- namespaces") || strings.Contains(stdout, "create") {
		t.Errorf("got %d %s", code, stdout)
	}
}

// A lister is an API server with the objects that plugins with side effects look at. It counts writes.
type lister struct {
	mu     sync.Mutex
	writes []string
}

// listKinds are the kinds of lists by resource.
var listKinds = map[string]string{
	"namespaces": "NamespaceList v1", "resourcequotas": "ResourceQuotaList v1", "deviceclasses": "DeviceClassList resource.k8s.io/v1",
	"validatingadmissionpolicies":       "ValidatingAdmissionPolicyList policies.fastadmit.io/v1",
	"validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBindingList policies.fastadmit.io/v1",
	"policyexceptions":                  "PolicyExceptionList policies.fastadmit.io/v1",
	"policyreplicas":                    "PolicyReplicaList policies.fastadmit.io/v1",
}

// ServeHTTP implements http.Handler.
func (l *lister) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	_, _ = io.Copy(io.Discard, request.Body)
	resource := request.URL.Path[strings.LastIndexByte(request.URL.Path, '/')+1:]
	kind, apiVersion, known := strings.Cut(listKinds[resource], " ")
	query := request.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case request.Method != http.MethodGet:
		if !strings.Contains(request.URL.Path, "reviews") { // SubjectAccessReviews
			l.mu.Lock()
			l.writes = append(l.writes, request.Method+" "+request.URL.Path)
			l.mu.Unlock()
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"new"}}`)
	case !known:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	case query.Get("sendInitialEvents") != "": // lists it is then
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case query.Get("watch") != "":
		w.(http.Flusher).Flush()
		<-request.Context().Done()
	default:
		items := ""
		if resource == "resourcequotas" {
			items = `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q","namespace":"shop","resourceVersion":"1"},` +
				`"spec":{"hard":{"pods":"9"}},` +
				`"status":{"hard":{"pods":"9"},"used":{"pods":"0"}}}`
		}
		fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[%s]}`, kind, apiVersion, items)
	}
}

func (l *lister) wrote() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes
}

var unsynced = regexp.MustCompile(`fastadmit_cluster_synced\{[^}]*\} 0`)

// TestShadowWritesNothing has plugins that charge quotas, create namespaces, and report which policies they enforce.
// In the shadow, none of them writes. Outside of it, they do.
func TestShadowWritesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("with the race detector: client-go reads klog's global logger while the next server sets it")
	}
	const plugins = "enableAdmissionPlugins: [AlwaysAdmit, ResourceQuota, NamespaceAutoProvision, ValidatingAdmissionPolicy]\n"
	const configuration = `plugins:
- name: ValidatingAdmissionPolicy
  configuration: {apiVersion: fastadmit.io/v1alpha1, kind: ValidatingAdmissionPolicyConfiguration, customResources: true}
`
	indented := func(text string) string {
		return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
	}
	f := func(t *testing.T, config, admissionConfig string) (*running, *lister) {
		t.Helper()
		api := new(lister)
		server := testserver.Start(t, api)
		kubeconfig := servertest.TempFile(t, "kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`, server.URL))
		file := servertest.TempFile(t, "config.yaml", configHead+config)
		args := []string{"--config=" + file, "--kubeconfig=" + kubeconfig, "--allow-unauthenticated-writes"}
		if admissionConfig != "" {
			args = append(args, "--admission-control-config-file="+servertest.TempFile(t, "admission.yaml", admissionConfig))
		}
		s := serve(t, nil, args...)
		servertest.Until(t, "all is listed", func() bool {
			_, about := s.Ask(t, "/readyz?verbose")
			series := s.Get(t, "/metrics", 200)
			return strings.Contains(about, "[+]cluster ok\n") &&
				strings.Contains(series, `fastadmit_cluster_synced{resource="resourcequotas"} 1`) &&
				!unsynced.MatchString(series)
		})
		x := s.Open(t)
		for _, path := range []string{"/mutate", "/validate"} {
			if code, body := x.Answer(path); code != 200 || !strings.Contains(body, `"allowed":true`) {
				t.Fatalf("%s: got %d %s", path, code, body)
			}
		}
		return s, api
	}
	t.Run("shadow", func(t *testing.T) {
		s, api := f(t, "enableAdmissionPlugins: [AlwaysAdmit]\nshadow:\n  processorPercent: 100\n"+indented(plugins)+
			"  admissionConfiguration:\n  "+strings.ReplaceAll(indented(configuration), "\n", "\n  "), "")
		report := s.compared(t, 2)
		if report.Differing > 0 {
			t.Errorf("got %+v", report)
		}
		if series := s.Get(t, "/metrics", 200); strings.Contains(series, "fastadmit_shadow_plugin_failures_total{") {
			t.Errorf("a plugin fails in the shadow: %s", s.Log)
		}
		s.end(t)
		if writes := api.wrote(); len(writes) > 0 {
			t.Errorf("got the writes %q", writes)
		}
	})
	t.Run("promoted", func(t *testing.T) {
		_, api := f(t, plugins, "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"+configuration)
		servertest.Until(t, "all write", func() bool {
			all := strings.Join(api.wrote(), "\n") + "\n"
			return strings.Contains(all, "POST /api/v1/namespaces\n") &&
				strings.Contains(all, "PUT /api/v1/namespaces/shop/resourcequotas/q/status\n") &&
				strings.Contains(all, "POST /apis/policies.fastadmit.io/v1/policyreplicas\n")
		})
	})
}

// TestShadowHarmsNobody has plugins in the shadow that panic, end their goroutine, fail and wait, while the
// configuration changes. All calls are answered as without them, and serve ends in time.
func TestShadowHarmsNobody(t *testing.T) {
	var asked atomic.Int64
	bad := admission.Plugin{Name: "Bad", Rules: []admission.Rule{admission.Any()}, Mutates: true, Validates: true}
	bad.New = func(admission.Setup) (admission.Handler, error) {
		misbehave := func(ctx context.Context, _ *codec.Review) admission.Result {
			switch asked.Add(1) % 4 {
			case 0:
				panic("bad")
			case 1:
				return admission.Errored(io.ErrUnexpectedEOF)
			case 2:
				<-ctx.Done()
			}
			return admission.Allowed()
		}
		return admission.Handler{Admit: misbehave, Validate: misbehave}, nil
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	config := func(n int) string {
		return fmt.Sprintf(configHead+"enableAdmissionPlugins: [AlwaysAdmit]\n"+
			"shadow: {enableAdmissionPlugins: [Bad], processorPercent: %d}\n", 100-n)
	}
	servertest.WriteFile(t, file, config(0))
	s := serve(t, []admission.Plugin{bad}, "--config="+file)
	var stop atomic.Bool
	var asking sync.WaitGroup
	for range 4 {
		x := s.Open(t)
		asking.Go(func() {
			for !stop.Load() {
				for _, path := range []string{"/mutate", "/validate"} {
					if code, body := x.Answer(path); code != http.StatusOK || !strings.Contains(body, `"allowed":true`) {
						t.Errorf("got %d %s", code, body)
						return
					}
				}
			}
		})
	}
	for n := range 5 {
		servertest.Until(t, "the shadow is asked", func() bool { return s.tried(t).Skipped["queue"] > 0 })
		before := s.tried(t).Since
		servertest.WriteFile(t, file, config(n+1))
		servertest.Until(t, "it was reloaded", func() bool { return s.tried(t).Since != before })
	}
	servertest.Until(t, "the plugin fails", func() bool {
		return strings.Contains(s.Get(t, "/metrics", 200), `fastadmit_shadow_plugin_failures_total{plugin="Bad"}`)
	})
	stop.Store(true)
	asking.Wait()
	s.end(t)
}

// TestShadowHostile has names that users chose. The page and the command escape them.
func TestShadowHostile(t *testing.T) {
	var stopped bytes.Buffer
	if err := printShadow(&stopped, "text", []byte(`{"stopped":"a plugin\n::error::\u001b"}`)); err != nil ||
		!strings.HasSuffix(stopped.String(), "\nthe shadow has stopped: a plugin\\n::error::\\x1b\n") {
		t.Errorf("got %q, %v", stopped.String(), err)
	}
	file := servertest.TempFile(t, "config.yaml", configHead+"enableAdmissionPlugins: [AlwaysAdmit]\n"+triedDeny)
	s := serve(t, nil, "--config="+file)
	body := strings.ReplaceAll(string(corpus.MustRead(servertest.PodCreate)), `"namespace":"shop"`,
		`"namespace":"sh\u202eop\u001b[31m\n::error::"`)
	s.Open(t).Send(servertest.Request("/validate", []byte(body)))
	s.compared(t, 1)
	stdout, stderr, code := execute("", "shadow", "--metrics-address="+strings.TrimPrefix(s.Ops, "http://"))
	for _, text := range []string{s.Get(t, "/shadow", 200), stdout} {
		if code != 0 || strings.ContainsAny(text, "\u202e\x1b") || strings.Contains(text, "\n::error") ||
			!strings.Contains(text, `\u202e`) {
			t.Errorf("got %d %s %s", code, text, stderr)
		}
	}
}
