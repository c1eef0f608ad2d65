// Package audit runs fastadmit audit on a real API server, and compares its report with what an API
// server with the plugin would deny.
package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

var (
	podCount = flag.Int("pods", 1000, "how many pods the cluster has")
	pageSize = flag.Int("page", 100, "how many objects a request of the audit lists")
	binary   = flag.String("fastadmit", cluster.Built("fastadmit"), "the binary to measure")
)

const (
	namespaces = 20
	creators   = 50 // at the same time
	compared   = 97 // every one of so many pods is compared with the API server
)

// A proxy stands between the audit and the API server. It compacts etcd while pods are listed.
type proxy struct {
	server  http.Server
	url     string
	compact func() error

	pages   atomic.Int64 // pages of pods that were listed
	expired atomic.Int64 // answers with 410
	writes  atomic.Int64
}

func startProxy(t *testing.T, s *cluster.APIServer, etcd *cluster.Etcd) *proxy {
	t.Helper()
	transport, err := rest.TransportFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	host, err := url.Parse(s.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	address := testserver.FreeAddress(t)
	p := &proxy{url: "http://" + address, compact: etcd.Compact}
	reverse := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(host) },
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode == http.StatusGone {
				p.expired.Add(1)
			}
			return nil
		},
	}
	p.server = http.Server{Addr: address, ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				p.writes.Add(1)
			}
			if r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("watch") == "" && p.pages.Add(1)%4 == 3 {
				if err := p.compact(); err != nil {
					t.Error(err)
				}
			}
			reverse.ServeHTTP(w, r)
		})}
	go func() { _ = p.server.ListenAndServe() }() // it always returns an error
	t.Cleanup(func() { _ = p.server.Close() })
	return p
}

