package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/fastadmit/fastadmit/handlers/plugins"
)

// Etcd is a running etcd. Several API servers can use it.
type Etcd struct {
	url string
}

// StartEtcd starts one.
func StartEtcd(t testing.TB) *Etcd {
	t.Helper()
	client, peer := "http://127.0.0.1:"+freePort(t), "http://127.0.0.1:"+freePort(t)
	p := start(t, "etcd", nil, filepath.Join(binaries, "etcd"),
		"--data-dir", t.TempDir(), "--log-level", "warn",
		"--unsafe-no-fsync", // nothing here outlives the test
		// So that the API server's own limits are the ones that are met.
		"--max-request-bytes", "8388608",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default="+peer)
	p.await(t, func() error { return dial(client[len("http://"):]) })
	return &Etcd{url: client}
}

func dial(address string) error {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// token is how the tests authenticate, as a member of system:masters.
const token = "e2e"

// APIServer is a running kube-apiserver and clients for it. Everybody may do
// everything there. It has the plugins that are on by default, less those that
// a webhook is to stand in for and ServiceAccount, which names volumes at
// random.
type APIServer struct {
	Config  *rest.Config
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	name    string
	audit   string
	mapper  meta.ResettableRESTMapper
}

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

// StartAPIServer starts an API server. Those with the same prefix share their
// objects, as replicas do. On are the plugins to switch on; admission is an
// AdmissionConfiguration file, empty for none.
func (e *Etcd) StartAPIServer(t testing.TB, prefix, name, admission string, on ...string) *APIServer {
	t.Helper()
	port, dir := freePort(t), t.TempDir()
	key := writeFile(t, "service-accounts.key", encodeKey(t, newKey(t)))
	s := &APIServer{name: name, audit: filepath.Join(dir, "audit.log")}
	arguments := []string{
		"--etcd-servers", e.url, "--etcd-prefix", "/" + prefix,
		"--bind-address", "127.0.0.1", "--secure-port", port, "--cert-dir", dir,
		"--authorization-mode", "AlwaysAllow",
		"--token-auth-file", writeFile(t, "tokens.csv", []byte(token+",admin,admin,system:masters\n")),
		"--service-account-issuer", "https://e2e.example.com",
		"--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--service-cluster-ip-range", "10.0.0.0/16",
		"--endpoint-reconciler-type", "none",
		"--allow-privileged",
		"--audit-policy-file", writeFile(t, "audit.yaml", []byte(auditPolicy)), "--audit-log-path", s.audit,
		"--audit-log-mode", "blocking-strict",
		"--shutdown-delay-duration", "0",
	}
	off := "ServiceAccount"
	for _, p := range plugins.InTree(plugins.DefaultOptions()) {
		if p.OnByDefault && !slices.Contains(on, p.Name) {
			off += "," + p.Name
		}
	}
	arguments = append(arguments, "--disable-admission-plugins", off)
	for _, p := range on {
		arguments = append(arguments, "--enable-admission-plugins", p)
	}
	if admission != "" {
		arguments = append(arguments, "--admission-control-config-file", admission)
	}
	p := start(t, name, nil, filepath.Join(binaries, "kubernetes/kube-apiserver"), arguments...)
	s.connect(t, p, "https://127.0.0.1:"+port)
	return s
}

// connect makes the clients and waits until the server is ready.
func (s *APIServer) connect(t testing.TB, p *process, host string) {
	t.Helper()
	s.Config = &rest.Config{
		Host: host, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // its certificate is made at start
		UserAgent:       "e2e",
		WarningHandler:  rest.NoWarnings{},
	}
	s.makeClients(t)
	p.await(t, func() error {
		_, err := s.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background())
		return err
	})
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

// WithWarnings returns the same API server with clients that hand its warnings
// to the handler.
func (s *APIServer) WithWarnings(t testing.TB, handler rest.WarningHandler) *APIServer {
	t.Helper()
	other := *s
	other.Config = rest.CopyConfig(s.Config)
	other.Config.WarningHandler = handler
	other.makeClients(t)
	return &other
}

// As returns the same API server with clients that send requests as somebody
// else.
func (s *APIServer) As(t testing.TB, username string, groups []string) *APIServer {
	t.Helper()
	other := *s
	other.Config = rest.CopyConfig(s.Config)
	other.Config.Impersonate = rest.ImpersonationConfig{UserName: username, Groups: groups}
	other.makeClients(t)
	return &other
}

// Resource returns a client for the resource of the object, in the object's
// namespace.
func (s *APIServer) Resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := object.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		s.mapper.Reset()
		mapping, err = s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	if err != nil {
		return nil, err
	}
	resource := s.Dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return resource.Namespace(namespaceOf(object)), nil
	}
	return resource, nil
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

// StartControllerManager starts the controllers that make pods, and those named.
func (s *APIServer) StartControllerManager(t testing.TB, controllers ...string) {
	t.Helper()
	start(t, s.name+"-controllers", nil, filepath.Join(binaries, "kubernetes/kube-controller-manager"),
		"--kubeconfig", s.Kubeconfig(t), "--leader-elect=false", "--bind-address", "127.0.0.1", "--secure-port", "0",
		"--controllers", "deployment-controller,replicaset-controller,statefulset-controller,daemonset-controller,"+
			"job-controller,cronjob-controller,"+strings.Join(append(controllers, "replicationcontroller-controller"), ","))
}

// Kubectl runs kubectl and returns what it prints. The error says that it
// failed, which is not the test's failure.
func (s *APIServer) Kubectl(t testing.TB, stdin string, arguments ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.Command(filepath.Join(binaries, "kubernetes/kubectl"), arguments...)
	cmd.Env = []string{"KUBECONFIG=" + s.Kubeconfig(t), "HOME=" + t.TempDir()} // it caches there what there is
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatalf("cannot run kubectl: %v; make e2e builds it", err)
	}
	return out.String(), errs.String(), err
}

// Kubeconfig returns a file with which commands find the API server.
func (s *APIServer) Kubeconfig(t testing.TB) string {
	t.Helper()
	return writeFile(t, "kubeconfig", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"e2e",
"clusters":[{"name":"e2e","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
"users":[{"name":"e2e","user":{"token":%q}}],
"contexts":[{"name":"e2e","context":{"cluster":"e2e","user":"e2e"}}]}`, s.Config.Host, token))
}
