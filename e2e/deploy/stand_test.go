package deploy

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
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
	s := &stand{helmPath: walkthrough.Tool(t, "helm")}
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

// helm runs helm on the cluster, in the namespace fastadmit.
func (s *stand) helm(t *testing.T, arguments ...string) string {
	t.Helper()
	home := t.TempDir()
	return walkthrough.Run(t, []string{"KUBECONFIG=" + s.kubeconfig, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home},
		s.helmPath, append(arguments, "--namespace", "fastadmit")...)
}
