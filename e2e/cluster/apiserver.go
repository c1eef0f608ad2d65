package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// lessGC returns GOGC for Kubernetes' processes. The script run sets it where nothing is measured.
func lessGC() []string {
	if value := os.Getenv("FASTADMIT_E2E_GOGC"); value != "" {
		return []string{"GOGC=" + value}
	}
	return nil
}

// Etcd is a running etcd. Several API servers can use it.
type Etcd struct {
	url string
}

// StartEtcd starts one.
func StartEtcd(t testing.TB) *Etcd {
	t.Helper()
	client, peer := testserver.FreeAddress(t), "http://"+testserver.FreeAddress(t)
	e := &Etcd{url: "http://" + client}
	p := startIn(t, lessGC(), "etcd", nil, Built("etcd"),
		"--data-dir", t.TempDir(), "--log-level", "warn",
		"--unsafe-no-fsync", // nothing here outlives the test
		// So that requests meet the API server's limits, not etcd's.
		"--max-request-bytes", "8388608",
		"--listen-client-urls", e.url, "--advertise-client-urls", e.url,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default="+peer)
	p.await(t, func() error { return dial(client) })
	return e
}

func dial(address string) error {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Compact removes all but the newest version of each key from etcd, by its JSON gateway.
func (e *Etcd) Compact() error {
	var got struct{ Header struct{ Revision string } }
	// A write, so that the revision of the last list is compacted too.
	if err := e.call("/v3/kv/put", `{"key":"ZTJl","value":"ZTJl"}`, &got); err != nil {
		return err
	}
	return e.call("/v3/kv/compaction", fmt.Sprintf(`{"revision":%q}`, got.Header.Revision), &got)
}

// Put writes keys and their values into etcd. That takes seconds where an API server would take
// minutes. Each key gets a revision of its own, because API servers assume that no two objects have
// the same revision: otherwise a list could begin between two of them.
func (e *Etcd) Put(values map[string][]byte) error {
	const writers = 2 // as many connections as net/http keeps
	keys := make(chan string)
	var putting errgroup.Group
	for range writers {
		putting.Go(func() (failed error) {
			for key := range keys {
				body, err := json.Marshal(map[string][]byte{"key": []byte(key), "value": values[key]})
				if err == nil {
					err = e.call("/v3/kv/put", string(body), &struct{}{})
				}
				failed = cmp.Or(failed, err)
			}
			return failed
		})
	}
	for key := range values {
		keys <- key
	}
	close(keys)
	return putting.Wait()
}

func (e *Etcd) call(path, body string, into any) error {
	response, err := http.Post(e.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("etcd: %s: %s", response.Status, text)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// RestrictedPods is an AdmissionConfiguration with which PodSecurity denies pods that are not
// restricted, unless the namespace has other labels.
const RestrictedPods = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: restricted}
`

// Token authenticates the tests, as a member of system:masters.
const Token = "e2e"

// APIServer is a running kube-apiserver and clients for it.
type APIServer struct {
	Config    *rest.Config
	Client    kubernetes.Interface
	Dynamic   dynamic.Interface
	name      string
	binary    string
	audit     string
	mapper    meta.ResettableRESTMapper
	t         testing.TB // with which it ends
	process   *Process
	arguments []string
}

// APIServerOptions are the options of an API server.
type APIServerOptions struct {
	// Name is the name of its log, apiserver if empty.
	Name string
	// Prefix is the prefix of its objects in etcd. API servers with the same one share them, as
	// replicas do.
	Prefix string
	// On are plugins to enable. Those that are on by default stay on, except those that a webhook
	// replaces.
	On []string
	// Release is the minor release of Kubernetes. make e2e builds the newest one, which is the zero value,
	// and make e2e-full also those in the folder apiservers.
	Release admission.Version
	// Flags are further flags, without dashes, and other values for the default ones. Without
	// authorization flags, everybody may do everything.
	Flags map[string]string
}

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

// StartAPIServer starts an API server, which ends with the test.
func (e *Etcd) StartAPIServer(t testing.TB, o APIServerOptions) *APIServer {
	t.Helper()
	s := &APIServer{t: t, name: cmp.Or(o.Name, "apiserver"), audit: filepath.Join(t.TempDir(), "audit.log")}
	s.binary = Built("kubernetes/kube-apiserver")
	if o.Release != admission.Newest() {
		s.binary = Built("apiserver-v" + o.Release.String())
	}
	host, port, err := net.SplitHostPort(testserver.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	key := WriteFile(t, "service-accounts.key", encodeKey(t, newKey(t)))
	// Otherwise it generates RSA keys for a certificate, which takes longer.
	serving, servingKey := SelfSigned(t, Serving(time.Now().Add(24*time.Hour), host))
	flags := map[string]string{
		"etcd-servers": e.url, "etcd-prefix": "/registry/" + o.Prefix,
		"bind-address": host, "secure-port": port,
		"tls-cert-file": WriteFile(t, "tls.crt", serving), "tls-private-key-file": WriteFile(t, "tls.key", servingKey),
		"authorization-mode":       "AlwaysAllow",
		"token-auth-file":          WriteFile(t, "tokens.csv", []byte(Token+",admin,admin,system:masters\n")),
		"service-account-issuer":   "https://e2e.example.com",
		"service-account-key-file": key, "service-account-signing-key-file": key,
		"service-cluster-ip-range": "10.0.0.0/16",
		"endpoint-reconciler-type": "none",
		"allow-privileged":         "true",
		"audit-policy-file":        WriteFile(t, "audit.yaml", []byte(auditPolicy)), "audit-log-path": s.audit,
		"audit-log-mode":            "blocking-strict",
		"shutdown-delay-duration":   "0",
		"enable-admission-plugins":  strings.Join(o.On, ","),
		"disable-admission-plugins": off(o.On, o.Release),
	}
	maps.Copy(flags, o.Flags)
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		s.arguments = append(s.arguments, "--"+name+"="+flags[name])
	}
	s.run(t)
	s.connect(t, "https://"+net.JoinHostPort(flags["bind-address"], flags["secure-port"]))
	return s
}

func (s *APIServer) run(t testing.TB) {
	t.Helper()
	s.process = startIn(t, lessGC(), s.name, nil, s.binary, s.arguments...)
}

// WebhookPlugins are the plugins by which an API server calls fastadmit.
var WebhookPlugins = []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"}

// off returns the plugins to switch off.
func off(on []string, release admission.Version) string {
	var all []string
	options := handlers.DefaultOptions()
	options.Version = release
	for _, p := range handlers.InTree(options) {
		if p.OnByDefault && !slices.Contains(on, p.Name) && !slices.Contains(WebhookPlugins, p.Name) {
			all = append(all, p.Name)
		}
	}
	return strings.Join(all, ",")
}

// Restart ends the API server as Kubernetes does, and starts it again. It still
// ends with the test that it was started with.
func (s *APIServer) Restart() {
	s.Stop()
	s.StartAgain()
}

// Stop ends it with SIGTERM, as Kubernetes does.
func (s *APIServer) Stop() { s.process.Stop(s.t) }

// PID returns the number of its process.
func (s *APIServer) PID() int { return s.process.PID() }

// Kill ends it at once.
func (s *APIServer) Kill() { s.process.Kill() }

// StartAgain starts it after Stop or Kill.
func (s *APIServer) StartAgain() {
	s.run(s.t)
	s.process.await(s.t, s.Ready)
}

// Ready returns why the server is not ready.
func (s *APIServer) Ready() error {
	_, err := s.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background())
	return err
}

// connect makes the clients and waits until the server is ready.
func (s *APIServer) connect(t testing.TB, host string) {
	t.Helper()
	s.Config = &rest.Config{
		Host: host, BearerToken: Token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		UserAgent:       "e2e",
		WarningHandler:  rest.NoWarnings{},
	}
	s.makeClients(t)
	s.process.await(t, s.Ready)
	s.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.Client.Discovery()))
}

func (s *APIServer) makeClients(t testing.TB) {
	t.Helper()
	var err error
	if s.Client, err = kubernetes.NewForConfig(s.Config); err != nil {
		t.Fatal(err)
	}
	if s.Dynamic, err = dynamic.NewForConfig(s.Config); err != nil {
		t.Fatal(err)
	}
}

// WithWarnings returns the same API server with clients that pass its warnings to the handler.
func (s *APIServer) WithWarnings(t testing.TB, handler rest.WarningHandler) *APIServer {
	t.Helper()
	other := *s
	other.Config = rest.CopyConfig(s.Config)
	other.Config.WarningHandler = handler
	other.makeClients(t)
	return &other
}

// As returns the same API server with clients that impersonate a user.
func (s *APIServer) As(t testing.TB, username string, groups []string) *APIServer {
	t.Helper()
	other := *s
	other.Config = rest.CopyConfig(s.Config)
	other.Config.Impersonate = rest.ImpersonationConfig{UserName: username, Groups: groups}
	other.makeClients(t)
	return &other
}

// At returns the same API server with clients that connect to another address.
func (s *APIServer) At(t testing.TB, address string) *APIServer {
	t.Helper()
	other := *s
	other.Config = rest.CopyConfig(s.Config)
	other.Config.Host = "https://" + address
	other.makeClients(t)
	return &other
}

// Resource returns a client for the resource of the object, in the object's
// namespace.
func (s *APIServer) Resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := object.GroupVersionKind()
	mapping, err := s.mapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	resource := s.Dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return resource.Namespace(namespaceOf(object)), nil
	}
	return resource, nil
}

func (s *APIServer) mapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := s.mapper.RESTMapping(kind, versions...)
	if meta.IsNoMatchError(err) {
		s.mapper.Reset()
		mapping, err = s.mapper.RESTMapping(kind, versions...)
	}
	return mapping, err
}

// Served returns the version in which the API server serves a kind: the given one, or else the one that it prefers.
func (s *APIServer) Served(kind schema.GroupVersionKind) (version schema.GroupVersion, served bool) {
	mapping, err := s.mapping(kind.GroupKind(), kind.Version)
	if err != nil {
		mapping, err = s.mapping(kind.GroupKind())
	}
	if err != nil {
		return schema.GroupVersion{}, false
	}
	return mapping.GroupVersionKind.GroupVersion(), true
}

func namespaceOf(object *unstructured.Unstructured) string {
	if namespace := object.GetNamespace(); namespace != "" {
		return namespace
	}
	return "default"
}

// Audit returns the audit events so far that want accepts.
func (s *APIServer) Audit(want func(e *auditv1.Event) bool) ([]auditv1.Event, error) {
	content, err := os.ReadFile(s.audit)
	if err != nil {
		return nil, err
	}
	var events []auditv1.Event
	for line := range bytes.Lines(content) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%w in %s", err, line)
		}
		if want(&e) {
			events = append(events, e)
		}
	}
	return events, nil
}

// StartControllerManager starts controllers.
func (s *APIServer) StartControllerManager(t testing.TB, controllers ...string) {
	t.Helper()
	startIn(t, lessGC(), s.name+"-controllers", nil, Built("kubernetes/kube-controller-manager"),
		"--kubeconfig", s.Kubeconfig(t), "--leader-elect=false", "--bind-address", "127.0.0.1", "--secure-port", "0",
		"--controllers", strings.Join(controllers, ","))
}

// Kubectl runs kubectl and returns what it prints. It returns an error if kubectl fails.
func (s *APIServer) Kubectl(t testing.TB, stdin string, arguments ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.Command(Built("kubernetes/kubectl"), arguments...)
	cmd.Env = append([]string{"KUBECONFIG=" + s.Kubeconfig(t), "HOME=" + t.TempDir()}, lessGC()...) // for its cache of API resources
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatalf("cannot run kubectl: %v; make e2e builds it", err)
	}
	return out.String(), errs.String(), err
}

// MustKubectl is Kubectl for a command that must succeed. It returns its standard output.
func (s *APIServer) MustKubectl(t testing.TB, stdin string, arguments ...string) string {
	t.Helper()
	stdout, stderr, err := s.Kubectl(t, stdin, arguments...)
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s%s", strings.Join(arguments, " "), err, stdout, stderr)
	}
	return stdout
}

// AwaitCRDs waits until the API server serves the named custom kinds, by default all that it has.
// The time is long: kubectl's own 30 seconds end early on a machine with much to do.
func (s *APIServer) AwaitCRDs(t testing.TB, names ...string) {
	t.Helper()
	arguments := []string{"wait", "--for=condition=Established", "--timeout=5m", "crd"}
	if len(names) == 0 {
		names = []string{"--all"}
	}
	s.MustKubectl(t, "", append(arguments, names...)...)
}

// Kubeconfig returns a kubeconfig file for the API server.
func (s *APIServer) Kubeconfig(t testing.TB) string {
	t.Helper()
	return WriteFile(t, "kubeconfig", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"e2e",
"clusters":[{"name":"e2e","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
"users":[{"name":"e2e","user":{"token":%q}}],
"contexts":[{"name":"e2e","context":{"cluster":"e2e","user":"e2e"}}]}`, s.Config.Host, Token))
}
