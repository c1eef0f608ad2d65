package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

const nodeName = "node"

// A node does the work of kube-scheduler, kubelet and kube-proxy for the pods of the namespace
// fastadmit. It starts the binary with the arguments, files and account of each pod at an address
// of its own, probes it, ends it, and forwards the Service's connections to pods that are ready. A
// pod's process finds the API server by --kubeconfig, because the test may not write to the path
// that pods use.
type node struct {
	t       *testing.T
	client  kubernetes.Interface
	host    string // of the API server
	binary  string
	dir     string
	network int // see stand

	mu      sync.Mutex
	running map[types.UID]*running
	started int
	proxies map[string]net.Listener
	ready   []string // addresses of the Service's pods
}

// A running pod.
type running struct {
	dir, address string
	cmd          *exec.Cmd
	ended        chan struct{}
	stopping     atomic.Bool
}

func (s *stand) startNode(t *testing.T, binary string) *node {
	t.Helper()
	n := &node{
		t: t, client: s.Client, host: s.Config.Host, binary: binary, dir: t.TempDir(), network: s.network,
		running: make(map[types.UID]*running), proxies: make(map[string]net.Listener),
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			if err := n.sync(ctx); err != nil && ctx.Err() == nil {
				t.Logf("node: %v", err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-stopped
		for _, r := range n.running {
			r.kill() // nothing may outlive the test
		}
		for _, l := range n.proxies {
			l.Close()
		}
	})
	return n
}

// sync compares all objects with the processes, and acts.
func (n *node) sync(ctx context.Context) error {
	list, err := n.client.CoreV1().Pods("fastadmit").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	known := make(map[types.UID]bool)
	for i := range list.Items {
		errs = append(errs, n.syncPod(ctx, &list.Items[i]))
		known[list.Items[i].UID] = true
	}
	for uid, r := range n.running {
		if !known[uid] {
			r.kill() // it was deleted with --force
			delete(n.running, uid)
		}
	}
	return errors.Join(append(errs, n.syncService(ctx))...)
}

// kill ends a pod without a grace period.
func (r *running) kill() {
	r.stopping.Store(true)
	_ = r.cmd.Process.Kill() // an error means that it has ended
	<-r.ended
}

func (n *node) syncPod(ctx context.Context, pod *corev1.Pod) error {
	r := n.running[pod.UID]
	switch {
	case pod.Spec.NodeName == "":
		return n.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName},
		}, metav1.CreateOptions{})
	case r == nil && pod.DeletionTimestamp == nil:
		return n.startPod(ctx, pod)
	case pod.DeletionTimestamp != nil:
		return n.stopPod(ctx, pod, r)
	}
	if pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		return n.complete(ctx, pod, r)
	}
	if err := n.mount(ctx, pod, r.dir); err != nil {
		return err
	}
	return n.setReady(ctx, pod, r, probe(pod, r))
}

// complete writes the status of a pod of a Job whose process ended.
func (n *node) complete(ctx context.Context, pod *corev1.Pod, r *running) error {
	select {
	case <-r.ended:
	default:
		return nil
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	code := r.cmd.ProcessState.ExitCode()
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:  pod.Spec.Containers[0].Name,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(code)}},
	}}
	_, err := n.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return nil // the next round has the new one
	}
	return err
}

// startPod starts the process of a pod. Only its address differs from the container's.
func (n *node) startPod(ctx context.Context, pod *corev1.Pod) error {
	n.started++
	r := &running{
		address: fmt.Sprintf("127.%d.0.%d", n.network+1, n.started), dir: filepath.Join(n.dir, string(pod.UID)), ended: make(chan struct{}),
	}
	if err := n.mount(ctx, pod, r.dir); err != nil {
		return err
	}
	container := &pod.Spec.Containers[0]
	var arguments []string
	for _, a := range container.Args {
		a = strings.Replace(a, "=/", "="+r.dir+"/", 1)
		a = strings.Replace(a, "--bind-address=0.0.0.0", "--bind-address="+r.address, 1)
		arguments = append(arguments, strings.Replace(a, "--metrics-bind-address=:", "--metrics-bind-address="+r.address+":", 1))
	}
	if *pod.Spec.AutomountServiceAccountToken {
		kubeconfig, err := n.account(ctx, pod, r.dir)
		if err != nil {
			return err
		}
		arguments = append(arguments, "--kubeconfig="+kubeconfig)
	}
	log, err := os.Create(filepath.Join(r.dir, "log"))
	if err != nil {
		return err
	}
	r.cmd = exec.Command(n.binary, arguments...)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		return err
	}
	n.running[pod.UID] = r
	go func() {
		defer close(r.ended)
		defer log.Close()
		if err := r.cmd.Wait(); err != nil && !r.stopping.Load() {
			content, _ := os.ReadFile(log.Name())
			n.t.Logf("pod %s ended: %v\n%s", pod.Name, err, content)
		}
	}()
	return nil
}

