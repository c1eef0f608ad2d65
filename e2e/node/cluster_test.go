package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
)

// Addresses of the cluster, all inside of the network namespace that e2e/run made.
const (
	address  = "198.19.0.1" // of the node, on the bridge that stands in for its interface
	services = "10.96.0.0/16"
	dns      = "10.96.0.10"
	podCIDR  = "10.244.0.0/24"
	nodeName = "node"
)

// A realNode is a cluster of one machine: this one, in a network namespace.
type realNode struct {
	*cluster.APIServer
	t          *testing.T // with which everything ends
	etcd       *cluster.Etcd
	dir        string // of the kubelet and containerd
	kubeconfig string
	authority  *cluster.Authority
	key        string // of service accounts
	running    []*cluster.Process
}

// startNode starts the control plane and the node, and waits for its DNS.
func startNode(t *testing.T) *realNode {
	t.Helper()
	n := &realNode{t: t, dir: newFolder(t), authority: cluster.NewAuthority(t)}
	n.etcd = cluster.StartEtcd(t)
	certificate, key := n.authority.Sign(t, cluster.Serving(time.Now().Add(24*time.Hour), address, "10.96.0.1", "kubernetes.default.svc"))
	_, accounts := n.authority.Sign(t, cluster.Calling("service-accounts"))
	n.key = cluster.WriteFile(t, "service-accounts.key", accounts)
	aggregator, aggregatorKey := n.authority.Sign(t, cluster.Calling("aggregator"))
	n.APIServer = n.etcd.StartAPIServer(t, cluster.APIServerOptions{Flags: map[string]string{
		"authorization-mode": "RBAC", "service-cluster-ip-range": services,
		"disable-admission-plugins": "DefaultTolerationSeconds", // which the streams need of fastadmit
		"bind-address":              address, "advertise-address": address, "endpoint-reconciler-type": "lease",
		"tls-cert-file": cluster.WriteFile(t, "tls.crt", certificate), "tls-private-key-file": cluster.WriteFile(t, "tls.key", key),
		"service-account-key-file": n.key, "service-account-signing-key-file": n.key,
		"service-account-issuer":          "https://kubernetes.default.svc.cluster.local",
		"kubelet-preferred-address-types": "InternalIP",
		// How it calls metrics-server for its clients.
		"requestheader-client-ca-file": cluster.WriteFile(t, "ca.crt", n.authority.PEM), "requestheader-allowed-names": "aggregator",
		"requestheader-username-headers": "X-Remote-User", "requestheader-group-headers": "X-Remote-Group",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-",
		"proxy-client-cert-file":             cluster.WriteFile(t, "aggregator.crt", aggregator),
		"proxy-client-key-file":              cluster.WriteFile(t, "aggregator.key", aggregatorKey),
	}})
	n.kubeconfig = n.Kubeconfig(t)
	shims, err := filepath.Abs(cluster.Built("containerd"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", shims+":"+os.Getenv("PATH")) // where containerd looks for its shim
	n.startMachine()
	n.load(t, "pause", "coredns")
	n.startDNS()
	return n
}

// newFolder returns one for the machine, which is removed when nothing is mounted
// in it any more.
func newFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/lib", "fastadmit-e2e-node-")
	if err != nil {
		t.Fatal(err)
	}
	before := podNamespaces(t)
	t.Cleanup(func() {
		for _, name := range podNamespaces(t) {
			if !slices.Contains(before, name) {
				walkthrough.Run(t, nil, "ip", "netns", "delete", name)
			}
		}
		if err := unmount(dir); err != nil {
			t.Errorf("cannot unmount what is in %s, so it stays: %v", dir, err)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// podNamespaces returns the network namespaces of pods. Those of pods that were not deleted stay when the
// machine is gone.
func podNamespaces(t *testing.T) (names []string) {
	t.Helper()
	paths, err := filepath.Glob("/run/netns/cni-*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

// unmount unmounts all below a folder, the deepest first.
func unmount(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var below []string
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			below = append(below, fields[1])
		}
	}
	slices.Sort(below)
	slices.Reverse(below)
	var errs []error
	for _, path := range below {
		errs = append(errs, syscall.Unmount(path, syscall.MNT_DETACH))
	}
	return errors.Join(errs...)
}

// startMachine starts what runs on every machine of a cluster, and the rest of the
// control plane.
func (n *realNode) startMachine() {
	t := n.t
	ca := cluster.WriteFile(t, "ca.crt", n.authority.PEM)
	n.start("kube-controller-manager", cluster.Built("kubernetes/kube-controller-manager"),
		"--kubeconfig", n.kubeconfig, "--leader-elect=false", "--bind-address", "127.0.0.1", "--secure-port", "0",
		"--root-ca-file", ca, "--service-account-private-key-file", n.key, "--use-service-account-credentials=true",
		// Nodes and pods are noticed sooner than in a large cluster.
		"--node-monitor-period=2s", "--node-monitor-grace-period=20s",
		"--horizontal-pod-autoscaler-sync-period=5s")
	n.start("kube-scheduler", cluster.Built("node/kube-scheduler"),
		"--kubeconfig", n.kubeconfig, "--leader-elect=false", "--bind-address", "127.0.0.1", "--secure-port", "10259")
	n.startContainerd()
	n.startKubelet()
	n.start("kube-proxy", cluster.Built("node/kube-proxy"), "--kubeconfig", n.kubeconfig, "--proxy-mode=nftables",
		"--hostname-override", nodeName, "--cluster-cidr", podCIDR, "--conntrack-max-per-core=0", "--conntrack-min=0",
		"--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0")
	cluster.Await(t, "the node", func() error {
		node, err := n.Client.CoreV1().Nodes().Get(context.Background(), nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("it is not ready: %v", node.Status.Conditions)
	})
}

// start starts a process of the machine.
func (n *realNode) start(name, command string, arguments ...string) {
	n.running = append(n.running, cluster.Start(n.t, name, nil, command, arguments...))
}

// startContainerd starts containerd, which runs containers by runc, and gives pods
// addresses on a bridge.
func (n *realNode) startContainerd() {
	t := n.t
	t.Cleanup(func() { n.killContainers(t) }) // when nothing starts them again
	runc := n.write(t, "runc", runcWrapper)
	if err := os.Chmod(runc, 0o755); err != nil {
		t.Fatal(err)
	}
	n.write(t, "cni/10-bridge.conflist", fmt.Sprintf(network, podCIDR))
	config := n.write(t, "containerd.toml", strings.ReplaceAll(containerdConfig, "DIR", n.dir))
	n.start("containerd", cluster.Built("containerd/containerd"), "--config", config)
	cluster.Await(t, "containerd", func() error {
		conn, err := net.Dial("unix", n.dir+"/containerd.sock")
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// ctr runs containerd's command on the containers of Kubernetes.
func (n *realNode) ctr(t *testing.T, arguments ...string) string {
	t.Helper()
	return walkthrough.Run(t, nil, cluster.Built("containerd/ctr"), append([]string{"--address", n.dir + "/containerd.sock", "--namespace", "k8s.io"}, arguments...)...)
}

func (n *realNode) startKubelet() {
	t := n.t
	n.write(t, "resolv.conf", "nameserver "+address+"\n")
	config := n.write(t, "kubelet.yaml", strings.ReplaceAll(kubeletConfig, "DIR", n.dir))
	n.start("kubelet", cluster.Built("node/kubelet"), "--kubeconfig", n.kubeconfig, "--config", config,
		"--root-dir", n.dir+"/kubelet", "--cert-dir", n.dir+"/kubelet/pki", "--hostname-override", nodeName, "--node-ip", address)
}

// write writes a file of the machine.
func (n *realNode) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(n.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startDNS runs CoreDNS in the cluster.
func (n *realNode) startDNS() {
	t := n.t
	n.MustKubectl(t, coreDNS, "apply", "-f", "-")
	n.MustKubectl(t, "", "rollout", "status", "deployment/coredns", "-n", "kube-system", patience)
}

// stopMachine ends everything on the machine at once, as when its power is cut:
// the control plane, the node and all containers. What is in memory is lost.
func (n *realNode) stopMachine(t *testing.T) {
	t.Helper()
	for _, p := range n.running {
		p.Kill()
	}
	n.running = nil
	n.killContainers(t)
	if err := unmount(n.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(n.dir + "/state"); err != nil { // which is in memory on a real machine
		t.Fatal(err)
	}
}

// killContainers kills the shims of containers and what runs in these: all
// processes that were started from the machine's folder.
func (n *realNode) killContainers(t *testing.T) {
	t.Helper()
	for {
		pids := n.containerProcesses()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // an error means that it has ended
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// containerProcesses returns the shims of this machine's containerd and their
// children.
func (n *realNode) containerProcesses() (pids []int) {
	parents := make(map[int]int)
	shims := make(map[int]bool)
	all, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, path := range all {
		var pid, parent int
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fmt.Sscan(string(stat), &pid)
		if end := bytes.LastIndexByte(stat, ')'); end > 0 {
			var state string
			fmt.Sscan(string(stat[end+1:]), &state, &parent)
			if state == "Z" {
				continue
			}
		}
		parents[pid] = parent
		command, _ := os.ReadFile(filepath.Dir(path) + "/cmdline") // it may have ended
		shims[pid] = bytes.Contains(command, []byte("containerd-shim-runc-v2")) && bytes.Contains(command, []byte(n.dir))
	}
	for pid := range parents {
		for at := pid; at > 1; at = parents[at] {
			if shims[at] {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}
