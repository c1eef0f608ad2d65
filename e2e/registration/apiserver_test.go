package registration

import (
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

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

const (
	binaries = "../.cache"

	// token is the one that kubectl has of package cluster.
	token = "e2e"

	// services is where the cluster has the addresses of its services: addresses
	// of this machine, so that an API server reaches what listens there without
	// the network of a cluster.
	services = "127.10.0.0/16"

	// readyMax is how long anything may take to be ready.
	readyMax = 90 * time.Second
)

// startAPIServer starts an etcd and an API server with flags, which those of
// package cluster do not take. They end with the test.
func startAPIServer(t *testing.T, flags ...string) *cluster.APIServer {
	t.Helper()
	client, peer := "http://"+freeAddress(t), "http://"+freeAddress(t)
	start(t, "etcd", "--data-dir", t.TempDir(), "--log-level", "warn", "--unsafe-no-fsync",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	key := writeFile(t, "service-accounts.key", privateKey(t))
	host, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	start(t, "kubernetes/kube-apiserver", append([]string{
		"--etcd-servers", client, "--bind-address", host, "--secure-port", port, "--cert-dir", t.TempDir(),
		"--authorization-mode", "AlwaysAllow", "--token-auth-file", writeFile(t, "tokens.csv", []byte(token+",admin,admin,system:masters\n")),
		"--service-account-issuer", "https://e2e.example.com",
		"--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--service-cluster-ip-range", services, "--endpoint-reconciler-type", "none",
		"--disable-admission-plugins", "ServiceAccount", "--shutdown-delay-duration", "0",
	}, flags...)...)
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

func privateKey(t *testing.T) []byte {
	t.Helper()
	_, encoded := newKey(t)
	return encoded
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

// serviceCertificate returns the files of a certificate for a service, which is
// its own authority, as fastadmit serve takes them and fastadmit manifests does.
func serviceCertificate(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	key, encoded := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "tls.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), writeFile(t, "tls.key", encoded)
}

// manifests runs fastadmit manifests and returns what it prints.
func manifests(t *testing.T, arguments ...string) string {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd := exec.Command(cluster.Binary, append([]string{"manifests"}, arguments...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, stderr.String())
	}
	return stdout.String()
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

// wants says what is wrong with an error.
func wants(err error, want string) error {
	if err == nil || !strings.Contains(err.Error(), want) {
		return fmt.Errorf("got %q, want an error with %q", fmt.Sprint(err), want)
	}
	return nil
}
