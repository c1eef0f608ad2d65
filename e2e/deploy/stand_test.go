package deploy

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
)

// A stand is a cluster without machines: an API server, and the controllers that an installation
// needs.
type stand struct {
	*cluster.APIServer
	kubeconfig string
	helmPath   string
	// network is the second number of the addresses of the cluster's Services; that of its pods is
	// the next one. They are addresses of this machine, 127.network.0.0/16, so that the test needs no
	// cluster network. A pod's reported address begins with 10, and it listens at the same address
	// with 127.
	network int
}

// startStand starts a stand. No other that runs at the same time may have the network.
func startStand(t *testing.T, network int) *stand {
	t.Helper()
	s := &stand{helmPath: walkthrough.Tool(t, "helm"), network: network}
	s.APIServer = cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{Flags: map[string]string{
		"authorization-mode": "RBAC", "service-cluster-ip-range": fmt.Sprintf("127.%d.0.0/16", network),
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
	return walkthrough.Run(t, []string{"KUBECONFIG=" + s.kubeconfig, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home,
		"HELM_DATA_HOME=" + home},
		s.helmPath, append(arguments, "--namespace", "fastadmit")...)
}
