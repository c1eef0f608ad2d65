package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/internal/certs"
)

const (
	binaries = "../.cache"

	// Who may do everything, and is the one that kubectl of package cluster is;
	// and who may do what certs.Options.Rules says.
	adminToken, managerToken = "e2e", "manager"

	// services is where the cluster has the addresses of its services: addresses
	// of this machine, so that an API server reaches what listens there without
	// the network of a cluster.
	services = "127.11.0.0/16"

	// machine is where etcd and API servers listen: not where connections to
	// 127.0.0.1 come from, which may take any port that was free a moment ago.
	machine = "127.12.0.1"

	// readyMax is how long anything may take to be ready.
	readyMax = 90 * time.Second
)

// startCluster starts an etcd and replicas of an API server, in which only the
// admin may do anything. They end with the test.
func startCluster(t *testing.T, replicas int) []*cluster.APIServer {
	t.Helper()
	client, peer := "http://"+freeAddress(t), "http://"+freeAddress(t)
	start(t, "etcd", "--data-dir", t.TempDir(), "--log-level", "warn", "--unsafe-no-fsync",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	key := writeFile(t, "service-accounts.key", newKey(t))
	tokens := writeFile(t, "tokens.csv", fmt.Appendf(nil, "%s,admin,admin,system:masters\n%s,manager,manager\n", adminToken, managerToken))
	var all []*cluster.APIServer
	for range replicas {
		host, port, err := net.SplitHostPort(freeAddress(t))
		if err != nil {
			t.Fatal(err)
		}
		start(t, "kubernetes/kube-apiserver",
			"--etcd-servers", client, "--bind-address", host, "--secure-port", port, "--cert-dir", t.TempDir(),
			"--authorization-mode", "RBAC", "--token-auth-file", tokens,
			"--service-account-issuer", "https://e2e.example.com",
			"--service-account-key-file", key, "--service-account-signing-key-file", key,
			"--service-cluster-ip-range", services, "--endpoint-reconciler-type", "none",
			"--disable-admission-plugins", "ServiceAccount", "--shutdown-delay-duration", "0")
		s := &cluster.APIServer{Config: &rest.Config{
			Host: "https://" + net.JoinHostPort(host, port), BearerToken: adminToken, QPS: -1,
			TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // its certificate is made at start
			WarningHandler:  rest.NoWarnings{},
		}}
		if s.Client, err = kubernetes.NewForConfig(s.Config); err != nil {
			t.Fatal(err)
		}
		await(t, "the API server", func() error {
			_, err := s.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background())
			return err
		})
		all = append(all, s)
	}
	return all
}

// allow lets the user manager do what the options need, in a ClusterRole of that
// name, and nothing else. It waits until all API servers know.
func allow(t *testing.T, servers []*cluster.APIServer, name string, o *certs.Options) {
	t.Helper()
	s := servers[0]
	role, clusterRole := o.Rules()
	ctx, rbac := context.Background(), s.Client.RbacV1()
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "manager"}}
	meta := metav1.ObjectMeta{Name: name}
	_, err1 := rbac.Roles(o.SecretNamespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: role}, metav1.CreateOptions{})
	_, err2 := rbac.RoleBindings(o.SecretNamespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}}, metav1.CreateOptions{})
	_, err3 := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: clusterRole}, metav1.CreateOptions{})
	_, err4 := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}, metav1.CreateOptions{})
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range servers {
		config := rest.CopyConfig(s.Config)
		config.BearerToken = managerToken
		manager, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		await(t, "the rules", func() error {
			_, err := manager.CoreV1().Secrets(o.SecretNamespace).Get(ctx, o.SecretName, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				_, err = manager.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, "fastadmit.io", metav1.GetOptions{})
			}
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("got %w, want that there is none", err)
		})
	}
}

// startCollector starts the garbage collector.
func startCollector(t *testing.T, s *cluster.APIServer) {
	t.Helper()
	kubeconfig := writeFile(t, "kubeconfig", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"e2e",
"clusters":[{"name":"e2e","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
"users":[{"name":"e2e","user":{"token":%q}}],
"contexts":[{"name":"e2e","context":{"cluster":"e2e","user":"e2e"}}]}`, s.Config.Host, adminToken))
	start(t, "kubernetes/kube-controller-manager", "--kubeconfig", kubeconfig, "--leader-elect=false",
		"--bind-address", "127.0.0.1", "--secure-port", "0", "--controllers", "garbage-collector-controller")
}

// start starts one of the binaries that make e2e built.
func start(t *testing.T, binary string, arguments ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(binaries, binary), arguments...)
	cmd.Stdout, cmd.Stderr = log, log
	// If the test process is killed, so is what it started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot start %s: %v; make e2e builds it", binary, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // nothing here outlives the test
		_ = cmd.Wait()
		if content, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the end of the log of %s:\n%s", binary, content[max(0, len(content)-4096):])
		}
		log.Close()
	})
}

// await waits until ready returns nil.
func await(t *testing.T, what string, ready func() error) {
	t.Helper()
	for deadline := time.Now().Add(readyMax); ; time.Sleep(50 * time.Millisecond) {
		err := ready()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s: %v", readyMax, what, err)
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", machine+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newKey(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// kubectl runs kubectl and returns what it prints.
func kubectl(t *testing.T, s *cluster.APIServer, stdin string, arguments ...string) string {
	t.Helper()
	stdout, stderr, err := s.Kubectl(t, stdin, arguments...)
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s%s", strings.Join(arguments, " "), err, stdout, stderr)
	}
	return stdout
}