func (p *proxy) kubeconfig(t *testing.T) string {
	t.Helper()
	return cluster.WriteFile(t, "kubeconfig", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"e2e",
"clusters":[{"name":"e2e","cluster":{"server":%q}}],"contexts":[{"name":"e2e","context":{"cluster":"e2e"}}]}`, p.url))
}

// pod returns the ith pod of the cluster. A third of them may run in a restricted namespace.
func pod(i int) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("web-%05d", i), Namespace: fmt.Sprintf("ns-%d", i%namespaces),
			Labels:      map[string]string{"app": "web", "pod-template-hash": "6b555cbb46"},
			Annotations: map[string]string{"example.com/checksum": strings.Repeat("0123456789abcdef", 16)},
		},
		Spec: corev1.PodSpec{
			NodeName:       fmt.Sprintf("node-%d", i%500),
			InitContainers: []corev1.Container{{Name: "init", Image: "registry.example.com/init:1"}},
			Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web:1"},
				{Name: "proxy", Image: "registry.example.com/proxy:1"}},
		},
	}
	for j := range p.Spec.Containers {
		c := &p.Spec.Containers[j]
		for k := range 10 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", k), Value: strings.Repeat("v", 20)})
		}
	}
	if i%3 > 0 {
		p.Spec.HostNetwork = i%3 == 1
		return p
	}
	p.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for j := range containers {
			containers[j].SecurityContext = &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}
		}
	}
	return p
}

// fill makes the pods.
func fill(t *testing.T, s *cluster.APIServer) {
	t.Helper()
	ctx := t.Context()
	for i := range namespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("ns-%d", i)}}
		if _, err := s.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var next atomic.Int64
	var working sync.WaitGroup
	for range creators {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < *podCount; i = int(next.Add(1)) - 1 {
				p := pod(i)
				if _, err := s.Client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
	// The API server creates these namespaces itself, some time after it is ready.
	for _, name := range []string{"default", "kube-node-lease", "kube-public", "kube-system"} {
		for _, err := s.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil; {
			if ctx.Err() != nil || !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			_, err = s.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		}
	}
}

// An outcome is the report of an audit, and the resources that it used.
type outcome struct {
	Results []*report.Result
	Summary report.Summary
	elapsed time.Duration
	cpu     time.Duration
	maxRSS  int64 // bytes
}

// run runs fastadmit audit.
func run(t *testing.T, p *proxy, code int, flags ...string) *outcome {
	t.Helper()
	arguments := append([]string{
		"audit", "--kubeconfig=" + p.kubeconfig(t), "--enable-admission-plugins=PodSecurity", "--kube-api-qps=1000", "-o=json",
		"--admission-control-config-file=" + cluster.WriteFile(t, "admission.yaml", []byte(cluster.RestrictedPods)),
		fmt.Sprintf("--chunk-size=%d", *pageSize),
	}, flags...)
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(*binary, arguments...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begun := time.Now()
	err := cmd.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok || ok && ended.ExitCode() != code || err == nil && code != 0 {
		t.Fatalf("%q: %v, want exit code %d: %s", arguments, err, code, stderr.String())
	}
	o := &outcome{elapsed: time.Since(begun), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		o.maxRSS = usage.Maxrss * 1024
	}
	if err := json.Unmarshal(stdout.Bytes(), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestAudit audits a cluster while its etcd is compacted.
func TestAudit(t *testing.T) {
	etcd := cluster.StartEtcd(t)
	// The API server has no cache of lists, because a cache would still have what etcd has
	// compacted.
	s := etcd.StartAPIServer(t, cluster.APIServerOptions{Flags: map[string]string{"watch-cache": "false"}})
	fill(t, s)
	p := startProxy(t, s, etcd)
	got := run(t, p, 1, "--all")
	t.Logf("%d pods: %v, %v of processor time, at most %d MiB of memory; %d pages of pods, %d expired lists", *podCount,
		got.elapsed.Round(time.Millisecond), got.cpu.Round(time.Millisecond), got.maxRSS>>20, p.pages.Load(), p.expired.Load())
	decisions := make(map[string]report.Decision)
	for _, r := range got.Results {
		if r.Kind != "Pod" {
			continue
		}
		key := r.Namespace + "/" + r.Name
		if decisions[key] != "" {
			t.Errorf("%s was reviewed twice", key)
		}
		decisions[key] = r.Decision
	}
	if len(decisions) != *podCount || p.expired.Load() == 0 {
		t.Errorf("got %d pods and %d expired lists, want %d and some", len(decisions), p.expired.Load(), *podCount)
	}
	compare(t, etcd, decisions)
	if quiet := run(t, p, 1); !reflect.DeepEqual(quiet.Summary, got.Summary) || len(quiet.Results) != got.Summary.Denied {
		t.Errorf("got %+v and %d results, want %+v and those that are denied", quiet.Summary, len(quiet.Results), got.Summary)
	}
}

// compare sends some of the pods to an API server with the plugin, and compares the decisions.
func compare(t *testing.T, etcd *cluster.Etcd, decisions map[string]report.Decision) {
	t.Helper()
	other := etcd.StartAPIServer(t, cluster.APIServerOptions{Name: "enforcing", On: []string{"PodSecurity"}, Flags: map[string]string{
		"admission-control-config-file": cluster.WriteFile(t, "admission.yaml", []byte(cluster.RestrictedPods)),
	}})
	denied, allowed := 0, 0
	for i := 0; i < *podCount; i += compared {
		p := pod(i)
		key := p.Namespace + "/" + p.Name
		p.Name += "-copy"
		_, err := other.Client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		want := report.Allowed
		switch {
		case apierrors.IsForbidden(err):
			want = report.Denied
			denied++
		case err != nil:
			t.Fatal(err)
		default:
			allowed++
		}
		if decisions[key] != want {
			t.Errorf("%s: got %s, and the API server says %v", key, decisions[key], err)
		}
	}
	if *podCount > 3*compared && (denied == 0 || allowed == 0) {
		t.Errorf("got %d denied and %d allowed by the API server, want some of each", denied, allowed)
	}
}

// openReports is the module with the CustomResourceDefinitions, and its checksum.
const (
	openReports    = "github.com/openreports/reports-api@v0.2.1"
	openReportsSum = "h1:g9KS3yle9Y1elmww4TK9EkD1rl6inIaiIJPX6e+u680="
)

// install installs the CustomResourceDefinitions of reports.
func install(t *testing.T, s *cluster.APIServer) {
	t.Helper()
	text, err := exec.Command("go", "mod", "download", "-json", openReports).Output()
	var downloaded struct{ Dir, Sum string }
	if err == nil {
		err = json.Unmarshal(text, &downloaded)
	}
	if err != nil || downloaded.Sum != openReportsSum {
		t.Fatalf("%s: got %+v, %v, want the sum %s", openReports, downloaded, err, openReportsSum)
	}
	for _, name := range []string{"reports", "clusterreports"} {
		definition, err := os.ReadFile(filepath.Join(downloaded.Dir, "config/crd/openreports.io_"+name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		s.MustKubectl(t, string(definition), "apply", "-f", "-")
		s.AwaitCRDs(t, name+".openreports.io")
	}
}

// TestReports writes reports that OpenReports' own schema accepts. Server-side apply refuses
// unknown fields.
func TestReports(t *testing.T) {
	etcd := cluster.StartEtcd(t)
	s := etcd.StartAPIServer(t, cluster.APIServerOptions{})
	t.Run("upgrade check", func(t *testing.T) { upgradeCheck(t, s) }) // here, because API servers take seconds to start
	t.Run("plugin of kubectl", func(t *testing.T) { pluginOfKubectl(t, s) })
	install(t, s)
	ctx := t.Context()
	p := startProxy(t, s, etcd)
	p.compact = func() error { return nil }
	for i := range 30 {
		if i < namespaces {
			s.MustKubectl(t, "", "create", "namespace", fmt.Sprintf("ns-%d", i))
		}
		one := pod(i)
		if _, err := s.Client.CoreV1().Pods(one.Namespace).Create(ctx, one, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	count := func() int {
		list, err := s.Dynamic.Resource(reportsResource).List(ctx,
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=fastadmit-audit"})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	first := run(t, p, 1, "--write-reports")
	if first.Summary.Denied != 20 || count() != 20 || p.writes.Load() != 20 {
		t.Fatalf("got %+v, %d reports and %d writes, want 20 of each", first.Summary, count(), p.writes.Load())
	}
	if run(t, p, 0, "--write-reports=openreports.io/v1alpha1", "--exit-zero"); p.writes.Load() != 20 {
		t.Errorf("got %d writes for a cluster that did not change", p.writes.Load()-20)
	}
	gone := pod(1)
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if err := s.Client.CoreV1().Pods(gone.Namespace).Delete(ctx, gone.Name, now); err != nil {
		t.Fatal(err)
	}
	if run(t, p, 1, "--write-reports"); count() != 19 || p.writes.Load() != 21 {
		t.Errorf("got %d reports and %d writes, want the report of a pod that is gone removed", count(), p.writes.Load())
	}
}

var reportsResource = schema.GroupVersionResource{Group: "openreports.io", Version: "v1alpha1", Resource: "reports"}
