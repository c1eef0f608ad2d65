package deploy

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// services and pods are where the cluster has the addresses of its services and
// pods: addresses of this machine, so that nothing needs the network of a
// cluster. A pod says that it has 10 in front, and listens where it is 127.
const (
	services = "127.20.0.0/16"
	pods     = "21.0."
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
	s := &stand{helmPath: tool(t, "helm")}
	s.APIServer = cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{Flags: map[string]string{
		"authorization-mode": "RBAC", "service-cluster-ip-range": services,
		"disable-admission-plugins": "", // accounts are needed, and taints
	}})
	s.kubeconfig = s.Kubeconfig(t)
	s.StartControllerManager(t, "deployment-controller", "replicaset-controller", "serviceaccount-controller", "endpointslice-controller",
		"garbage-collector-controller", "job-controller", "namespace-controller", "disruption-controller", "resourcequota-controller")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	if _, err := s.Client.CoreV1().Nodes().Create(context.Background(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster.Await(t, "namespaces", func() error {
		_, err := s.Client.CoreV1().Namespaces().Get(context.Background(), "default", metav1.GetOptions{})
		return err
	})
	return s
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

// newCertificate returns one for the Service that is its own authority, and its
// key, in PEM.
func newCertificate(t *testing.T) (certificate, encodedKey []byte) {
	t.Helper()
	return cluster.SelfSigned(t, cluster.Serving(time.Now().Add(24*time.Hour), "fastadmit.fastadmit.svc"))
}
