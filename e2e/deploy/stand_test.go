package deploy

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

const (
	binaries = "../.cache"

	// token is the one that kubectl has of package cluster.
	token = "e2e"

	// services and pods are where the cluster has the addresses of its services
	// and pods: addresses of this machine, so that nothing needs the network of a
	// cluster. A pod says that it has 10 in front, and listens where it is 127.
	services = "127.20.0.0/16"
	pods     = "21.0."

	// readyMax is how long anything may take to be ready.
	readyMax = 90 * time.Second
)

// A stand is a cluster without machines: an API server and the controllers that
// matter to an installation.
type stand struct {
	*cluster.APIServer
	kubeconfig string
	helmPath   string
}

func startStand(t *testing.T) *stand {
	t.Helper()
	s := &stand{APIServer: startAPIServer(t), helmPath: tool(t, "helm")}
	s.kubeconfig = s.Kubeconfig(t)
	start(t, "kubernetes/kube-controller-manager", "--kubeconfig", s.kubeconfig, "--leader-elect=false",
		"--bind-address", "127.0.0.1", "--secure-port", "0",
		"--controllers", "deployment-controller,replicaset-controller,serviceaccount-controller,endpointslice-controller,"+
			"garbage-collector-controller,namespace-controller,disruption-controller,resourcequota-controller")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	if _, err := s.Client.CoreV1().Nodes().Create(context.Background(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "namespaces", func() error {
		_, err := s.Client.CoreV1().Namespaces().Get(context.Background(), "default", metav1.GetOptions{})
		return err
	})
	return s
}

// startAPIServer starts an etcd and an API server that lets accounts do what
// roles allow, as that of package cluster does not. They end with the test.
func startAPIServer(t *testing.T) *cluster.APIServer {
	t.Helper()
	client, peer := "http://"+freeAddress(t), "http://"+freeAddress(t)
	start(t, "etcd", "--data-dir", t.TempDir(), "--log-level", "warn", "--unsafe-no-fsync",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	_, key := newKey(t)
	accounts := writeFile(t, "service-accounts.key", key)
	host, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	start(t, "kubernetes/kube-apiserver",
		"--etcd-servers", client, "--bind-address", host, "--secure-port", port, "--cert-dir", t.TempDir(),
		"--authorization-mode", "RBAC", "--token-auth-file", writeFile(t, "tokens.csv", []byte(token+",admin,admin,system:masters\n")),
		"--service-account-issuer", "https://e2e.example.com",
		"--service-account-key-file", accounts, "--service-account-signing-key-file", accounts,
		"--service-cluster-ip-range", services, "--endpoint-reconciler-type", "none", "--shutdown-delay-duration", "0")
	s := &cluster.APIServer{Config: &rest.Config{
		Host: "https://" + net.JoinHostPort(host, port), BearerToken: token, QPS: -1,
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
	return s
}

// start starts one of the binaries that make e2e built.
func start(t *testing.T, binary string, arguments ...string) {
	t.Helper()
	startCommand(t, filepath.Join(binaries, binary), arguments...)
}

func startCommand(t *testing.T, command string, arguments ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(command, arguments...)
	cmd.Stdout, cmd.Stderr = log, log
	// If the test process is killed, so is what it started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot start %s: %v; make e2e builds it", command, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // nothing here outlives the test
		_ = cmd.Wait()
		if content, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the end of the log of %s:\n%s", command, content[max(0, len(content)-4096):])
		}
		log.Close()
	})
}

// tool returns the path of a tool that tools/deploy/go.mod pins, built as make
// chart builds it, not with the settings of make e2e, so that it is built once.
func tool(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(run(t, []string{"GOFLAGS=", "CGO_ENABLED="}, "go", "tool", "-modfile=../../tools/deploy/go.mod", "-n", name))
}

// run runs a command that must succeed, and returns what it prints.
func run(t *testing.T, env []string, command string, arguments ...string) string {
	t.Helper()
	cmd := exec.Command(command, arguments...)
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v: %s%s", command, strings.Join(arguments, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// helm runs helm on the cluster, in the namespace fastadmit.
func (s *stand) helm(t *testing.T, arguments ...string) string {
	t.Helper()
	home := t.TempDir()
	return run(t, []string{"KUBECONFIG=" + s.kubeconfig, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home},
		s.helmPath, append(arguments, "--namespace", "fastadmit")...)
}

// kubectl runs kubectl on the cluster.
func (s *stand) kubectl(t *testing.T, stdin string, arguments ...string) string {
	t.Helper()
	stdout, stderr, err := s.Kubectl(t, stdin, arguments...)
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s%s", strings.Join(arguments, " "), err, stdout, stderr)
	}
	return stdout
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
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

func newKey(t *testing.T) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// newCertificate returns one for the Service that is its own authority, and its
// key, in PEM.
func newCertificate(t *testing.T) (certificate, encodedKey []byte) {
	t.Helper()
	key, encoded := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{"fastadmit.fastadmit.svc"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), encoded
}

// wants says what is wrong with an error.
func wants(err error, want string) error {
	if err == nil || !strings.Contains(err.Error(), want) {
		return fmt.Errorf("got %q, want an error with %q", fmt.Sprint(err), want)
	}
	return nil
}
