// Package envtest starts a real kube-apiserver that calls your plugins, for tests. It is
// for plugins what sigs.k8s.io/controller-runtime/pkg/envtest is for controllers.
//
// It starts etcd and kube-apiserver with that package, serves the plugins from the
// process of the test, so that debuggers and the race detector see them, and registers
// them with the configurations of "fastadmit manifests". It finds the binaries as that
// package does: in the folder KUBEBUILDER_ASSETS, with TEST_ASSET_KUBE_APISERVER and
// TEST_ASSET_ETCD, or in /usr/local/kubebuilder/bin. "setup-envtest use -p env" downloads
// them.
package envtest

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/fastadmit/fastadmit/admission"
)

// Options configure a Cluster. The zero Options are a cluster without plugins.
type Options struct {
	// Plugins are your plugins to enable. They run in this order, after fastadmit's own.
	Plugins []admission.Plugin
	// Enabled are names of fastadmit's own plugins to enable too.
	Enabled []string
	// Config is the content of fastadmit's configuration file (--config), in YAML.
	Config string
	// Environment configures etcd and kube-apiserver: flags, CustomResourceDefinitions
	// and paths of binaries. Nil for the defaults.
	Environment *envtest.Environment
}

// Cluster is a running cluster. It has an API server and no controllers: Deployments
// get no Pods, and namespaces that are deleted stay.
type Cluster struct {
	// Config is for clients, as a member of system:masters. Set Impersonate in a
	// copy to send requests as somebody else.
	Config *rest.Config
	// Client is a client with Config.
	Client kubernetes.Interface
	// Environment is the started environment.
	Environment *envtest.Environment
}

// Start starts a cluster with plugins and stops it at the end of the test. When it
// returns, kube-apiserver calls the plugins for all requests that their rules select,
// except in the namespaces that "fastadmit manifests" excludes, such as kube-system.
//
// The test fails if the cluster cannot be started. Starting takes some seconds, so share
// a Cluster between subtests.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := &Cluster{Environment: o.Environment}
	if c.Environment == nil {
		c.Environment = new(envtest.Environment)
	}
	var err error
	if c.Config, err = c.Environment.Start(); err != nil {
		t.Fatalf("cannot start etcd and kube-apiserver: %v; \"setup-envtest use -p env\" gets them and says where they are", err)
	}
	t.Cleanup(func() {
		if err := c.Environment.Stop(); err != nil {
			t.Errorf("cannot stop kube-apiserver and etcd: %v", err)
		}
	})
	if c.Client, err = kubernetes.NewForConfig(c.Config); err != nil {
		t.Fatal(err)
	}
	s := &server{cluster: c, dir: t.TempDir(), plugins: append([]admission.Plugin{marker()}, o.Plugins...)}
	s.flags = []string{"--kubeconfig=" + s.write(t, "kubeconfig", c.Environment.KubeConfig),
		"--enable-admission-plugins=" + s.names(o.Enabled)}
	if o.Config != "" {
		s.flags = append(s.flags, "--config="+s.write(t, "config.yaml", []byte(o.Config)))
	}
	s.register(t, s.serve(t))
	return c
}

// write writes a file that lives as long as the test and returns its path.
func (s *server) write(t testing.TB, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
