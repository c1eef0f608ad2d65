// Package exec runs commands in pods of a real API server, with the plugins
// that v1.20 was the last release to have: DenyEscalatingExec and
// DenyExecOnPrivileged.
package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
)

// kubelet stands in for a node's kubelet. It streams as one does, and the containers print their
// commands.
type kubelet struct{}

// ServeHTTP implements http.Handler.
func (k kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/") // exec or attach, namespace, pod, container
	options, err := remotecommand.NewOptions(r)
	if err != nil || len(path) != 4 {
		http.Error(w, fmt.Sprintf("%s: %v", r.URL, err), http.StatusBadRequest)
		return
	}
	const most = time.Minute
	if path[0] == "exec" {
		remotecommand.ServeExec(w, r, k, path[2], "", path[3], r.URL.Query()["command"], options, most, most,
			remotecommand.SupportedStreamingProtocols)
		return
	}
	remotecommand.ServeAttach(w, r, k, path[2], "", path[3], options, most, most, remotecommand.SupportedStreamingProtocols)
}

// ExecInContainer implements remotecommand.Executor.
func (kubelet) ExecInContainer(_ context.Context, name, _, container string, command []string, _ io.Reader, out, _ io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	_, err := fmt.Fprintf(out, "%s in %s of %s\n", strings.Join(command, " "), container, name)
	return err
}

// AttachContainer implements remotecommand.Attacher.
func (kubelet) AttachContainer(_ context.Context, name, _, container string, _ io.Reader, out, _ io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize) error {
	_, err := fmt.Fprintf(out, "attached to %s of %s\n", container, name)
	return err
}

const home = "default"

// Upstream's messages, by the field of the pod.
const (
	network    = "cannot exec into or attach to a container using host network"
	processes  = "cannot exec into or attach to a container using host pid"
	ipc        = "cannot exec into or attach to a container using host ipc"
	privileged = "cannot exec into or attach to a privileged container"
)

func TestExec(t *testing.T) {
	s := cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{})
	authority := cluster.NewAuthority(t)
	fastadmit := cluster.StartFastadmit(t, cluster.Binary, authority, "--kubeconfig", s.Kubeconfig(t),
		"--enable-admission-plugins", "DenyEscalatingExec,DenyExecOnPrivileged,AlwaysDeny")
	makePods(t, s)
	for _, p := range handlers.InTree(handlers.DefaultOptions()) {
		denials := map[string]string{"privileged": privileged, "init": privileged, "gone": `pods "gone" not found`}
		switch p.Name {
		case "DenyExecOnPrivileged":
		case "DenyEscalatingExec":
			denials["network"], denials["pid"], denials["ipc"] = network, processes, ipc
		default:
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			s.Validating(t, cluster.Webhook{URL: fastadmit.URL, CA: authority.PEM}, cluster.Webhook{
				URL: fastadmit.URL + "/validate/" + p.Name, CA: authority.PEM,
				Rules: cluster.Rules("CONNECT", "", "v1", p.Rules[0].Resources...),
			})
			row := tally.Row{Plugin: p.Name, Test: "kubectl and a real API server"}
			for _, pod := range []string{"plain", "privileged", "init", "network", "pid", "ipc", "gone"} {
				for _, verb := range []string{"exec", "attach"} {
					row.Cases++
					if difference := connect(t, s, verb, pod, p.Name, denials[pod]); difference != "" {
						t.Errorf("%s %s: %s", verb, pod, difference)
						row.Different = append(row.Different, verb+" "+pod)
					}
				}
			}
			if err := row.Write(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// makePods makes a node with a kubelet, and pods on it.
func makePods(t *testing.T, s *cluster.APIServer) {
	t.Helper()
	server := httptest.NewTLSServer(kubelet{})
	t.Cleanup(server.Close)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(number)}},
	}}
	if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	root := &corev1.SecurityContext{Privileged: new(true)}
	for name, change := range map[string]func(spec *corev1.PodSpec){
		"plain":      func(*corev1.PodSpec) {},
		"privileged": func(spec *corev1.PodSpec) { spec.Containers[1].SecurityContext = root },
		"init": func(spec *corev1.PodSpec) {
			spec.InitContainers = []corev1.Container{{Name: "i", Image: "i", SecurityContext: root}}
		},
		"network": func(spec *corev1.PodSpec) { spec.HostNetwork = true },
		"pid":     func(spec *corev1.PodSpec) { spec.HostPID = true },
		"ipc":     func(spec *corev1.PodSpec) { spec.HostIPC = true },
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			NodeName: node.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}, {Name: "d", Image: "i"}},
		}}
		change(&pod.Spec)
		if _, err := s.Client.CoreV1().Pods(home).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// connect runs a command in a pod or attaches to it, with kubectl and without, and compares the
// result. why is the expected reason of the denial, empty if it is allowed.
func connect(t *testing.T, s *cluster.APIServer, verb, pod, plugin, why string) string {
	t.Helper()
	arguments, want := []string{"attach", pod, "-c", "c"}, "attached to c of "+pod+"\n"
	if verb == "exec" {
		arguments, want = []string{"exec", pod, "-c", "c", "--", "ls", "-l"}, "ls -l in c of "+pod+"\n"
	}
	stdout, stderr, err := s.Kubectl(t, "", arguments...)
	message := fmt.Sprintf("pods %q is forbidden: %s", pod, why)
	switch denied := fmt.Sprintf("error: unable to upgrade connection: %s%s: %s\n", cluster.Prefix(0), plugin, message); {
	case pod == "gone": // kubectl looks it up first
	case why == "" && (err != nil || stdout != want):
		return fmt.Sprintf("kubectl got %v, %q and %q, want %q", err, stdout, stderr, want)
	case why != "" && (err == nil || !strings.HasSuffix(stderr, denied) || stdout != ""):
		return fmt.Sprintf("kubectl got %v, %q and %q, want %q", err, stdout, stderr, denied)
	}
	if why == "" {
		return ""
	}
	err = s.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(home).Name(pod).SubResource(verb).
		Param("container", "c").Param("stdout", "true").Param("command", "ls").Do(t.Context()).Error()
	var denial apierrors.APIStatus
	if !errors.As(err, &denial) {
		return fmt.Sprintf("got %v, want it denied", err)
	}
	status := denial.Status()
	cluster.Unattributed(&status)
	if status.Code != http.StatusForbidden || status.Reason != metav1.StatusReasonForbidden || status.Message != message {
		return fmt.Sprintf("got status %+v, want %q", status, message)
	}
	return ""
}