// mount writes the files of the pod's volumes, as the kubelet does.
func (n *node) mount(ctx context.Context, pod *corev1.Pod, dir string) error {
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		files := make(map[string]volumeutil.FileProjection)
		for _, v := range pod.Spec.Volumes {
			switch {
			case v.Name == m.Name && v.ConfigMap != nil:
				c, err := n.client.CoreV1().ConfigMaps(pod.Namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				for name, text := range c.Data {
					files[name] = volumeutil.FileProjection{Data: []byte(text), Mode: 0o644}
				}
			case v.Name == m.Name && v.Secret != nil:
				s, err := n.client.CoreV1().Secrets(pod.Namespace).Get(ctx, v.Secret.SecretName, metav1.GetOptions{})
				if err != nil {
					return err
				}
				for name, data := range s.Data {
					files[name] = volumeutil.FileProjection{Data: data, Mode: 0o644}
				}
			}
		}
		path := filepath.Join(dir, m.MountPath)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		writer, err := volumeutil.NewAtomicWriter(path, "e2e")
		if err != nil {
			return err
		}
		if err := writer.Write(files, nil); err != nil {
			return err
		}
	}
	return nil
}

// account returns a kubeconfig file with a token of the pod's account.
func (n *node) account(ctx context.Context, pod *corev1.Pod, dir string) (string, error) {
	request, err := n.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	return path, os.WriteFile(path, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"e2e",
"clusters":[{"name":"e2e","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
"users":[{"name":"e2e","user":{"token":%q}}],
"contexts":[{"name":"e2e","context":{"cluster":"e2e","user":"e2e","namespace":%q}}]}`, n.host, request.Status.Token, pod.Namespace), 0o600)
}

// stopPod ends the process of a pod that was deleted, and reports it gone.
func (n *node) stopPod(ctx context.Context, pod *corev1.Pod, r *running) error {
	if r != nil && !r.stopping.Swap(true) {
		_ = r.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	}
	if r != nil {
		select {
		case <-r.ended:
		default:
			return n.setReady(ctx, pod, r, probe(pod, r))
		}
		if state := r.cmd.ProcessState; state.ExitCode() != 0 && pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
			n.t.Errorf("pod %s ended with %s, want 0", pod.Name, state)
		}
		delete(n.running, pod.UID)
	}
	err := n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// probe calls the pod's readinessProbe.
func probe(pod *corev1.Pod, r *running) bool {
	container := &pod.Spec.Containers[0]
	if container.ReadinessProbe == nil {
		return false // a Job has no probe
	}
	get := container.ReadinessProbe.HTTPGet
	for _, p := range container.Ports {
		if p.Name != get.Port.StrVal {
			continue
		}
		response, err := http.Get(fmt.Sprintf("http://%s:%d%s", r.address, p.ContainerPort, get.Path))
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}
	return false
}

// setReady writes the pod's status, if it changed.
func (n *node) setReady(ctx context.Context, pod *corev1.Pod, r *running, ready bool) error {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == status {
			return nil
		}
	}
	// Kubernetes does not accept loopback addresses for pods.
	ip := "10." + strings.TrimPrefix(r.address, "127.")
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()},
		{Type: corev1.ContainersReady, Status: status, LastTransitionTime: metav1.Now()},
	}
	_, err := n.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return nil // the next round has the new one
	}
	return err
}

// syncService listens at the Service's address, and reads which pods are behind it.
func (n *node) syncService(ctx context.Context) error {
	service, err := n.client.CoreV1().Services("fastadmit").Get(ctx, "fastadmit", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	endpoints, err := n.client.DiscoveryV1().EndpointSlices("fastadmit").List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=fastadmit",
	})
	if err != nil {
		return err
	}
	var ready []string
	for _, slice := range endpoints.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				ready = append(ready, fmt.Sprintf("127.%s:%d", strings.TrimPrefix(e.Addresses[0], "10."), *slice.Ports[0].Port))
			}
		}
	}
	n.mu.Lock()
	n.ready = ready
	n.mu.Unlock()
	address := fmt.Sprintf("%s:%d", service.Spec.ClusterIP, service.Spec.Ports[0].Port)
	if n.proxies[address] != nil {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	n.proxies[address] = l
	go n.forward(l)
	return nil
}

// forward connects each connection with a ready pod, in turns.
func (n *node) forward(l net.Listener) {
	for next := 0; ; next++ {
		incoming, err := l.Accept()
		if err != nil {
			return // it was closed
		}
		n.mu.Lock()
		ready := n.ready
		n.mu.Unlock()
		if len(ready) == 0 {
			incoming.Close()
			continue
		}
		outgoing, err := net.Dial("tcp", ready[next%len(ready)])
		if err != nil {
			incoming.Close()
			continue
		}
		copyHalf := func(to, from net.Conn) {
			_, _ = io.Copy(to, from) // the two ends see how the connection ends
			_ = to.(*net.TCPConn).CloseWrite()
		}
		go func() {
			defer incoming.Close()
			defer outgoing.Close()
			done := make(chan struct{})
			go func() { defer close(done); copyHalf(outgoing, incoming) }()
			copyHalf(incoming, outgoing)
			<-done
		}()
	}
}
